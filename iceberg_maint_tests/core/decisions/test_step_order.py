"""When a run rewrites small files before it converts equality deletes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.step_order import rewrites_first
from iceberg_maint.core.model.table_state import LiveFile
from iceberg_maint.core.policy.data import Policy, RewriteStrategy, Route
from iceberg_maint_tests.support.core.equality_deletes import CONVERT, REWRITE, cleaning, equality, healthy
from iceberg_maint_tests.support.core.values import decide, small, table_of

FILES = [*small(6), healthy("a"), equality("e")]


def first(
    files: list[LiveFile],
    policy: Policy | None = None,
    *,
    converted_ms: int | None = None,
    rewritten_ms: int | None = None,
) -> bool:
    table, policy = table_of(files), policy or cleaning()
    histories = {
        CONVERT: TableHistory(last_done_ms=converted_ms),
        REWRITE: TableHistory(last_done_ms=rewritten_ms),
    }
    decisions = {o: decide(table, policy, histories[o], operation=o) for o in (CONVERT, REWRITE)}
    return rewrites_first(decisions, histories, policy)


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
        cleaning(streaming_consumers=("reader",)),
        replace(cleaning(), paused=True),
    ],
    ids=["native", "auto", "rewrites off", "convert", "rewrite", "stream", "paused"],
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


def test_one_operation_alone_has_no_order() -> None:
    policy, table = cleaning(), table_of(FILES)
    for operation in (CONVERT, REWRITE):
        decision = decide(table, policy, operation=operation)
        assert not rewrites_first({operation: decision}, {operation: TableHistory()}, policy)
