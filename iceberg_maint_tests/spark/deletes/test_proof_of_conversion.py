"""The proof of a conversion, from positions alone: what is computed, and what is read back."""

from __future__ import annotations

from pyroaring import BitMap64

from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.engines.spark.deletes.convert import _proof
from iceberg_maint.engines.spark.scan.positions import Positions
from iceberg_maint_tests.support.ledger.values import CONVERT, make_batch

BATCH = make_batch("day=1", operation=CONVERT)
NEW: Positions = {"a": BitMap64([1, 2])}
OLD: Positions = {"a": BitMap64([5])}
BOTH: Positions = {"a": BitMap64([1, 2, 5])}


def proof(new: Positions, old: Positions, expected: Positions, written: Positions) -> Proof:
    return _proof(BATCH, new, old, expected, written)


def test_positions_that_are_read_back_as_computed_are_proved() -> None:
    proved = proof(NEW, OLD, BOTH, BOTH)
    assert (proved.equal, proved.detail) == (True, "")
    assert (proved.input_records, proved.output_records, proved.removed_records) == (10, 3, 2)


def test_position_that_is_new_and_was_deleted_before_is_a_difference() -> None:
    """A row is deleted once. If it counts twice, the computation is wrong although the files are as computed."""
    proved = proof({"a": BitMap64([1, 2, 5])}, OLD, BOTH, BOTH)
    assert not proved.equal
    assert proved.detail == "3 positions are new, 1 were deleted before, 3 are written"


def test_difference_of_the_files_is_named_before_that_of_the_counts() -> None:
    proved = proof(NEW, OLD, BOTH, NEW)
    assert not proved.equal
    assert proved.detail.startswith("3 positions of a were to be deleted, 2 are in the files written")
