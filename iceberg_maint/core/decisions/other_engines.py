"""Other engines: tools that rewrite a table's files as well, and readers that a conversion would take away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.other_writers import ForeignCommit
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.policy.data import ForeignMaintainersPolicy, ForeignMode, Mode, Policy, Route
from iceberg_maint.core.policy.reading_engines import UNREAD, Feature, Reader


@dataclass(frozen=True, slots=True)
class ActiveMaintainer:
    """A foreign maintainer that counts as active. `commit` is its newest commit; it counts until
    `until_ms`."""

    commit: ForeignCommit
    until_ms: int

    def evidence(self) -> dict[str, str]:
        """The evidence of a decision, as texts by name."""
        return {
            "foreign_maintainer": self.commit.maintainer,
            "foreign_snapshot": str(self.commit.snapshot_id),
            "foreign_at_ms": str(self.commit.timestamp_ms),
            "foreign_until_ms": str(self.until_ms),
        }


def active_maintainer(
    commits: Sequence[ForeignCommit], policy: ForeignMaintainersPolicy, now_ms: int
) -> ActiveMaintainer | None:
    """Returns the foreign maintainer that is active by the policy, None if there is none. A single
    compaction by hand does not stop maintenance permanently."""
    if policy.mode is ForeignMode.IGNORE or not commits:
        return None
    newest = max(commits, key=lambda commit: commit.timestamp_ms)
    until_ms = newest.timestamp_ms + policy.within_seconds * 1000
    return ActiveMaintainer(newest, until_ms) if now_ms < until_ms else None


def foreign_stop(
    operation: Operation, commits: Sequence[ForeignCommit], policy: Policy, now_ms: int
) -> tuple[Verdict, Reason, dict[str, str]] | None:
    """Returns the stop of a due operation beside a foreign maintainer, None if it may run.

    Mode `refuse` refuses all work on data, because it replaces files that the other tool may be
    processing. Mode `coexist` allows the rewrite of data files and leaves position deletes to the other
    tool. A policy in mode `advise` stops nothing.
    """
    other = active_maintainer(commits, policy.foreign_maintainers, now_ms)
    if other is None or operation not in DATA_OPERATIONS or policy.mode is Mode.ADVISE:
        return None
    if policy.foreign_maintainers.mode is ForeignMode.REFUSE:
        return Verdict.REFUSE, Reason.FOREIGN_MAINTAINER, other.evidence()
    if operation is Operation.REWRITE_POSITION_DELETE_FILES:
        return Verdict.SKIP, Reason.FOREIGN_MAINTAINER, other.evidence()
    return None


def coexistence_policy(policy: Policy, commits: Sequence[ForeignCommit], now_ms: int) -> Policy:
    """Returns the policy for mode `coexist` while a foreign maintainer is active. Only partitions that
    are cold under both settings are due, and equality deletes are applied by rewriting data files. Two
    maintainers that both convert equality deletes would treat each other's deletes as live."""
    coexistence = policy.foreign_maintainers
    if coexistence.mode is not ForeignMode.COEXIST or active_maintainer(commits, coexistence, now_ms) is None:
        return policy
    cold = max(policy.windows.cold_after_seconds or 0, coexistence.cold_after_seconds)
    return replace(
        policy,
        windows=replace(policy.windows, cold_after_seconds=cold),
        equality_deletes=replace(policy.equality_deletes, route=Route.REWRITE),
    )


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
