"""Housekeeping: whether manifests, snapshots and orphan files of a table are due.

Each operation concerns the table as a whole, so its decision has the one unit `WHOLE_TABLE`.
"""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.decisions.decide import decision_of
from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.manifests_decision import (
    EMPTY_MANIFESTS,
    manifest_findings,
    manifests_without_live_files,
)
from iceberg_maint.core.decisions.rules import (
    Situation,
    Stop,
    advice_only,
    disabled,
    pending_publish,
    table_stop,
)
from iceberg_maint.core.decisions.snapshot_retention import Retention, described_retainers, gc_enabled
from iceberg_maint.core.decisions.waits import automation_waits, backs_off
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation
from iceberg_maint.core.model.reasons import (
    Check,
    Decision,
    Finding,
    PartitionDecision,
    Reason,
    Severity,
    Verdict,
)
from iceberg_maint.core.model.table_state import TableState, metadata_version
from iceberg_maint.core.policy.data import Policy

_METADATA_PROPERTY = "write.metadata.delete-after-commit.enabled"
_METADATA_VERSIONS = 100
"""Iceberg's default of `write.metadata.previous-versions-max`. The metadata log does not list older
versions."""


def decide_housekeeping(
    operation: Operation,
    state: TableState,
    situation: Situation,
    retention: Retention,
) -> Decision:
    """Returns the decision on one housekeeping operation. `retention` is the present result of
    `core.decisions.retention.retain`. A forced operation is due, whatever thresholds and back-off say."""
    measured, policy, now_ms = situation.measured, situation.policy, situation.now_ms
    history = situation.history(operation)
    found = housekeeping_findings(operation, state, policy, history, retention, now_ms)
    unit = _unit(operation, found, history, now_ms, force=situation.force)
    evidence = _evidence(operation, state, retention)
    stop = _stop(operation, state, situation)
    if stop is None and unit.verdict is Verdict.RUN:
        stop = pending_publish(operation, situation)
    if stop is not None:
        if unit.verdict is Verdict.RUN:
            unit = replace(unit, verdict=stop.verdict, reason=stop.reason, until_ms=stop.until_ms)
        return decision_of(
            operation, measured, stop.verdict, stop.reason, [unit], {**evidence, **stop.evidence}
        )
    verdict, reason = unit.verdict, unit.reason
    if verdict is Verdict.RUN and (advice := advice_only(operation, situation)):
        # The unit stays RUN, so that the plan shows what would be done.
        verdict, reason = advice.verdict, advice.reason
    return decision_of(operation, measured, verdict, reason, [unit], evidence)


def cannot_run_now(
    operation: Operation, measured: Measured, policy: Policy, history: TableHistory, now_ms: int
) -> bool:
    """Returns whether stored facts of the table prevent the operation now, due or not."""
    past, situation = history.of(WHOLE_TABLE), Situation(measured, policy, {operation: history}, now_ms)
    return (
        past.quarantined
        or automation_waits(past, now_ms)
        or table_stop(operation, situation) is not None
        or pending_publish(operation, situation) is not None
    )


def housekeeping_findings(
    operation: Operation,
    state: TableState,
    policy: Policy,
    history: TableHistory,
    retention: Retention,
    now_ms: int,
) -> tuple[Finding, ...]:
    """Returns the findings on the table as a whole."""
    if operation is Operation.REWRITE_MANIFESTS:
        return manifest_findings(state, policy.rewrite_manifests)
    if operation is Operation.EXPIRE_SNAPSHOTS:
        count = len(retention.expire) + len(retention.expire_refs)
        return (
            _finding(
                Check.SNAPSHOTS,
                Reason.SNAPSHOTS,
                "expirable_snapshots",
                count,
                0,
                "expire_snapshots.max_snapshot_age_seconds",
            )
            if count and _is_time(history, policy.expire_snapshots.every_seconds, now_ms)
            else ()
        )
    every_seconds = policy.remove_orphan_files.every_seconds
    if not _is_time(history, every_seconds, now_ms):
        return ()
    if history.last_done_ms is None:
        key = "remove_orphan_files.every_seconds"
        return _finding(Check.ORPHAN_FILES, Reason.ORPHAN_FILES, "orphan_scans", 0, 1, key)
    age_seconds = (now_ms - history.last_done_ms) / 1000
    return _finding(
        Check.ORPHAN_FILES,
        Reason.ORPHAN_FILES,
        "orphan_scan_age_seconds",
        age_seconds,
        every_seconds,
        "remove_orphan_files.every_seconds",
    )


