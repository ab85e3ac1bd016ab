"""What operations changed and would change, as people read it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from iceberg_maint.cli.context import wrapped
from iceberg_maint.cli.history import draw_records
from iceberg_maint.cli.pages.console import draw_health, draw_outcome
from iceberg_maint.core.health.metrics import Measured, TableHealth
from iceberg_maint.core.model.ids import POSITION_OPERATIONS, Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.report.certificate import verdict_text
from iceberg_maint.report.fleet import fleet
from iceberg_maint.report.fleet_page import Prices, fleet_page
from iceberg_maint.report.formatting import metric_value, number, setting, size
from iceberg_maint.report.housekeeping_text import work_of
from iceberg_maint.report.plan_notes import Advice
from iceberg_maint.report.report_page import FleetReport
from iceberg_maint.report.verdicts import Summary

PROOF = Proof("full", True, 3422, 150, 150, "xxh64x2-1:0:0.0,0.0")
BATCH = BatchOutcome(
    "b", (PartitionKey("day=1"),), OutcomeStatus.IMPROVED, Reason.EQUALITY_DELETES,
    12, 3, 25_703, 4_915, 3, 1.0, 1, 2, proof=PROOF,
)  # fmt: skip


def outcome(operation: Operation) -> OperationOutcome:
    return OperationOutcome(
        "lake.db.t", operation, OutcomeStatus.IMPROVED, Reason.EQUALITY_DELETES, 1, 2, (BATCH,)
    )


def record(operation: Operation) -> Record:
    return Record("r", "run", "lake.db.t", "u", operation, 1, 2, "p", "d", {}, outcome(operation))


@pytest.mark.parametrize("operation", POSITION_OPERATIONS)
def test_work_of_an_operation_on_positions_is_in_delete_files(operation: Operation) -> None:
    assert work_of(outcome(operation)) == (
        "3 delete files (4.8 KiB) written, 12 data files (25.1 KiB) kept, 3 delete files dropped"
    )


def test_work_of_a_rewrite_is_in_files_before_and_after() -> None:
    assert work_of(outcome(Operation.REWRITE_DATA_FILES)) == (
        "12 → 3 files, 25.1 KiB → 4.8 KiB, 3 delete files dropped"
    )


def test_note_of_batches_that_succeeded_is_shown_once() -> None:
    note = "written by native: the Python of the executors cannot import pyarrow"
    batches = tuple(replace(BATCH, message=m, counts={"base_to_swap_ms": 9}) for m in (note, note, ""))
    console = Console(file=io.StringIO(), width=100)
    draw_outcome(console, replace(outcome(Operation.REWRITE_DATA_FILES), batches=batches))
    shown = console.file.getvalue()
    assert f"  2 batches: {note}\n" in shown
    assert "base_to_swap_ms" not in shown
    batches = (replace(batches[0], commit_tries=3),)
    draw_outcome(console, replace(outcome(Operation.REWRITE_DATA_FILES), batches=batches))
    assert "  b: base_to_swap_ms 9\n" in console.file.getvalue()


@pytest.mark.parametrize("status", [OutcomeStatus.IMPROVED, OutcomeStatus.COMMITTED])
@pytest.mark.parametrize("width", [80, 300])
def test_note_of_a_batch_that_succeeded_is_part_of_the_history(width: int, status: OutcomeStatus) -> None:
    batches = (replace(BATCH, message="written by native: a column is INT96", outcome=status), BATCH)
    made = record(Operation.REWRITE_DATA_FILES)
    console = Console(file=io.StringIO(), width=width)
    draw_records(
        console, [replace(made, outcome=replace(made.outcome, batches=batches))], str, one_table=True
    )
    shown = " ".join(console.file.getvalue().split())
    assert "1 batch: written by native: a column is INT96" in shown


def test_fleet_counts_fewer_data_files_of_rewrites_only() -> None:
    table = TableId.parse("lake.db.t")
    measured = Measured(table, "u", 1, 1, "mem://v1", TableHealth(), {}, 1_000_000)
    records = [record(o) for o in (*POSITION_OPERATIONS, Operation.REWRITE_DATA_FILES)]
    (row,) = fleet([measured], records)
    assert (row.files_removed, row.delete_files_removed, row.batches) == (9, 9, 3)


def test_proof_of_a_conversion_is_in_positions() -> None:
    assert verdict_text(Operation.CONVERT_EQUALITY_DELETES, PROOF) == (
        "full equal: 150 positions written, 150 of them newly deleted rows"
    )
    unequal = replace(PROOF, equal=False)
    assert verdict_text(Operation.REWRITE_DATA_FILES, unequal) == (
        "full UNEQUAL: 3,422 rows in ≠ 150 out + 150 deleted"
    )


def test_advice_counts_the_partitions_of_the_next_run_not_all_that_are_due() -> None:
    advice = Advice(1000, 1000, 10, 500, 100, 486_400, None, planned_partitions=100)
    assert advice.sentence() == (
        "A run would maintain 100 of 1,000 partitions in 10 batches: 500 files with 475 KiB become 100 files. "
        "900 more due partitions wait for later runs. Deferred by mode: advise."
    )


@pytest.mark.parametrize(
    ("value", "text"), [(8069.5, "8,070"), (999.5, "1,000"), (999.4, "999"), (0.4478, "0.448"), (12, "12")]
)
def test_number_of_a_thousand_or_more_has_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


def test_setting_without_a_value_is_off_or_what_null_stands_for() -> None:
    assert setting("windows.max_partitions_per_batch", None) == "10 or 100"
    assert setting("windows.max_partitions_per_batch", 1000) == "1,000"
    assert setting("windows.max_partitions_per_hour", None) == "off"


def test_metric_of_bytes_is_a_size() -> None:
    assert metric_value("mean_manifest_bytes", 8069.5) == "7.9 KiB"
    assert metric_value("delete_ratio", 0.44787) == "0.448"


def test_health_of_a_table_without_a_snapshot_is_in_words() -> None:
    measured = Measured(TableId.parse("lake.db.t"), "u", None, 1, "mem://v1", TableHealth(), {}, 1_000_000)
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as capture:
        draw_health(console, measured)
    assert capture.get().startswith("lake.db.t no snapshot: 0 data files, 0 B, 0 rows, 0 small, ")
    assert "partition" not in capture.get()


def test_message_for_a_terminal_is_broken_between_words() -> None:
    line = "ICM-126 catalog lake has no table 'lake.db.t'. Fix: list the tables with 'iceberg-maint tables'."
    assert wrapped(line, 60).splitlines() == [
        "ICM-126 catalog lake has no table 'lake.db.t'. Fix: list the",
        "  tables with 'iceberg-maint tables'.",
    ]
    assert wrapped(f"at {'x' * 70} is", 60).splitlines() == ["at", f"  {'x' * 70}", "  is"]


def test_page_counts_what_was_deleted_and_not_what_only_moved_to_the_trash() -> None:
    def counted(operation: Operation, counts: dict[str, int]) -> Record:
        batch = replace(BATCH, counts=counts)
        return replace(record(operation), outcome=replace(outcome(operation), batches=(batch,)))

    held = {"released_bytes": 7_000, "released_deleted_bytes": 1_000}
    swept = {"trashed_bytes": 9_000, "swept_bytes": 5_000, **held}
    records = (
        counted(Operation.EXPIRE_SNAPSHOTS, held),
        counted(Operation.REMOVE_ORPHAN_FILES, swept),
    )
    report = FleetReport((), {}, Summary(0, {}, 0, None), ())
    tiles = {t.label: t.value for t in fleet_page(report, records, Prices(), 3).tiles}
    assert tiles["of storage given back"] == size(6_000)
