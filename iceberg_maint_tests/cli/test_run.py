"""`run`: its document, its exit codes, and that it stops in order."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import click.testing
import pytest

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.cli.conftest import FAILED, REWRITE, UNKNOWN, Lake, table_of
from iceberg_maint_tests.support.fakes.catalog import fake_table

pytestmark = pytest.mark.seconds

BATCH_KEYS = [
    "batch_id",
    "partitions",
    "outcome",
    "input_files",
    "output_files",
    "input_bytes",
    "output_bytes",
    "delete_files_removed",
    "seconds",
    "proof",
]


def outcomes(document: Any) -> dict[str, str]:
    return {t["table"]: t["operations"][REWRITE]["outcome"] for t in document["tables"]}


def test_unhealthy_table_is_healed_and_healthy_one_left_alone(lake: Lake) -> None:
    document = lake.json("run")
    assert outcomes(document) == {"lake.db.healthy": "NO_OP", "lake.db.sick": "IMPROVED"}
    (sick,) = (t for t in document["tables"] if t["table"] == "lake.db.sick")
    operation = sick["operations"][REWRITE]
    assert (operation["operation"], operation["reason"]) == ("rewrite_data_files", "small_files")
    assert operation["snapshot_after"] == operation["snapshot_before"] + 1
    (batch,) = operation["batches"]
    assert set(BATCH_KEYS) <= set(batch)
    assert (batch["input_files"], batch["output_files"], batch["input_bytes"]) == (18, 2, 18_000)
    assert batch["partitions"] == ["day=1", "day=2"]
    assert batch["proof"]["equal"] is True
    assert outcomes(lake.json("run")) == {"lake.db.healthy": "NO_OP", "lake.db.sick": "NO_OP"}
    assert len(lake.engine.batches) == 1


def test_catalog_may_be_left_out_of_the_name(lake: Lake) -> None:
    assert outcomes(lake.json("run", "db.sick")) == {"lake.db.sick": "IMPROVED"}


def test_only_the_asked_for_partition_is_touched(lake: Lake) -> None:
    document = lake.json("run", "db.sick", "--partition", "day=2")
    (batch,) = document["tables"][0]["operations"][REWRITE]["batches"]
    assert batch["partitions"] == ["day=2"]
    left = lake.catalog.content[TableId.parse("lake.db.sick")].live_files
    assert sum(f.partition == "day=1" for f in left) == 10


def test_healthy_partition_is_rewritten_only_by_force(lake: Lake) -> None:
    asked = ("run", "db.sick", "--partition", "day=3")
    assert lake.json(*asked)["tables"][0]["operations"][REWRITE]["batches"] == []
    (batch,) = lake.json(*asked, "--force")["tables"][0]["operations"][REWRITE]["batches"]
    assert (batch["input_files"], batch["output_files"]) == (2, 1)


def test_batches_are_limited_over_all_tables(lake: Lake) -> None:
    lake.configure("defaults: {windows: {max_partitions_per_batch: 1}}\n")
    document = lake.json("run", "--operation", "rewrite_data_files", "--max-batches", "1")
    assert sum(len(o["batches"]) for t in document["tables"] for o in t["operations"]) == 1
    assert len(lake.engine.batches) == 1


def test_policy_value_of_the_command_line_wins(lake: Lake) -> None:
    assert outcomes(lake.json("run", "db.sick", "--set", "rewrite_data_files.min_input_files=20")) == {
        "lake.db.sick": "NO_OP"
    }
    document = lake.json("run", "db.sick", "--set", "mode=advise")
    assert document["tables"][0]["operations"][REWRITE]["reason"] == "advise"
    assert lake.engine.batches == []


def test_failed_batch_exits_1_and_the_other_tables_are_done(lake: Lake) -> None:
    lake.engine.results = [FAILED]
    document = lake.json("run", exit_code=1)
    assert outcomes(document) == {"lake.db.healthy": "NO_OP", "lake.db.sick": "FAILED"}
    assert lake.json("run", exit_code=1)["tables"][1]["operations"][REWRITE]["reason"] == "back_off"


def test_run_that_only_quarantine_holds_exits_1_and_names_the_command_that_ends_it(lake: Lake) -> None:
    uuid = lake.catalog.pin(TableId.parse("lake.db.sick")).uuid
    held = PartitionHistory(quarantined=True, reason="disk full")
    histories = {PartitionKey(p): held for p in ("day=1", "day=2")}
    lake.context.ledger.health.set_partition_history(uuid, Operation.REWRITE_DATA_FILES, histories)
    result = lake("run")
    assert (result.exit_code, result.stderr) == (
        1,
        (
            "lake.db.sick: not maintained after repeated failures until a person releases it. Fix: remove the cause that "
            "`iceberg-maint why lake.db.sick` names, then run `iceberg-maint release lake.db.sick`.\n"
        ),
    )
    lake("release", "db.sick")
    assert lake("run").exit_code == 0


def test_unknown_commit_exits_4_as_long_as_it_waits(lake: Lake) -> None:
    lake.engine.results = [UNKNOWN]
    result = lake("run", "db.sick")
    assert result.exit_code == 4
    assert "ICM-121" in result.stderr
    assert "iceberg-maint reconcile lake.db.sick" in result.stderr
    assert lake.json("run", "db.healthy")["tables"][0]["operations"][REWRITE]["outcome"] == "NO_OP"
    lake("pause", "db.sick")
    assert lake("run").exit_code == 4
    assert lake("reconcile").exit_code == 4
    lake("resume", "db.sick")
    # The next commit takes the inputs away from the unconfirmed one, which settles it.
    assert outcomes(lake.json("run", "db.sick", "--force")) == {"lake.db.sick": "IMPROVED"}
    assert lake("reconcile").exit_code == 0


def test_equality_deletes_of_a_dropped_column_are_refused_with_their_code(lake: Lake) -> None:
    files = [
        LiveFile(f"file:///mem/{i}", FileKind.DATA, 0, "__all__", 10, 1000, 1, "parquet") for i in range(8)
    ] + [
        LiveFile(
            "file:///mem/d", FileKind.EQUALITY_DELETES, 0, "__all__", 1, 100, 2, "parquet", equality_ids=(99,)
        )
    ]
    lake.catalog.put(fake_table("lake.db.cdc", files, now_ms=1_700_000_000_000))
    result = lake("run", "db.cdc", "--json")
    assert result.exit_code == 3
    assert "lake.db.cdc: ICM-119" in result.stderr
    (table,) = json.loads(result.stdout)["tables"]
    assert [o["outcome"] for o in table["operations"]] == ["UNSUPPORTED"] * 2 + ["NO_OP"] * 4


def test_lease_of_another_run_is_refused_with_its_code(lake: Lake) -> None:
    state = lake.catalog.pin(TableId.parse("lake.db.sick"))
    assert lake.context.ledger.leases.acquire(state.uuid, "lake.db.sick", "other", 45, 0) is not None
    result = lake("run", "db.sick")
    assert result.exit_code == 3
    assert "ICM-109" in result.stderr


def test_table_that_cannot_be_read_does_not_keep_the_others_ill(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = lake.catalog.measure

    def unreadable(state: Any, policy: Any) -> Any:
        if state.table.name == "healthy":
            raise RefusedError("ICM-101", "manifest m1 is broken.", "restore it.")
        return measure(state, policy)

    monkeypatch.setattr(lake.catalog, "measure", unreadable)
    document = lake.json("run", exit_code=3)
    assert document["tables"][0] == {
        "table": "lake.db.healthy",
        "operations": [],
        "error": {"code": "ICM-101", "message": "manifest m1 is broken.", "fix": "restore it."},
    }
    assert document["tables"][1]["operations"][REWRITE]["outcome"] == "IMPROVED"


def test_table_dropped_since_it_was_listed_is_no_failure(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sick = lake.catalog.content.pop(TableId.parse("lake.db.sick"))
    monkeypatch.setattr(lake.catalog, "tables", lambda: (*lake.catalog.content, sick.state.table))
    document = lake.json("run")
    assert [t.get("error", {}).get("code") for t in document["tables"]] == [None, "ICM-126"]
    assert lake.json("run", "db.sick", exit_code=2)["tables"][0]["error"]["code"] == "ICM-126"


def test_engine_that_cannot_start_is_refused_with_its_code(lake: Lake) -> None:
    lake.engine.unfit = RefusedError("ICM-103", "no Java found; Spark needs Java 17 to 23.", "install a JDK.")
    for _ in range(5):
        document = lake.json("run", exit_code=3)
        assert [t.get("error", {}).get("code") for t in document["tables"]] == [None, "ICM-103"]
    lake.engine.unfit = None
    assert outcomes(lake.json("run"))["lake.db.sick"] == "IMPROVED"


def test_wrong_table_property_is_a_configuration_error_of_that_table(lake: Lake) -> None:
    table = lake.catalog.content[TableId.parse("lake.db.healthy")]
    table.state.properties["maintenance.mode"] = "on"  # type: ignore[index]
    document = lake.json("run", exit_code=2)
    assert document["tables"][0]["error"]["code"] == "ICM-100"
    assert document["tables"][1]["operations"][REWRITE]["outcome"] == "IMPROVED"


def test_unexpected_error_of_a_table_is_reported_and_exits_1(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(lake.catalog, "pin", broken)
    document = lake.json("run", "db.sick", exit_code=1)
    assert document["tables"][0]["error"] == {
        "code": None,
        "message": "ZeroDivisionError: by zero",
        "fix": "",
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_before_the_next_batch_and_gives_the_lease_back(
    lake: Lake, number: signal.Signals
) -> None:
    lake.configure("defaults: {windows: {max_partitions_per_batch: 1}}\n")
    write = lake.engine.write
    cancelled = lake.engine.cancel

    def write_and_be_stopped(batch: Any, policy: Any) -> Any:
        if lake.engine.batches:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
        return write(batch, policy)

    lake.engine.write = write_and_be_stopped  # type: ignore[method-assign]
    document = lake.json("run", "db.sick", exit_code=1)
    assert document["tables"][0]["error"]["message"] == f"terminated by {number.name}"
    assert cancelled.__self__.cancelled >= 1
    operation = document["tables"][0]["operations"][REWRITE]
    assert (operation["outcome"], operation["reason"]) == ("IMPROVED", "terminated")
    assert [(b["outcome"], b["partitions"]) for b in operation["batches"]] == [("IMPROVED", ["day=1"])]
    assert operation["snapshot_after"] == operation["batches"][0]["snapshot_after"]
    assert len(lake.engine.batches) == 1
    lake.engine.write = write  # type: ignore[method-assign]
    again = lake.json("run", "db.sick")["tables"][0]["operations"][REWRITE]
    assert [b["partitions"] for b in again["batches"]] == [["day=2"]]
    assert signal.getsignal(number) is not None


def test_signal_before_the_first_table_is_a_termination_of_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("iceberg_maint.cli.run_tables.PreparedTable", stopped)
    document = lake.json("run", exit_code=1)
    assert [(t["table"], t["error"]["message"]) for t in document["tables"]] == [
        ("lake.db.healthy", "terminated by SIGTERM")
    ]
    assert document["not_started"] == ["lake.db.sick"]


def test_interrupt_by_spark_s_own_handler_is_a_termination_too(lake: Lake) -> None:
    lake.engine.errors = [KeyboardInterrupt()]
    document = lake.json("run", "db.sick", exit_code=1)
    assert document["tables"][0]["error"]["message"] == "terminated by SIGINT"
    assert lake.json("run", "db.sick")["tables"][0]["operations"][REWRITE]["outcome"] == "IMPROVED"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--partition", "day=1"], "--partition needs exactly one TABLE"),
        (["run", "db.sick", "db.healthy", "--partition", "day=1"], "--partition needs exactly one TABLE"),
        (["run", "--force"], "--force needs a TABLE"),
        (["run", "--max-batches", "0"], "--max-batches"),
        (["run", "--operation", "vacuum"], "--operation"),
        (
            ["run", "db.sick", "--partition", "day=1", "--operation", "expire_snapshots"],
            "needs operations on data",
        ),
        (["run", "db.sick", "--set", "mode"], "--set mode is not KEY=VALUE"),
        (["run", "db.sick", "--set", "mde=act"], "--set mde is unknown. Did you mean mode?"),
        (["run", "db.sik"], "did you mean lake.db.sick"),
        (["run", "other.db.sick"], "has no table 'lake.other.db.sick'"),
        (["run", "sick"], "'sick' is no table name"),
        (["run", "db.'; drop table"], "has no table"),
        (["run", "db.sick", "--partition", "hour=1"], "ICM-126"),
        (["run", "db.sick", "--unknown"], "No such option"),
        (["walk"], "No such command"),
    ],
)
def test_wrong_usage_exits_2_and_changes_nothing(lake: Lake, arguments: list[str], says: str) -> None:
    result: click.testing.Result = lake(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert lake.engine.batches == []


def test_table_that_hangs_holds_no_other_and_is_named_with_its_code(lake: Lake) -> None:
    lake.catalog.put(table_of("lake.db.also", {"1": 9}))
    lake.configure("defaults: {table_timeout_seconds: 3600}\n")
    write = lake.engine.write

    def hang(batch: Any, policy: Any) -> Any:
        if batch.table == "lake.db.also":
            signal.raise_signal(signal.SIGALRM)  # as the timer does
        return write(batch, policy)

    lake.engine.write = hang  # type: ignore[method-assign]
    document = lake.json("run", exit_code=1)
    also, _, sick = document["tables"]
    assert also["error"] == {
        "code": "ICM-171",
        "message": "lake.db.also used up its time: table_timeout_seconds = 3600.",
        "fix": "look for what did not answer, or raise the setting.",
    }
    assert also["operations"][REWRITE]["reason"] == "terminated"
    assert sick["operations"][REWRITE]["outcome"] == "IMPROVED"