def may_sweep(
    retention: Retention, expiry: TableHistory, delete_after_seconds: int, now_ms: int, *, expires: bool
) -> bool:
    """Returns whether trash past its retention may be deleted: an expiry has succeeded since the files were moved,
    or no snapshot is left to expire, or this program `expires` none. Returns False while the expiry is held
    for a person, because that person may need files of the trash. `expiry` is the history of expiries."""
    expired_ms = expiry.last_done_ms
    since = expired_ms is not None and now_ms - expired_ms < delete_after_seconds * 1000
    return (since or not retention.expire or not expires) and not expiry.of(WHOLE_TABLE).quarantined


def _is_time(history: TableHistory, every_seconds: int, now_ms: int) -> bool:
    return history.last_done_ms is None or now_ms - history.last_done_ms >= every_seconds * 1000


def _finding(
    check: Check, reason: Reason, metric: str, value: float, threshold: float, key: str
) -> tuple[Finding, ...]:
    return (Finding(check, Severity.ERROR, reason, metric, float(value), float(threshold), key),)


def _unit(
    operation: Operation, found: tuple[Finding, ...], history: TableHistory, now_ms: int, *, force: bool
) -> PartitionDecision:
    past = history.of(WHOLE_TABLE)
    unit = PartitionDecision(WHOLE_TABLE, Verdict.SKIP, Reason.HEALTHY, found, operation=operation)
    if force:
        # A forced rewrite takes all manifests, not only those that are due.
        due = found[0].reason if found and operation is not Operation.REWRITE_MANIFESTS else Reason.FORCED
        return replace(unit, verdict=Verdict.RUN, reason=due)
    if not found:
        return unit
    if past.quarantined:
        return replace(unit, verdict=Verdict.DEFER, reason=Reason.QUARANTINED)
    if backs_off(past, now_ms):
        return replace(unit, verdict=Verdict.DEFER, reason=Reason.BACK_OFF, until_ms=past.not_before_ms)
    return replace(unit, verdict=Verdict.RUN, reason=found[0].reason)


def _stop(operation: Operation, state: TableState, situation: Situation) -> Stop | None:
    if off := disabled(operation, situation):
        return off
    if operation is not Operation.REWRITE_MANIFESTS and not gc_enabled(state.properties):
        return Stop(Verdict.REFUSE, Reason.GC_DISABLED, {"gc.enabled": "false"})
    stop = table_stop(operation, situation)
    return None if stop is None else replace(stop, until_ms=None)


def _evidence(operation: Operation, state: TableState, retention: Retention) -> dict[str, str]:
    """Returns further facts for `why` and the check: what keeps snapshots from expiring since when, how many
    versions of the metadata file have accumulated, which only the table's writers delete, and how many manifests list no
    live file."""
    if operation is Operation.REWRITE_MANIFESTS:
        empty = manifests_without_live_files(state)
        return {EMPTY_MANIFESTS: f"{empty} of {len(state.manifests)}"} if empty else {}
    if operation is not Operation.EXPIRE_SNAPSHOTS:
        return {}
    retainers = described_retainers(retention)
    found = {"retained_by": "; ".join(retainers)} if retainers else {}
    versions = metadata_version(state.metadata_location) or 0
    if versions > _METADATA_VERSIONS and state.properties.get(_METADATA_PROPERTY, "").lower() != "true":
        found["metadata_files"] = f"{versions} were written; set {_METADATA_PROPERTY}=true to keep the newest"
    return found
