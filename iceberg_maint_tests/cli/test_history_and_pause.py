"""history, reconcile, report; pause, resume, release."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.record import Settlement
from iceberg_maint.errors import RefusedError
from iceberg_maint.loop import settle as reconciling
from iceberg_maint.loop.settle import Settled
from iceberg_maint.report.formatting import moment
from iceberg_maint_tests.cli.conftest import REJECTED, REWRITE, UNKNOWN, Lake
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog

pytestmark = pytest.mark.seconds

SICK = TableId.parse("lake.db.sick")


def test_history_shows_records_newest_first(lake: Lake) -> None:
    lake.engine.results = [REJECTED]
    data = ("run", "db.sick", "--operation", "rewrite_data_files")
    lake(*data)
    lake.clock.sleep(400)
    lake(*data)
    records = lake.json("history", "db.sick")["records"]
    assert [r["outcome"] for r in records] == ["IMPROVED", "DEFERRED"]
    assert records[0]["versions"] == {"iceberg": "1.12.0", "spark": "4.1.4"}
    assert len(records[0]["policy_digest"]) == 64
    assert lake.json("history", "db.healthy")["records"] == []
    assert len(lake.json("history", "--limit", "1")["records"]) == 1
    assert "IMPROVED" in lake("history").stdout


def test_history_of_a_table_that_is_gone_is_still_there(lake: Lake) -> None:
    lake("run", "db.sick", "--operation", "rewrite_data_files")
    del lake.catalog.content[SICK]
    assert len(lake.json("history", "db.sick")["records"]) == 1


def test_history_of_a_table_that_never_was_exits_2(lake: Lake) -> None:
    assert lake.json("history", "db.sikc", exit_code=2)["error"] == {
        "code": "ICM-126",
        "message": "catalog lake has no table 'lake.db.sikc'.",
        "fix": "did you mean lake.db.sick?",
    }


def test_report_counts_health_and_work_without_the_catalog(lake: Lake) -> None:
    lake("run")
    lake.catalog.unreachable = True
    document = lake.json("report")
    assert document["totals"]["tables"] == 2
    assert document["totals"]["files_removed"] == 16
    assert document["tables"][0]["table"] in ("lake.db.sick", "lake.db.healthy")
    assert lake("report").stdout.splitlines()[0] == (
        "2 tables: 2 healthy, 0 due, 0 waiting, 0 blocked (from stored health)"
    )


def test_unreachable_catalog_exits_2_with_one_line(lake: Lake) -> None:
    lake.catalog.unreachable = True
    result = lake("tables")
    assert result.exit_code == 2
    assert result.stderr == "ICM-104 catalog 'lake' cannot be reached. Fix: start it.\n"
    assert lake.json("tables", exit_code=2)["error"] == {
        "code": "ICM-104",
        "message": "catalog 'lake' cannot be reached.",
        "fix": "start it.",
    }


def test_tables_names_a_catalog_that_does_not_answer(lake: Lake) -> None:
    more = FakeCatalog("more", [])
    more.unreachable = True
    lake.context = changed(lake.context, catalogs={"lake": lake.catalog, "more": more})
    document = lake.json("tables", exit_code=2)
    assert document["unlisted_catalogs"] == [
        {
            "catalog": "more",
            "code": "ICM-104",
            "message": "catalog 'more' cannot be reached.",
            "fix": "start it.",
        }
    ]
    assert [row["table"] for row in document["tables"]] == ["lake.db.healthy", "lake.db.sick"]


def test_pause_of_a_table_holds_it_until_resume(lake: Lake) -> None:
    assert lake.json("pause", "db.sick", "--note", "migration", "--by", "anna") == {
        "paused": "lake.db.sick",
        "note": "migration",
        "by": "anna",
    }
    assert lake.json("run", "db.sick")["tables"][0]["operations"][REWRITE]["reason"] == "paused"
    since = moment(lake.json("tables")["pauses"][0]["since_ms"])
    assert lake.json("why", "db.sick")["truth"] == (
        f"Paused by anna since {since}: migration. 2 of 3 partitions are due."
    )
    assert lake.engine.batches == []
    lake("resume", "db.sick")
    assert lake.json("run", "db.sick")["tables"][0]["operations"][REWRITE]["outcome"] == "IMPROVED"


def test_pause_ends_by_the_name_that_the_table_has_by_now(lake: Lake) -> None:
    lake("pause", "db.sick")
    known = lake.catalog.content.pop(TableId.parse("lake.db.sick"))
    well = TableId.parse("lake.db.well")
    lake.catalog.put(replace(known, state=replace(known.state, table=well)))
    lake("resume", "db.well")
    assert lake.json("run", "db.well")["tables"][0]["operations"][REWRITE]["outcome"] == "IMPROVED"


def test_pause_of_the_fleet_holds_every_table(lake: Lake) -> None:
    assert lake("pause").stdout == "paused: the whole fleet\n"
    reasons = {t["operations"][REWRITE]["reason"] for t in lake.json("run")["tables"]}
    assert reasons == {"paused"}
    assert lake.json("why", "db.sick")["change"] == "iceberg-maint resume"
    lake("resume")
    assert lake.json("run", "db.sick")["tables"][0]["operations"][REWRITE]["outcome"] == "IMPROVED"


def test_paused_table_keeps_its_due_partitions_and_backlog(lake: Lake) -> None:
    def sick() -> dict[str, Any]:
        return {t["table"]: t for t in lake.json("tables")["tables"]}["lake.db.sick"]

    before = sick()
    lake("pause", "db.sick", "--note", "migration", "--by", "anna")
    after = sick()
    assert (before["due_partitions"], before["backlog_bytes"]) == (2, 18_000)
    assert (after["due_partitions"], after["backlog_bytes"]) == (2, 18_000)
    assert (after["verdict"], after["reason"]) == ("DEFER", "paused")
    assert lake.json("why", "db.sick")["next"]["due_partitions"] == ["day=1", "day=2"]


@pytest.mark.parametrize("screen", ["tables", "report"])
def test_pause_is_a_banner_with_note_operator_time_and_the_command_that_ends_it(
    lake: Lake, screen: str
) -> None:
    lake("tables")
    lake("pause", "--note", "catalog moves", "--by", "ben")
    lake("pause", "db.sick", "--note", "migration", "--by", "anna")
    pauses = lake.json(screen)["pauses"]
    since = [moment(p.pop("since_ms")) for p in pauses]
    assert pauses == [
        {"table": "*", "note": "catalog moves", "by": "ben", "end": "iceberg-maint resume"},
        {
            "table": "lake.db.sick",
            "note": "migration",
            "by": "anna",
            "end": "iceberg-maint resume lake.db.sick",
        },
    ]
    assert lake(screen).stdout.splitlines()[:2] == [
        f"PAUSED the whole fleet is paused by ben since {since[0]}: catalog moves. To end it: iceberg-maint resume",
        (
            f"PAUSED lake.db.sick is paused by anna since {since[1]}: migration. "
            "To end it: iceberg-maint resume lake.db.sick"
        ),
    ]
    lake("resume")
    lake("resume", "db.sick")
    assert lake.json(screen)["pauses"] == []


@pytest.mark.parametrize(
    ("pauses", "change"),
    [
        (["db.sick"], "iceberg-maint resume lake.db.sick"),
        ([None], "iceberg-maint resume"),
        (["db.sick", None], "iceberg-maint resume lake.db.sick and iceberg-maint resume"),
    ],
)
def test_why_of_a_paused_table_names_the_commands_that_end_the_pause_at_hand(
    lake: Lake, pauses: list[str | None], change: str
) -> None:
    for name in pauses:
        lake("pause", *([] if name is None else [name]))
    assert lake.json("why", "db.sick")["change"] == change
    for command in change.split(" and "):
        lake(*command.split()[1:])
    assert lake.json("why", "db.sick")["verdict"] == "RUN"


def test_resume_says_what_is_paused_still(lake: Lake) -> None:
    waits = (
        "lake.db.sick has no pause of its own, but waits: the whole fleet is paused: [b]move[/b]. "
        "Fix: run 'iceberg-maint resume'.\n"
    )
    assert lake("resume", "db.sick").stdout == "lake.db.sick was not paused\n"
    assert lake("resume").stdout == "the whole fleet was not paused\n"
    lake("pause", "db.sick")
    lake("pause", "--note", "[b]move[/b]")
    for _ in range(2):
        assert lake("resume", "db.sick").stdout == waits
    assert lake.json("resume", "db.sick") == {
        "resumed": "lake.db.sick",
        "was_paused": True,
        "fleet_paused": True,
    }
    assert lake("resume").stdout == "resumed: the whole fleet\n"
    assert lake.json("resume") == {"resumed": "*", "was_paused": False, "fleet_paused": False}
    lake("pause", "db.sick")
    assert lake("resume", "db.sick").stdout == "resumed: lake.db.sick\n"


def test_release_clears_back_off_and_quarantine_of_what_was_asked(lake: Lake) -> None:
    lake.engine.results = [REJECTED]
    lake("run", "db.sick")
    assert lake.json("release", "db.sick", "--partition", "day=1") == {
        "released": [{"table": "lake.db.sick", "partitions": ["day=1"]}]
    }
    partitions = lake.json("why", "db.sick")["partitions"]
    assert [p["partition"] for p in partitions if p["verdict"] == "RUN"] == ["day=1"]
    assert lake("release").stdout == "released: lake.db.sick day=2\n"
    assert lake("release").stdout == "no partition was quarantined or in back-off\n"
    result = lake("release", "db.sick", "--partition", "day=2")
    assert result.exit_code == 2
    assert "ICM-126 lake.db.sick: partition 'day=2' is not in quarantine or back-off" in result.stderr
    assert lake("release", "--partition", "day=2").exit_code == 2


def test_reconcile_with_nothing_open_says_so(lake: Lake) -> None:
    assert lake("reconcile").stdout == "nothing to settle\n"
    assert lake.json("reconcile", "db.sick") == {"tables": []}


def test_reconcile_under_another_run_s_lease_does_not_say_that_all_is_settled(lake: Lake) -> None:
    lake.engine.results = [UNKNOWN]
    lake("run", "db.sick")
    state = lake.catalog.pin(SICK)
    assert lake.context.ledger.leases.acquire(state.uuid, "lake.db.sick", "other", 45, 0) is not None
    document = lake.json("reconcile", exit_code=3)
    (sick,) = document["tables"]
    assert (sick["table"], sick["error"]["code"]) == ("lake.db.sick", "ICM-109")


def test_reconcile_of_an_expiry_that_took_more_with_it_fails(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Settlement(CommitStatus.COMMITTED, None, "ICM-130 the expiry also removed tag v", ("tag v",))
    settled = Settled("attempt", "batch", ("__all__",), lost, 0)
    monkeypatch.setattr(reconciling, "reconcile", lambda *_: (settled,))
    document = lake.json("reconcile", "db.sick", exit_code=1)
    (attempt,) = document["tables"][0]["attempts"]
    assert attempt["settlement"] == {
        "status": "COMMITTED",
        "snapshot_id": None,
        "why": "ICM-130 the expiry also removed tag v",
        "lost": ["tag v"],
    }


def test_release_of_the_fleet_goes_past_a_table_that_cannot_be_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.engine.results = [REJECTED]
    lake("run", "db.sick")
    pin = lake.catalog.pin

    def unreadable(table: TableId) -> TableState:
        if table.name == "healthy":
            raise RefusedError("ICM-101", "metadata file is missing.", "restore it.")
        return pin(table)

    monkeypatch.setattr(lake.catalog, "pin", unreadable)
    document = lake.json("release", exit_code=3)
    assert document["released"][0] == {"table": "lake.db.sick", "partitions": ["day=1", "day=2"]}
    assert document["released"][1]["error"]["code"] == "ICM-101"
