"""Waits for publishes: work that commits to main waits while a branch or a staged snapshot may still be published.

While main's head stays, no writer commits to main, so main's health stays too. A commit of another writer also ends
the wait, because then the branch can no longer be fast-forwarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.pending_publishes import PendingPublish
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.policy.data import Mode, Policy, PublishMode

COMMITTING_OPERATIONS = frozenset((*DATA_OPERATIONS, Operation.REWRITE_MANIFESTS))
"""Operations that commit a new snapshot to main."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class PublishWait:
    """What is waited for, the oldest first, and the time when the last wait ends by itself, None: never."""

    pending: tuple[PendingPublish, ...]
    until_ms: int | None

    @property
    def names(self) -> str:
        """The branches and staged snapshots by name."""
        named = [f"{p.kind.value} {p.name}" for p in self.pending[:_NAMED]]
        others = len(self.pending) - len(named)
        return ", ".join(named) + (f" and {others} more" if others else "")

    def evidence(self) -> dict[str, str]:
        """The evidence of a decision, as texts by name."""
        until = {} if self.until_ms is None else {"pending_until_ms": str(self.until_ms)}
        return {"pending": self.names, "pending_since_ms": str(self.pending[0].since_ms), **until}


def publish_wait(pending: Sequence[PendingPublish], policy: Policy, now_ms: int) -> PublishWait | None:
    """Returns the wait by the policy, None if there is nothing to wait for."""
    rule = policy.write_audit_publish
    if rule.mode is PublishMode.IGNORE:
        return None
    limit_ms = None if rule.max_age_seconds is None else rule.max_age_seconds * 1000
    young = [p for p in pending if limit_ms is None or now_ms < p.since_ms + limit_ms]
    if not young:
        return None
    young.sort(key=lambda p: p.since_ms)
    return PublishWait(tuple(young), None if limit_ms is None else young[-1].since_ms + limit_ms)


def publish_stop(
    operation: Operation, pending: Sequence[PendingPublish], policy: Policy, now_ms: int
) -> tuple[Verdict, Reason, PublishWait] | None:
    """Returns the stop of a due operation, None if it may run. A policy in mode `advise` stops nothing."""
    if operation not in COMMITTING_OPERATIONS or policy.mode is Mode.ADVISE:
        return None
    wait = publish_wait(pending, policy, now_ms)
    return None if wait is None else (Verdict.DEFER, Reason.PENDING_PUBLISH, wait)
