"""Readers of a table: which of them lose it by what a conversion or a merge of deletes would bring into it.

The reasons: docs/design/decisions/deletes-route.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.policy.data import Policy, Route
from iceberg_maint.core.policy.readers import UNREAD, Feature, Reader

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


def marks_of(measured: Measured, properties: Mapping[str, str]) -> Feature:
    """Returns how a conversion or a merge marks deleted rows (Iceberg `write.delete.format.default`)."""
    if measured.format_version >= 3:
        return Feature.DELETION_VECTORS
    kind = properties.get("write.delete.format.default", properties.get("write.format.default", "parquet"))
    marks = f"position deletes {kind.lower()}"
    return Feature(marks) if marks in set(Feature) else Feature.POSITION_DELETES_PARQUET


def has_marks(measured: Measured) -> bool:
    """Returns whether the table has deletion vectors, in format v2 position deletes."""
    if measured.format_version >= 3:
        return any(p.deletion_vectors for p in measured.partitions.values())
    return any(p.position_delete_files for p in measured.partitions.values())


def losing_readers(
    measured: Measured, policy: Policy, properties: Mapping[str, str] = NO_PROPERTIES
) -> tuple[Reader, ...]:
    """Returns the readers for whose sake deleted rows are not marked: those that the policy names and that do not read the
    marks. If it names none, those that would lose a table that has no marks yet, unless the route of equality
    deletes is `convert`."""
    unread = UNREAD[marks_of(measured, properties)]
    if policy.readers:
        return tuple(sorted(unread.intersection(policy.readers)))
    allowed = policy.equality_deletes.route is Route.CONVERT or has_marks(measured)
    return () if allowed else tuple(sorted(unread))


def readers_policy(
    policy: Policy, measured: Measured, properties: Mapping[str, str] = NO_PROPERTIES
) -> Policy:
    """Returns the policy that marks no deleted rows if a reader would lose the table. Equality deletes are applied by
    rewriting the data files. Position delete files stay: writers of format v3 add none, and a rewrite for other reasons
    applies them."""
    if not losing_readers(measured, policy, properties):
        return policy
    return replace(
        policy,
        equality_deletes=replace(policy.equality_deletes, route=Route.REWRITE),
        rewrite_position_delete_files=replace(policy.rewrite_position_delete_files, min_input_files=None),
    )
