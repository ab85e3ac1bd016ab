"""Rules: what stops an operation on a table, in the order in which it is asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from iceberg_maint.core.decisions.applicability import (
    COLUMNAR_TYPES,
    SPARK_4,
    RowTypes,
    active_maintainer,
    column_list,
    partition_findings,
    row_readers,
    unsupported_columns,
)
from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.waits import automation_waits, publish_wait
from iceberg_maint.core.decisions.windows import in_blackout
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    DATA_OPERATIONS,
    READING,
    REMOVING_OPERATIONS,
    Operation,
    PartitionKey,
)
from iceberg_maint.core.model.reasons import Finding, Reason, Verdict
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.core.policy.runs import ForeignMode

SUPPORTED_FORMAT_VERSIONS = (1, 2, 3)
_COMMITTING = frozenset((*DATA_OPERATIONS, Operation.REWRITE_MANIFESTS))
"""Operations that commit a new snapshot to main. They copy entries from manifest to manifest."""


@dataclass(frozen=True)
class Situation:
    """What the decisions on one table follow from, the same for all operations. `histories` are those of the
    operations; an operation without one has none. `readers` are the ways in which Spark reads the table's rows.

    `requested` limits the decisions to these partitions and waives their back-off: a person or the automation chose
    them. `force` also makes healthy and quarantined partitions due, and for a conversion those with younger equality
    deletes. `skew` says how the clocks disagree.
    """

    measured: Measured
    policy: Policy
    histories: Mapping[Operation, TableHistory]
    now_ms: int
    requested: frozenset[PartitionKey] | None = None
    force: bool = False
    readers: RowTypes = SPARK_4
    skew: str | None = None

    def history(self, operation: Operation) -> TableHistory:
        """Returns the operation's history; an empty one if there is none."""
        return self.histories.get(operation) or TableHistory()

    @cached_property
    def findings(self) -> Mapping[PartitionKey, tuple[Finding, ...]]:
        """The findings of each partition, or of the requested ones. They are the same for each operation."""
        return {
            key: partition_findings(self.measured, key, self.policy, self.now_ms)
            for key in sorted(self.measured.partitions)
            if self.requested is None or key in self.requested
        }


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an operation does not run, and the time until which, None: not known."""

    verdict: Verdict
    reason: Reason
    evidence: Mapping[str, str]
    until_ms: int | None = None


Rule = Callable[[Operation, Situation], Stop | None]


def unknown_format(_operation: Operation, situation: Situation) -> Stop | None:
    version = situation.measured.format_version
    if version in SUPPORTED_FORMAT_VERSIONS:
        return None
    return Stop(Verdict.REFUSE, Reason.FORMAT_VERSION, {"format_version": str(version)})


def empty_table(_operation: Operation, situation: Situation) -> Stop | None:
    return Stop(Verdict.SKIP, Reason.HEALTHY, {}) if situation.measured.snapshot_id is None else None


def disabled(operation: Operation, situation: Situation) -> Stop | None:
    policy = situation.policy
    enabled = {
        Operation.REWRITE_DATA_FILES: policy.rewrite_data_files.enabled,
        Operation.REWRITE_POSITION_DELETE_FILES: policy.rewrite_position_delete_files.enabled,
        Operation.REWRITE_MANIFESTS: policy.rewrite_manifests.enabled,
        Operation.EXPIRE_SNAPSHOTS: policy.expire_snapshots.enabled,
        Operation.REMOVE_ORPHAN_FILES: policy.remove_orphan_files.enabled,
    }
    if enabled.get(operation, True):
        return None
    return Stop(Verdict.SKIP, Reason.DISABLED, {"key": f"{operation.value}.enabled"})


def dropped_source(operation: Operation, situation: Situation) -> Stop | None:
    lossy = situation.measured.specs_losing_values
    if operation not in _COMMITTING or not lossy:
        return None
    return Stop(Verdict.REFUSE, Reason.DROPPED_SOURCE, {"specs": ", ".join(map(str, lossy))})


def time_to_rest(operation: Operation, situation: Situation) -> Stop | None:
    history = situation.history(operation)
    note = history.paused_reason if history.paused else None
    rest = reason_to_rest(situation.policy, note, situation.now_ms)
    if rest is None:
        return None
    reason, evidence = rest
    return Stop(Verdict.DEFER, reason, evidence | _pause_evidence(evidence, history))


def lease_of_another(operation: Operation, situation: Situation) -> Stop | None:
    owner = situation.history(operation).lease_owner
    return None if owner is None else Stop(Verdict.DEFER, Reason.LEASE_HELD, {"owner": owner})


def unreadable_metadata(operation: Operation, situation: Situation) -> Stop | None:
    reading = unreadable_until(situation.history(operation), situation.now_ms)
    if reading is None:
        return None
    return Stop(Verdict.DEFER, Reason.BACK_OFF, {"error": reading.reason}, reading.not_before_ms)


def disagreeing_clocks(operation: Operation, situation: Situation) -> Stop | None:
    if situation.skew is None or operation not in REMOVING_OPERATIONS:
        return None
    return Stop(Verdict.REFUSE, Reason.CLOCK_SKEW, {"clocks": situation.skew})


def unreadable_rows(operation: Operation, situation: Situation) -> Stop | None:
    """Stops work on rows that nothing reads. Its evidence says if `columnar`, which the operation or the policy does not
    use, would read them."""
    if operation not in DATA_OPERATIONS:
        return None
    types, strategy = situation.measured.uncommon_types, situation.policy.rewrite_data_files.strategy
    readers = row_readers(operation, strategy, situation.readers)
    columns = unsupported_columns(types, readers)
    if not columns:
        return None
    evidence = {"columns": column_list(columns)}
    if not unsupported_columns(types, (*readers, COLUMNAR_TYPES)):
        evidence["read_by"] = "columnar"
    return Stop(Verdict.REFUSE, Reason.UNSUPPORTED_TYPE, evidence)


def wrong_property(operation: Operation, situation: Situation) -> Stop | None:
    """Stops a rewrite of data files by a property of the table that no Parquet writer takes."""
    wrong = situation.measured.wrong_property
    if operation is not Operation.REWRITE_DATA_FILES or not wrong:
        return None
    return Stop(Verdict.REFUSE, Reason.WRITER_PROPERTY, {"property": wrong})


def foreign_maintainer(operation: Operation, situation: Situation) -> Stop | None:
    """Stops work on data beside a foreign maintainer.

    Mode `refuse` refuses all of it, because it replaces files that the other tool may be processing. Mode `coexist`
    allows the rewrite of data files and leaves position deletes to the other tool. A policy in mode `advise` stops
    nothing.
    """
    policy = situation.policy
    other = active_maintainer(situation.measured.foreign, policy.foreign_maintainers, situation.now_ms)
    if other is None or operation not in DATA_OPERATIONS or policy.mode is Mode.ADVISE:
        return None
    if policy.foreign_maintainers.mode is ForeignMode.REFUSE:
        return Stop(Verdict.REFUSE, Reason.FOREIGN_MAINTAINER, other.evidence())
    if operation is Operation.REWRITE_POSITION_DELETE_FILES:
        return Stop(Verdict.SKIP, Reason.FOREIGN_MAINTAINER, other.evidence())
    return None


def pending_publish(operation: Operation, situation: Situation) -> Stop | None:
    """Stops commits to main while a branch or a staged snapshot waits to be published. A policy in mode `advise` stops
    nothing."""
    if operation not in _COMMITTING or situation.policy.mode is Mode.ADVISE:
        return None
    wait = publish_wait(situation.measured.pending_publishes, situation.policy, situation.now_ms)
    if wait is None:
        return None
    return Stop(Verdict.DEFER, Reason.PENDING_PUBLISH, wait.evidence(), wait.until_ms)


def advice_only(_operation: Operation, situation: Situation) -> Stop | None:
    """Stops the execution of due work. The work is planned and shown."""
    return Stop(Verdict.SKIP, Reason.ADVISE, {}) if situation.policy.mode is Mode.ADVISE else None


TABLE_STOPS: tuple[Rule, ...] = (
    unknown_format,
    empty_table,
    disabled,
    dropped_source,
    time_to_rest,
    lease_of_another,
    unreadable_metadata,
    disagreeing_clocks,
)
"""The rules that stop an operation whether or not a partition is due, in the order in which they are asked."""
PARTITION_STOPS: tuple[tuple[Rule, frozenset[Verdict]], ...] = (
    # What such a column or property had put on hold before is refused for it as well.
    (unreadable_rows, frozenset((Verdict.RUN, Verdict.DEFER))),
    (wrong_property, frozenset((Verdict.RUN, Verdict.DEFER))),
    (foreign_maintainer, frozenset((Verdict.RUN,))),
    (pending_publish, frozenset((Verdict.RUN,))),
)
"""The rules that are asked after those if a partition has one of these verdicts, which the stop replaces."""


def table_stop(operation: Operation, situation: Situation) -> Stop | None:
    """Returns the stop of an operation that holds whether or not a partition is due, None if there is none."""
    return _first(TABLE_STOPS, operation, situation)


def halt(operation: Operation, situation: Situation) -> Stop | None:
    """Returns what keeps a run from the table, so that not even attempts of earlier runs are settled; None if nothing
    does. A table that became empty is no such stop."""
    return _first((rule for rule in TABLE_STOPS if rule is not empty_table), operation, situation)


def resume_stop(operation: Operation, situation: Situation) -> Stop | None:
    """Returns what stops open batches of earlier runs, None if they may be resumed: each rule that stops new work,
    whether or not a partition is due."""
    rules = (*(rule for rule, _ in PARTITION_STOPS), advice_only)
    return halt(operation, situation) or _first(rules, operation, situation)


def _first(rules: Iterable[Rule], operation: Operation, situation: Situation) -> Stop | None:
    stops = (rule(operation, situation) for rule in rules)
    return next((stop for stop in stops if stop is not None), None)


def first_stop(
    operation: Operation, situation: Situation, verdicts: Collection[Verdict]
) -> tuple[Stop | None, frozenset[Verdict]]:
    """Returns the first stop, and the verdicts of partitions that it replaces."""
    if stop := table_stop(operation, situation):
        return stop, frozenset((Verdict.RUN,))
    for rule, replaced in PARTITION_STOPS:
        if not replaced.isdisjoint(verdicts) and (stop := rule(operation, situation)):
            return stop, replaced
    return None, frozenset()


def reason_to_rest(
    policy: Policy, pause_note: str | None, now_ms: int
) -> tuple[Reason, dict[str, str]] | None:
    """Returns why the table must not be maintained now, with the evidence: by policy, or by an operator's
    pause (`pause_note`, None if there is none). Every batch of a run is checked against it, not only the
    first."""
    if policy.paused:
        return Reason.PAUSED, {"by": "policy"}
    if pause_note is not None:
        return Reason.PAUSED, {"by": "operator", "note": pause_note}
    # Without hours no minute is asked for: a remembered decision lasts until a minute that was asked for ends.
    if policy.blackout_hours and (window := in_blackout(policy.blackout_hours, now_ms // 60_000 % 1440)):
        return Reason.BLACKOUT, {"window": window}
    return None


def _pause_evidence(evidence: Mapping[str, str], history: TableHistory) -> dict[str, str]:
    """Who paused since when, and what is paused: the table, the whole fleet, or both."""
    if evidence.get("by") != "operator" or not history.pauses:
        return {}
    pause = history.pauses[0]
    scopes = ["fleet" if p.fleet else "table" for p in history.pauses]
    who = {"who": pause.by} if pause.by else {}
    return {**who, "since_ms": str(pause.since_ms), "scope": " and ".join(scopes)}


def unreadable_until(history: TableHistory, now_ms: int) -> PartitionHistory | None:
    """Returns how the table's metadata failed to be read, while that waits to be tried again. A new measurement ends it."""
    reading = next((f.history for f in history.faults if f.operation == READING), None)
    return reading if reading is not None and automation_waits(reading, now_ms) else None
