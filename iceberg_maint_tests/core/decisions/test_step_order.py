"""When a run rewrites small files before it converts equality deletes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.table_decision import rewrites_first
from iceberg_maint.core.model.table_state import LiveFile
from iceberg_maint.core.policy.data import Policy, RewriteStrategy, Route
from iceberg_maint_tests.support.core.equality_deletes import CONVERT, REWRITE, cleaning, equality, healthy
from iceberg_maint_tests.support.core.values import NOW_MS, decide, measure_files, small, table_of

FILES = [*small(6), healthy("a"), equality("e")]


def cleaning_of(policy: Policy) -> Policy:
    """The policy under which every equality delete is old enough: the tables here have no times."""
    return replace(
        policy, rewrite_data_files=replace(policy.rewrite_data_files, equality_delete_max_age_seconds=0)
    )


def first(
    files: list[LiveFile],
    policy: Policy | None = None,
    *,
    converted_ms: int | None = None,
    rewritten_ms: int | None = None,
    oldest_ms: int | None = 0,
) -> bool:
    """`oldest_ms` is the commit time of the oldest equality delete of each partition."""
    table, policy = table_of(files), policy or cleaning()
    histories = {
        CONVERT: TableHistory(last_done_ms=converted_ms),
        REWRITE: TableHistory(last_done_ms=rewritten_ms),
    }
    decisions = {o: decide(table, cleaning_of(policy), histories[o], operation=o) for o in (CONVERT, REWRITE)}
    parts = measure_files(table, policy.rewrite_data_files).partitions
    parts = {key: replace(part, oldest_equality_delete_ms=oldest_ms) for key, part in parts.items()}
    return rewrites_first(decisions, histories, policy, parts)


def test_small_files_beside_old_deletes_are_rewritten_first() -> None:
    assert first(FILES)


@pytest.mark.parametrize(
    "files",
    [
        [healthy("a"), equality("e")],
        [*small(4), healthy("a"), equality("e")],
        small(6),
        [*small(6), healthy("b", partition="p=b"), equality("e", partition="p=b")],
    ],
    ids=["no small file", "too few small files", "no delete", "another partition"],
)
def test_partition_without_both_needs_is_converted_first(files: list[LiveFile]) -> None:
    assert not first(files)


def test_one_partition_with_both_needs_is_enough() -> None:
    assert first([healthy("b", partition="p=b"), equality("f", partition="p=b"), *FILES])


@pytest.mark.parametrize(
    "policy",
    [
        cleaning(rewrite={"strategy": RewriteStrategy.NATIVE}),
        cleaning(rewrite={"strategy": RewriteStrategy.AUTO}),
        cleaning(rewrite={"enabled": False}),
        cleaning(route=Route.CONVERT),
        cleaning(route=Route.REWRITE),
        replace(cleaning(), paused=True),
    ],
    ids=["native", "auto", "rewrites off", "convert", "rewrite", "paused"],
)
def test_policy_keeps_the_order_of_operations(policy: Policy) -> None:
    assert not first(FILES, policy)


@pytest.mark.parametrize(
    ("converted_ms", "rewritten_ms", "rewrites"),
    [(None, None, True), (5, None, True), (None, 5, False), (5, 6, False), (6, 5, True), (5, 5, True)],
)
def test_conversion_has_its_turn_after_a_rewrite(
    converted_ms: int | None, rewritten_ms: int | None, rewrites: bool
) -> None:
    assert first(FILES, converted_ms=converted_ms, rewritten_ms=rewritten_ms) is rewrites


@pytest.mark.parametrize(
    ("oldest_ms", "rewrites"),
    [
        (NOW_MS - 60_000, True),
        (NOW_MS - 60_001, True),
        (NOW_MS - 63_000, False),
        (NOW_MS - 64_000, False),
        (None, False),
    ],
)
def test_rewrite_before_deletes_were_due_takes_no_turn(oldest_ms: int | None, rewrites: bool) -> None:
    """Deletes are due after a minute. The last rewrite was three seconds ago, and there was no conversion."""
    policy = cleaning(rewrite={"equality_delete_max_age_seconds": 60})
    assert first(FILES, policy, rewritten_ms=NOW_MS - 3_000, oldest_ms=oldest_ms) is rewrites


def test_one_operation_alone_has_no_order() -> None:
    policy, table = cleaning(), table_of(FILES)
    for operation in (CONVERT, REWRITE):
        decision = decide(table, policy, operation=operation)
        assert not rewrites_first({operation: decision}, {operation: TableHistory()}, policy, {})
