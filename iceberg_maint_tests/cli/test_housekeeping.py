"""Housekeeping on the command line: planned, explained, run; and the readers that it waits for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint.core.model.ids import HOUSEKEEPING_OPERATIONS, TableId
from iceberg_maint.ports.storage import OrphanWork
from iceberg_maint.report.formatting import moment
from iceberg_maint_tests.cli.conftest import Lake
from iceberg_maint_tests.support.fakes.catalog import FakeTable

SICK = TableId.parse("lake.db.sick")
HEALTHY = TableId.parse("lake.db.healthy")
DAY_MS = 86_400_000


@pytest.fixture
def aged(lake: Lake) -> Lake:
    """`sick` with eleven more snapshots, all a month old; two of the twelve may go."""
    table = lake.catalog.content[SICK]
    assert table.state.snapshot is not None
    # The ledger's clock dates the last sign of a reader.
    lake.clock.ms = lake.context.ledger.registry.database_ms()
    old = replace(table.state.snapshot, timestamp_ms=lake.clock.ms - 30 * DAY_MS)
    chain = [replace(old, snapshot_id=n, parent_id=n - 1 or None, sequence_number=0) for n in range(1, 12)]
    head = replace(old, parent_id=11)
    state = replace(
        table.state, snapshot=head, snapshots=(*chain, head), refs=(), last_updated_ms=lake.clock.ms
    )
    lake.catalog.put(FakeTable(state, table.live_files))
    return lake


def test_plan_names_what_would_expire_and_changes_nothing(aged: Lake) -> None:
    operations = {o["operation"]: o for o in aged.json("plan", "db.sick")["operations"]}
    (batch,) = operations["expire_snapshots"]["plan"]["batches"]
    assert (batch["snapshots"], batch["refs"], batch["partitions"]) == ([1, 2], [], ["*"])
    (look,) = operations["remove_orphan_files"]["plan"]["batches"]
    assert look["strategy"] == "mark"
    assert operations["rewrite_manifests"]["plan"]["batches"] == []
    assert len(aged.catalog.content[SICK].state.snapshots) == 12
    assert "expire 2 snapshots" in aged("plan", "db.sick").stdout


def test_plan_of_partitions_is_of_their_data_only(aged: Lake) -> None:
    planned = aged.json("plan", "db.sick", "--partition", "day=1")["operations"]
    assert not {o["operation"] for o in planned} & set(HOUSEKEEPING_OPERATIONS)


def test_reader_holds_snapshots_back_until_it_is_forgotten(aged: Lake) -> None:
    assert aged.json("readers", "set", "db.sick", "feed", "--snapshot", "2") == {
        "table": "lake.db.sick",
        "reader": "feed",
        "snapshot": 2,
    }
    (known,) = aged.json("readers", "list", "db.sick")["readers"]
    assert (known["reader"], known["snapshot"]) == ("feed", 2)
    expiry = aged.json("why", "db.sick")["housekeeping"][1]
    assert (expiry["operation"], expiry["verdict"]) == ("expire_snapshots", "RUN")
    since = moment(known["seen_ms"])
    assert expiry["retained_by"] == [f"reader feed (1 snapshot since {since})"]
    assert f"retained by reader feed (1 snapshot since {since})" in " ".join(
        aged("why", "db.sick").stdout.split()
    )
    assert aged.json("readers", "remove", "db.sick", "feed") == {"table": "lake.db.sick", "reader": "feed"}
    assert aged.json("readers", "list", "db.sick")["readers"] == []
    assert aged.json("why", "db.sick")["housekeeping"][1]["retained_by"] == []


def checkpoint(folder: Path, *snapshots: int, finished: int = 10) -> str:
    """A checkpoint whose newest finished batch names these snapshots. The batch after it is not finished."""
    for name in ("commits", "offsets"):
        (folder / name).mkdir()
    (folder / "commits" / "9").write_text("v1\n{}")
    (folder / "commits" / str(finished)).write_text("v1\n{}")
    (folder / "commits" / f".{finished}.crc").write_bytes(b"crc")
    offset = '{{"version":1,"snapshot_id":{},"position":1,"scan_all_files":false}}'
    lines = ["v1", '{"batchWatermarkMs":0}', "-", *(offset.format(s) for s in snapshots)]
    (folder / "offsets" / str(finished)).write_text("\n".join(lines))
    (folder / "offsets" / str(finished + 1)).write_text("\n".join([*lines[:3], offset.format(12)]))
    return str(folder)


def test_checkpoint_of_a_query_names_the_snapshot_that_it_goes_on_from(aged: Lake, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 4711, 2)
    assert aged.json("readers", "set", "db.sick", "feed", "--checkpoint", folder)["snapshot"] == 2


def test_checkpoint_without_a_finished_batch_is_refused(aged: Lake, tmp_path: Path) -> None:
    result = aged("readers", "set", "db.sick", "feed", "--checkpoint", str(tmp_path))
    assert (result.exit_code, f"ICM-100 {tmp_path} is no checkpoint of a query" in result.stderr) == (2, True)


def test_checkpoint_whose_snapshot_has_expired_is_refused(aged: Lake, tmp_path: Path) -> None:
    result = aged("readers", "set", "db.sick", "feed", "--checkpoint", checkpoint(tmp_path, 4711))
    assert (result.exit_code, "has none of the snapshots [4711] of batch 10" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["set", "db.sick", "feed", "--snapshot", "99"], "has no snapshot 99"),
        (["set", "db.sick", "feed", "--snapshot", "2", "--checkpoint", "."], "exclude each other"),
        (["remove", "db.sick", "feed"], "has no reader 'feed'. Fix: name one of these: none."),
        (["list", "db.sik"], "did you mean lake.db.sick"),
    ],
)
def test_wrong_reader_is_refused(aged: Lake, arguments: list[str], says: str) -> None:
    result = aged("readers", *arguments)
    assert (result.exit_code, says in result.stderr) == (2, True)


def test_run_of_the_whole_cycle_looks_for_orphans_and_says_when_again(lake: Lake) -> None:
    lake.clock.ms = lake.context.ledger.registry.database_ms()
    table = lake.catalog.content[HEALTHY]
    lake.catalog.put(replace(table, state=replace(table.state, last_updated_ms=lake.clock.ms)))
    run = lake.json("run", "db.healthy")["tables"][0]["operations"]
    look = run[-1]
    assert (look["operation"], look["outcome"], look["reason"]) == (
        "remove_orphan_files",
        "NO_OP",
        "orphan_files",
    )
    assert look["batches"][0]["counts"]["listed_files"] == 10
    again = lake.json("run", "db.healthy")["tables"][0]["operations"][-1]
    assert (again["outcome"], again["reason"], again["batches"]) == ("NO_OP", "healthy", [])
    said = lake.json("why", "db.healthy")["housekeeping"][2]
    assert said["next_ms"] - said["last_done_ms"] == 7 * DAY_MS


def test_abnormal_share_exits_3_and_names_the_command_that_approves(lake: Lake) -> None:
    lake.orphans.work = OrphanWork(10, 100, 9, 90, digest="abc", needs_approval=True)
    result = lake("run", "db.healthy", "--operation", "remove_orphan_files")
    assert result.exit_code == 3
    assert "ICM-122" in result.stderr
    assert "iceberg-maint orphans trash lake.db.healthy --approve abc" in result.stdout


def test_owner_who_keeps_files_is_obeyed(aged: Lake) -> None:
    table = aged.catalog.content[SICK]
    aged.catalog.put(replace(table, state=replace(table.state, properties={"gc.enabled": "false"})))
    result = aged("run", "db.sick", "--operation", "expire_snapshots")
    assert (result.exit_code, "ICM-110" in result.stderr) == (3, True)
    assert len(aged.catalog.content[SICK].state.snapshots) == 12


@pytest.mark.parametrize("reader", ["", "  ", "feed\nlake.db.sick: released", "feed\x1b[2K", "feed\u2028x"])
def test_name_of_a_reader_that_would_hide_or_forge_is_refused(aged: Lake, reader: str) -> None:
    error = aged.json("readers", "set", "db.sick", reader, exit_code=2)["error"]
    assert (error["code"], error["message"]) == (
        "ICM-100",
        f"{reader!r} is no name of a reader. A name must have printable characters only, and at least one.",
    )
    assert aged.json("readers", "list", "db.sick")["readers"] == []
