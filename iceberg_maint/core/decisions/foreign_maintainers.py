"""Foreign maintainers: detects from snapshot summaries which other tools rewrite a table's files.

Two maintainers of one table undo each other's work. Each also relies on delete files that the other may
replace. Our own commits carry our token. Any other REPLACE commit (spec: Snapshots, "data and delete
files were added and removed without changing table data") is maintenance by another tool.
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
