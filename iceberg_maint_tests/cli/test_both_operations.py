"""What is held and what was done, of all operations on data alike, on the command line."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint_tests.cli.conftest import UNKNOWN, Lake

SICK = TableId.parse("lake.db.sick")
CONVERT, REWRITE, MERGE = DATA_OPERATIONS


def deferral(lake: Lake, operation: Operation, *partitions: str) -> None:
    held = PartitionHistory(ineffective=4, quarantined=True, reason="proof_mismatch")
    uuid = lake.catalog.pin(SICK).uuid
    lake.context.ledger.health.set_partition_history(uuid, operation, dict.fromkeys(partitions, held))


def held(lake: Lake) -> dict[str, set[str]]:
    uuid = lake.catalog.pin(SICK).uuid
    return {
        o: set(lake.context.ledger.health.history(uuid, str(SICK), o).partitions) for o in DATA_OPERATIONS
    }


def test_release_clears_what_any_operation_holds_and_names_each_partition_once(lake: Lake) -> None:
    deferral(lake, CONVERT, "day=1")
    deferral(lake, REWRITE, "day=1", "day=2")
    deferral(lake, MERGE, "day=1", "day=3")
    assert lake.json("release", "db.sick") == {
        "released": [{"table": "lake.db.sick", "partitions": ["day=1", "day=2", "day=3"]}]
    }
    assert held(lake) == {CONVERT: set(), REWRITE: set(), MERGE: set()}


def test_release_of_a_partition_clears_it_in_all_operations_and_no_other(lake: Lake) -> None:
    deferral(lake, CONVERT, "day=1", "day=3")
    deferral(lake, REWRITE, "day=1", "day=2")
    deferral(lake, MERGE, "day=1")
    lake.json("release", "db.sick", "--partition", "day=1")
    assert held(lake) == {CONVERT: {"day=3"}, REWRITE: {"day=2"}, MERGE: set()}


def test_history_shows_a_run_again_whose_commit_was_settled_after_it(lake: Lake) -> None:
    lake.engine.results = [UNKNOWN]
    assert lake("run", "db.sick").exit_code == 4
    table = lake.catalog.content[SICK]
    head = table.state.snapshot
    assert head is not None
    new = replace(head, snapshot_id=head.snapshot_id + 1, parent_id=head.snapshot_id)
    state = replace(table.state, snapshot=new, snapshots=(*table.state.snapshots, new))
    lake.catalog.put(replace(table, state=state))
    lake.json("reconcile", "db.sick")
    settled, reported = [r for r in lake.json("history", "db.sick")["records"] if r["batches"]]
    assert (reported["outcome"], settled["outcome"]) == ("UNKNOWN", "FAILED")
    assert settled["run_id"] == reported["run_id"]
    assert settled["message"] == "settled after the run had ended"
