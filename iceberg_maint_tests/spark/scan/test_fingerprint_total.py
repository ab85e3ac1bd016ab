"""The fingerprint of several parts."""

from __future__ import annotations

from iceberg_maint.core.outcomes.verification import Fingerprint
from iceberg_maint.engines.spark.scan.row_proof import LANES, total

NOTHING = Fingerprint(0, ((0, 0),) * LANES)
PART = Fingerprint(3, tuple((lane + 1, lane + 2) for lane in range(LANES)))


def test_total_of_no_parts_is_the_fingerprint_of_no_rows() -> None:
    assert total([]) == NOTHING


def test_total_of_one_part_is_the_part() -> None:
    assert total([PART]) == PART
    assert total([PART, NOTHING]) == PART
