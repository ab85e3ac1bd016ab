"""What is estimated before equality deletes are applied."""

from __future__ import annotations

from typing import Any

from iceberg_maint.core.policy.data import EqualityDeletesPolicy
from iceberg_maint.engines.spark.deletes.keys import preflight_of
from iceberg_maint_tests.support.ledger.values import make_batch


def test_batch_without_equality_deletes_needs_no_estimate() -> None:
    unused: Any = None
    batch = make_batch("day=1")
    assert batch.groups
    assert preflight_of(unused, unused, batch, EqualityDeletesPolicy(), ()) is None
