"""Foreign maintainers: who else rewrites a table's files, as told by the marks in its history.

Two maintainers of one table undo each other's work, and each counts on deletes that the other may
turn round. Our own commits carry our token; any other REPLACE commit (spec: Snapshots, "data and
delete files were added and removed without changing table data") is somebody else's maintenance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iceberg_maint.core.model.foreign_commits import ForeignCommit
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.policy.data import ForeignMaintainersPolicy, ForeignMode, Mode, Policy, Route


@dataclass(frozen=True, slots=True)
class ActiveMaintainer:
    """A foreign maintainer that counts: `commit` is its newest, and it counts until `until_ms`."""

    commit: ForeignCommit
    until_ms: int

    def evidence(self) -> dict[str, str]:
        """What a decision tells of it."""
        return {
            "foreign_maintainer": self.commit.maintainer,
            "foreign_snapshot": str(self.commit.snapshot_id),
            "foreign_at_ms": str(self.commit.timestamp_ms),
            "foreign_until_ms": str(self.until_ms),
        }


def active_maintainer(
    commits: Sequence[ForeignCommit], policy: ForeignMaintainersPolicy, now_ms: int
) -> ActiveMaintainer | None:
    """The foreign maintainer that is still at work as the policy counts it, if any: a single
    compaction by hand stops nothing for ever."""
    if policy.mode is ForeignMode.IGNORE or not commits:
        return None
    newest = max(commits, key=lambda commit: commit.timestamp_ms)
    until_ms = newest.timestamp_ms + policy.within_seconds * 1000
    return ActiveMaintainer(newest, until_ms) if now_ms < until_ms else None


def foreign_stop(
    operation: Operation, commits: Sequence[ForeignCommit], policy: Policy, now_ms: int
) -> tuple[Verdict, Reason, dict[str, str]] | None:
    """What stops an operation for which something is due beside a foreign maintainer, if anything.

    In mode `refuse` all work on data is refused, as it replaces files the other may be at work on; in `coexist` data files may be rewritten, and
    position deletes are the other's business. A policy that only advises stops nothing.
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
    """The policy as it holds in mode `coexist` while a foreign maintainer is at work: only partitions
    that are cold for both, and equality deletes are applied by rewriting data files, since two
    maintainers that convert them take each other's deletes for live ones."""
    own = policy.foreign_maintainers
    if own.mode is not ForeignMode.COEXIST or active_maintainer(commits, own, now_ms) is None:
        return policy
    cold = max(policy.windows.cold_after_seconds or 0, own.cold_after_seconds)
    return replace(
        policy,
        windows=replace(policy.windows, cold_after_seconds=cold),
        equality_deletes=replace(policy.equality_deletes, route=Route.REWRITE),
    )
