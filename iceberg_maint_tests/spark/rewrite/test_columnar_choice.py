"""Which batches `columnar` writes: those that the plan and the policy both give to it."""

from __future__ import annotations

import pytest

from iceberg_maint.core.planning.work import RowWriter
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy, RewriteStrategy
from iceberg_maint.engines.spark.rewrite.columnar.strategy import is_columnar
from iceberg_maint_tests.support.batches import with_work
from iceberg_maint_tests.support.ledger.values import CONVERT, make_batch


@pytest.mark.parametrize(
    ("writer", "strategy", "expected"),
    [
        (None, RewriteStrategy.COLUMNAR, False),
        (RowWriter(columnar=False), RewriteStrategy.COLUMNAR, False),
        (RowWriter(columnar=True), RewriteStrategy.COLUMNAR, True),
        (RowWriter(columnar=True), RewriteStrategy.NATIVE, False),
    ],
)
def test_rewrite_is_columnar_if_its_plan_and_the_policy_say_so(
    writer: RowWriter | None, strategy: RewriteStrategy, expected: bool
) -> None:
    batch = with_work(make_batch("day=1"), writer=writer)
    assert is_columnar(batch, RewriteDataFilesPolicy(strategy=strategy)) is expected


def test_conversion_is_not_columnar() -> None:
    policy = RewriteDataFilesPolicy(strategy=RewriteStrategy.COLUMNAR)
    assert not is_columnar(make_batch("day=1", operation=CONVERT), policy)
