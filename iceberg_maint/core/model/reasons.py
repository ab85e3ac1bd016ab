"""The closed set of reasons of decisions and outcomes, and the pay-back of the work on a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from iceberg_maint.core.model.ids import Operation, PartitionKey


class Verdict(StrEnum):
    """The decision about one operation on a table or partition."""

    RUN = "RUN"
    SKIP = "SKIP"
    DEFER = "DEFER"
    REFUSE = "REFUSE"


class Reason(StrEnum):
    """Reason of a decision or an outcome. Each value is documented in `docs/reference/reasons.md`."""

    SMALL_FILES = "small_files"
    TOO_MANY_FILES = "too_many_files"
    DELETE_RATIO = "delete_ratio"
    DELETE_FILES = "delete_files"
    LAYOUT = "layout"
    FORCED = "forced"
    HEALTHY = "healthy"
    NO_GAIN = "no_gain"
    FILE_TOO_LARGE = "file_too_large"
    DISABLED = "disabled"
    ADVISE = "advise"
    PAUSED = "paused"
    BLACKOUT = "blackout"
    BACK_OFF = "back_off"
    QUARANTINED = "quarantined"
    RECENTLY_CHANGED = "recently_changed"
    RUN_BUDGET = "run_budget"
    HOUR_BUDGET = "hour_budget"
    FLEET_BUDGET = "fleet_budget"
    TIME_BUDGET = "time_budget"
    YIELDED = "yielded"
    LEASE_HELD = "lease_held"
    EQUALITY_DELETES = "equality_deletes"
    POSITION_DELETES = "position_deletes"
    FORMAT_VERSION = "format_version"
    DROPPED_SOURCE = "dropped_source"
    STALE = "stale"
    CONFLICT = "conflict"
    GATE_REFUSED = "gate_refused"
    PROOF_MISMATCH = "proof_mismatch"
    ERROR = "error"
    UNKNOWN_COMMIT = "unknown_commit"
    TERMINATED = "terminated"
    CRASHED = "crashed"
    NO_EFFECT = "no_effect"
    OTHER_OPERATION = "other_operation"
    UNSUPPORTED_KEY = "unsupported_key"
    MEMORY = "memory"
    FOREIGN_MAINTAINER = "foreign_maintainer"
    MANIFESTS = "manifests"
    SNAPSHOTS = "snapshots"
    ORPHAN_FILES = "orphan_files"
    APPROVAL_REQUIRED = "approval_required"
    GC_DISABLED = "gc_disabled"
    CLOCK_SKEW = "clock_skew"
    REFUSED = "refused"
    REFS_LOST = "refs_lost"
    PENDING_PUBLISH = "pending_publish"
    UNSUPPORTED_TYPE = "unsupported_type"
    WRITER_PROPERTY = "writer_property"
    ENVIRONMENT = "environment"
    NOT_ATTESTED = "not_attested"


LOST_RACES = frozenset({Reason.STALE, Reason.CONFLICT})
"""Reasons of work that lost to commits of other writers. It is no failure: nothing is wrong, and the work is tried again."""
OF_MACHINE = frozenset({Reason.ENVIRONMENT, Reason.CLOCK_SKEW})
"""Reasons that say nothing about the files of a table: no failure of a partition is counted for them."""
FOR_A_PERSON = frozenset({Reason.REFS_LOST, Reason.NOT_ATTESTED})
"""Reasons of a commit whose effect only a person can judge: its partitions are in quarantine at once."""
CUT_SHORT = frozenset({Reason.TERMINATED, Reason.CRASHED, Reason.LEASE_HELD})
"""Reasons of an operation that ended before its work did. Its message says why, whatever its batches did."""
SENTENCES: dict[Reason, str] = {
    Reason.SMALL_FILES: "enough small files to gain from a rewrite",
    Reason.TOO_MANY_FILES: "more files than allowed at this average size",
    Reason.DELETE_RATIO: "position deletes delete too large a share of the rows",
    Reason.DELETE_FILES: "more delete files than allowed",
    Reason.LAYOUT: "too many files overlap in the sort columns; readers cannot skip them",
    Reason.FORCED: "requested by a person, healthy or not",
    Reason.HEALTHY: "every metric is within its threshold, or there are no live files",
    Reason.NO_GAIN: "a rewrite would leave as many files and deletes as before",
    Reason.FILE_TOO_LARGE: "one file, or the files that a conversion must take together, exceed the limits of a "
    "batch; raise windows.max_bytes_per_batch, max_files_per_batch or max_partitions_per_batch",
    Reason.DISABLED: "the policy turns this operation off",
    Reason.ADVISE: "the policy's mode is advise: work is planned and reported, not executed",
    Reason.PAUSED: "paused by policy or by an operator",
    Reason.BLACKOUT: "within the policy's blackout hours",
    Reason.BACK_OFF: "waits after an attempt that failed, crashed, gained nothing or lost to other writers",
    Reason.QUARANTINED: "not maintained after repeated failures until a person releases it",
    Reason.RECENTLY_CHANGED: "changed too recently; waits until windows.cold_after_seconds have passed",
    Reason.RUN_BUDGET: "left for a later run: this run's budget, or its --max-batches, is used up",
    Reason.HOUR_BUDGET: "left for a later run: this hour's budget is used up",
    Reason.FLEET_BUDGET: "waits for the budget of the fleet: other work gains more for its cost, or the budget is used up",
    Reason.TIME_BUDGET: "left for a later run: this run's time is used up",
    Reason.YIELDED: "left for a later run: a load or a reader of the table began",
    Reason.LEASE_HELD: "another run works on the table",
    Reason.EQUALITY_DELETES: "equality deletes are older than allowed; every reader applies them in every read",
    Reason.POSITION_DELETES: "more position delete files than needed, or some that delete no live row",
    Reason.FORMAT_VERSION: "the table's format version is not supported",
    Reason.DROPPED_SOURCE: "the source column of an older partition spec with live files was dropped; a commit that "
    "copies their manifests loses their partitions, and deletes no longer apply to them",
    Reason.STALE: "the table changed after the batch was planned",
    Reason.CONFLICT: "concurrent commits won every try",
    Reason.GATE_REFUSED: "the commit gate refused the commit: it would break an invariant",
    Reason.PROOF_MISMATCH: "the rows written are not the rows read; nothing was committed",
    Reason.ERROR: "an error; the outcome's message names it",
    Reason.UNKNOWN_COMMIT: "a commit is neither confirmed nor refuted yet",
    Reason.TERMINATED: "a person or the system stopped the run in order; the next run continues",
    Reason.CRASHED: "the process of the run ended, or stood still until its lease ended, without a report; the next run "
    "continues",
    Reason.NO_EFFECT: "committed, but the table's health did not improve",
    Reason.OTHER_OPERATION: "the other operation on data does this work at less cost",
    Reason.UNSUPPORTED_KEY: "equality deletes on a dropped, floating-point or repeated column; they "
    "cannot be applied safely",
    Reason.MEMORY: "the work needs more memory than declared; the message names the setting",
    Reason.FOREIGN_MAINTAINER: "another maintainer rewrites the table's files; see foreign_maintainers",
    Reason.MANIFESTS: "the manifests are too many, too small or too scattered for quick planning",
    Reason.SNAPSHOTS: "snapshots or refs are past their retention",
    Reason.ORPHAN_FILES: "the last search for orphan files is longer ago than allowed",
    Reason.APPROVAL_REQUIRED: "the scan found so many orphan files that a person must approve their removal; see orphans trash "
    "--approve",
    Reason.GC_DISABLED: "the table forbids deletion of its files (gc.enabled=false)",
    Reason.CLOCK_SKEW: "clocks are more than five minutes apart, or one moved backwards; nothing is removed",
    Reason.REFUSED: "refused with a code; nothing was changed",
    Reason.PENDING_PUBLISH: "waits for a branch or a staged snapshot to be published; a commit to main would make that "
    "impossible; see write_audit_publish",
    Reason.UNSUPPORTED_TYPE: "a column has a type whose values no operation on data can read",
    Reason.WRITER_PROPERTY: "a property of the table that no Parquet writer takes",
    Reason.ENVIRONMENT: "the machine or a service failed: credentials, a connection, a class, a file system or a process; the "
    "message names the cause",
    Reason.NOT_ATTESTED: "an engine elsewhere committed, and that no row changed is refuted or cannot be proved",
    Reason.REFS_LOST: "the expiry removed branches or tags that were set at the same time: the catalog does not "
    "compare the base of a commit",
}


class Check(StrEnum):
    """The asset checks on thresholds. The last three concern the table as a whole, the others its
    partitions."""

    SMALL_FILES = "small_files"
    DELETE_FILES = "delete_files"
    LAYOUT = "layout"
    MANIFESTS = "manifests"
    SNAPSHOTS = "snapshots"
    ORPHAN_FILES = "orphan_files"


CRITERIA = {
    Check.SMALL_FILES: "There are too few small files to gain from a rewrite.",
    Check.DELETE_FILES: "There are few enough deletes for fast reads.",
    Check.LAYOUT: "Files are sorted well enough for readers to skip most of them.",
    Check.MANIFESTS: "Manifests are few and well grouped enough for quick planning.",
    Check.SNAPSHOTS: "No snapshot is kept longer than its retention and what retains it require.",
    Check.ORPHAN_FILES: "Storage was searched for orphan files recently.",
}
"""The criterion of each check."""
CHECKS_OF_PARTITIONS = (Check.SMALL_FILES, Check.DELETE_FILES, Check.LAYOUT)
"""The checks of partitions."""
CHECKS_OF_TABLES = (Check.MANIFESTS, Check.SNAPSHOTS, Check.ORPHAN_FILES)
"""The checks of the table as a whole."""


CHECK_OF = {
    Operation.REWRITE_MANIFESTS: Check.MANIFESTS,
    Operation.EXPIRE_SNAPSHOTS: Check.SNAPSHOTS,
    Operation.REMOVE_ORPHAN_FILES: Check.ORPHAN_FILES,
}
"""The check that requests each operation on the table as a whole."""


class Severity(StrEnum):
    """The severity of a finding. ERROR makes a partition due; WARN does not."""

    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """A metric beyond its threshold. `threshold_key` is the policy key of the threshold."""

    check: Check
    severity: Severity
    reason: Reason
    metric: str
    value: float
    threshold: float
    threshold_key: str


@dataclass(frozen=True, slots=True)
class PartitionDecision:
    """The decision about one partition, with its reason.

    `score` ≥ 0 orders the due partitions, worst highest. `until_ms` is the time when a DEFER ends by
    itself. `operation` is the operation decided on.
    """

    partition: PartitionKey
    verdict: Verdict
    reason: Reason
    findings: tuple[Finding, ...] = ()
    score: float = 0.0
    candidate_bytes: int = 0
    until_ms: int | None = None
    operation: Operation = Operation.REWRITE_DATA_FILES


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision per table and operation; `partitions` holds those of the partitions, worst first.

    The plan may hold at most `budget_bytes` of input in `budget_partitions` partitions; `budget_reason`
    names the cap that set the bytes. `beside` holds the decisions of the other operation on data,
    because each plan depends on both.
    """

    table: str
    operation: Operation
    verdict: Verdict
    reason: Reason
    snapshot_id: int | None
    partitions: tuple[PartitionDecision, ...] = ()
    evidence: Mapping[str, str] = field(default_factory=dict)
    until_ms: int | None = None
    budget_bytes: int | None = None
    budget_reason: Reason = Reason.RUN_BUDGET
    budget_partitions: int | None = None
    beside: Mapping[PartitionKey, PartitionDecision] = field(default_factory=dict)

    def due(self) -> tuple[PartitionDecision, ...]:
        """The partitions to run, in order."""
        return tuple(p for p in self.partitions if p.verdict is Verdict.RUN)

    def backlog(self) -> tuple[PartitionDecision, ...]:
        """The partitions beyond a threshold: those to run, and those that wait or are refused, whatever the
        cause."""
        return tuple(p for p in self.partitions if p.verdict is not Verdict.SKIP)
