"""Tables under equality deletes and both operations' plans of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Policy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.core.values import (
    BY_P,
    data,
    decide,
    delete,
    plan,
    policy_of,
    rewrite_policy,
    table_of,
)
from iceberg_maint_tests.support.fakes.catalog import FakeTable

EQ = FileKind.EQUALITY_DELETES
CONVERT, REWRITE = DATA_OPERATIONS[:2]
EVOLVED = (BY_P, PartitionSpec(1, ()))


def equality(path: str, seq: int = 5, **keys: object) -> LiveFile:
    return delete(path, EQ, seq=seq, **keys)  # type: ignore[arg-type]


def everywhere(path: str, seq: int = 5, **keys: object) -> LiveFile:
    return equality(path, seq, partition="__all__", spec_id=1, **keys)


def healthy(path: str, *, partition: str = "p=a", **keys: object) -> LiveFile:
    return data(path, 100, partition=partition, **keys)  # type: ignore[arg-type]


def cleaning(
    windows: WindowsPolicy | None = None, rewrite: Mapping[str, object] | None = None, **equality_keys: object
) -> Policy:
    """Every equality delete is old enough."""
    return policy_of(
        rewrite_policy(**{"equality_delete_max_age_seconds": 0, **(rewrite or {})}),
        windows,
        equality_deletes=EqualityDeletesPolicy(**equality_keys),  # type: ignore[arg-type]
    )


def plans(
    files: Iterable[LiveFile] | FakeTable,
    policy: Policy | None = None,
    *,
    requested: frozenset[str] | None = None,
    force: bool = False,
) -> tuple[Plan, Plan]:
    """Both operations' plans of one state."""
    table = files if isinstance(files, FakeTable) else table_of(files)
    policy = policy or cleaning()
    decisions = [
        decide(table, policy, operation=o, requested=requested, force=force) for o in (CONVERT, REWRITE)
    ]
    converted, rewritten = (plan(table, policy, d) for d in decisions)
    return converted, rewritten


def plans_in_order(files: Iterable[LiveFile] | FakeTable, policy: Policy | None = None) -> tuple[Plan, Plan]:
    """The plans of a rewrite before a conversion, and of the conversion after it."""
    table = files if isinstance(files, FakeTable) else table_of(files)
    policy = policy or cleaning()
    decisions = {o: decide(table, policy, operation=o) for o in (CONVERT, REWRITE)}
    rewritten = plan(table, policy, decisions[REWRITE], before_conversion=True)
    paths = frozenset(path for b in rewritten.batches for path in b.paths())
    return rewritten, plan(table, policy, decisions[CONVERT], rewritten=paths)


def inputs(found: Plan) -> list[list[str]]:
    return [sorted(b.paths()) for b in found.batches]


def dropped(batch: Batch) -> list[str]:
    return [d.path for d in batch.equality_deletes if d.drop]


def kept(batch: Batch) -> list[str]:
    return [d.path for d in batch.equality_deletes if not d.drop]


def partitions(count: int) -> list[LiveFile]:
    """Partitions of one healthy file under one delete: 80 bytes of keys and 5 of the delete."""
    keys = [f"p={i}" for i in range(count)]
    return [f for k in keys for f in (healthy(k, partition=k), equality(f"{k}/e", partition=k))]


def global_table(*more: LiveFile) -> FakeTable:
    """Three partitions under a delete of an unpartitioned spec, one of them by it alone."""
    files = [
        healthy("a"),
        healthy("b", partition="p=b"),
        healthy("all", partition="__all__", spec_id=1),
        healthy("young", partition="p=c", seq=9),
        equality("e", 7),
        everywhere("g5", 5),
        everywhere("g3", 3),
    ]
    return table_of([*files, *more], specs=EVOLVED)
