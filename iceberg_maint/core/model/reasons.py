"""The closed set of reasons for a decision: to run, to skip, to defer and to refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from iceberg_maint.core.model.ids import Operation


class Verdict(StrEnum):
    """The decision for a table or partition and one operation."""

    RUN = "RUN"
    SKIP = "SKIP"
    DEFER = "DEFER"
    REFUSE = "REFUSE"


class Reason(StrEnum):
    """The reason of a decision or outcome. `docs/reference/reasons.md` documents each value."""

    SMALL_FILES = "small_files"
    TOO_MANY_FILES = "too_many_files"
    DELETE_RATIO = "delete_ratio"
    DELETE_FILES = "delete_files"
    LAYOUT = "layout"
    FORCED = "forced"
    HEALTHY = "healthy"
    EMPTY = "empty"
    NO_GAIN = "no_gain"
    FILE_TOO_LARGE = "file_too_large"
    DISABLED = "disabled"
    ADVISE = "advise"
    PAUSED = "paused"
    BLACKOUT = "blackout"
    BACK_OFF = "back_off"
    QUARANTINED = "quarantined"
    HOT = "hot"
    RUN_BUDGET = "run_budget"
    HOUR_BUDGET = "hour_budget"
    BATCH_LIMIT = "batch_limit"
    TIME_BUDGET = "time_budget"
    LEASE_HELD = "lease_held"
    EQUALITY_DELETES = "equality_deletes"
    POSITION_DELETES = "position_deletes"
    FORMAT_VERSION = "format_version"
    DROPPED_SOURCE = "dropped_source"
    STALE = "stale"
    CONFLICT = "conflict"
    GATE = "gate"
    PROOF = "proof"
    ERROR = "error"
    UNKNOWN_COMMIT = "unknown_commit"
    TERMINATED = "terminated"
    NO_EFFECT = "no_effect"
    OTHER_OPERATION = "other_operation"
    UNSUPPORTED_KEY = "unsupported_key"
    MEMORY = "memory"
    FOREIGN_MAINTAINER = "foreign_maintainer"
    MANIFESTS = "manifests"
    SNAPSHOTS = "snapshots"
    ORPHAN_FILES = "orphan_files"
    APPROVAL = "approval"
    GC_DISABLED = "gc_disabled"
    CLOCKS_DISAGREE = "clocks_disagree"
    REFUSED = "refused"
    LOST = "lost"


SENTENCES: dict[Reason, str] = {
    Reason.SMALL_FILES: "enough small files to gain from a rewrite",
    Reason.TOO_MANY_FILES: "more files than allowed at this average size",
    Reason.DELETE_RATIO: "position deletes mark too large a share of the rows",
    Reason.DELETE_FILES: "more delete files than allowed",
    Reason.LAYOUT: "the ranges of the sort columns overlap in too many files; readers cannot skip them",
    Reason.FORCED: "the run was forced, healthy or not",
    Reason.HEALTHY: "every metric is within its threshold",
    Reason.EMPTY: "the table has no live files",
    Reason.NO_GAIN: "a rewrite would leave as many files and deletes as before",
    Reason.FILE_TOO_LARGE: "a file, or a group that a conversion must process together, is larger than a batch "
    "may be; raise windows.max_bytes_per_batch, max_files_per_batch or max_partitions_per_batch",
    Reason.DISABLED: "the policy turns this operation off",
    Reason.ADVISE: "the policy's mode is advise: planned and reported, not executed",
    Reason.PAUSED: "paused by policy or by an operator",
    Reason.BLACKOUT: "within the policy's blackout hours",
    Reason.BACK_OFF: "the wait after an attempt that failed, crashed or gained nothing has not ended",
    Reason.QUARANTINED: "blocked until a person releases it, after repeated failures; see release",
    Reason.HOT: "changed too recently; it waits until it is cold",
    Reason.RUN_BUDGET: "deferred to a later run: this run's budget is used up",
    Reason.HOUR_BUDGET: "deferred: this hour's budget is used up",
    Reason.BATCH_LIMIT: "deferred to a later run: the requested number of batches is done",
    Reason.TIME_BUDGET: "deferred to a later run: this run's time is used up",
    Reason.LEASE_HELD: "another run is working on the table",
    Reason.EQUALITY_DELETES: "equality deletes are older than allowed; every reader applies them again",
    Reason.POSITION_DELETES: "more position delete files than needed, or some that mark no row any more",
    Reason.FORMAT_VERSION: "the table's format version is not supported",
    Reason.DROPPED_SOURCE: "the source column of an older partition spec with live files was dropped; any commit "
    "that copies their manifests loses their partitions, and with them which deletes apply",
    Reason.STALE: "the table changed after the batch was planned",
    Reason.CONFLICT: "concurrent commits prevented every attempt to commit",
    Reason.GATE: "the commit gate refused: an invariant would have been broken",
    Reason.PROOF: "the rows written differ from the rows read; nothing was committed",
    Reason.ERROR: "an error, reported with the outcome",
    Reason.UNKNOWN_COMMIT: "a commit is neither confirmed nor refuted yet",
    Reason.TERMINATED: "a person or the system terminated the run",
    Reason.NO_EFFECT: "committed, but the table's health did not improve",
    Reason.OTHER_OPERATION: "the other data operation does this at a lower cost",
    Reason.UNSUPPORTED_KEY: "equality deletes on a dropped, floating-point or repeated column; they "
    "cannot be applied safely",
    Reason.MEMORY: "the equality deletes need more memory than declared; raise equality_deletes.memory",
    Reason.FOREIGN_MAINTAINER: "another maintainer rewrites the table's files; see foreign_maintainers",
    Reason.MANIFESTS: "the manifests are too many, too small or too scattered for quick planning",
    Reason.SNAPSHOTS: "snapshots or refs are past their retention",
    Reason.ORPHAN_FILES: "the last orphan pass is longer ago than allowed",
    Reason.APPROVAL: "the share of orphan files is so large that a person must approve the removal; see orphans trash --approve",
    Reason.GC_DISABLED: "the table's owner forbids the deletion of its files (gc.enabled=false)",
    Reason.CLOCKS_DISAGREE: "clocks are more than five minutes apart, or one moved backwards; nothing is removed",
    Reason.REFUSED: "refused with a code; nothing was changed",
    Reason.LOST: "a branch or tag created during the expiry was removed with it: the catalog does not compare "
    "the base of a commit",
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


CHECKS_OF_PARTITIONS = (Check.SMALL_FILES, Check.DELETE_FILES, Check.LAYOUT)
"""The checks of partitions."""
CHECKS_OF_TABLES = (Check.MANIFESTS, Check.SNAPSHOTS, Check.ORPHAN_FILES)
"""The checks of the table as a whole."""


CHECK_OF = {
    Operation.REWRITE_MANIFESTS: Check.MANIFESTS,
    Operation.EXPIRE_SNAPSHOTS: Check.SNAPSHOTS,
    Operation.REMOVE_ORPHAN_FILES: Check.ORPHAN_FILES,
}
"""For each operation on the table as a whole, the check that makes it due."""


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
    """The decision for one partition, and its reason.

    `score` ≥ 0 orders the due partitions: higher is worse. `until_ms` says when a DEFER ends by itself.
    `operation` is the operation that the decision is about.
    """

    partition: str
    verdict: Verdict
    reason: Reason
    findings: tuple[Finding, ...] = ()
    score: float = 0.0
    candidate_bytes: int = 0
    until_ms: int | None = None
    operation: Operation = Operation.REWRITE_DATA_FILES


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for one table and operation. `partitions` holds the decisions per partition, worst
    first.

    `budget_bytes` is the largest input of the plan, and `budget_reason` the cap that set it.
    `budget_partitions` is the largest number of partitions. `beside` holds the other data operation's
    decisions on the partitions, because both plans choose by both operations' decisions.
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
    beside: Mapping[str, PartitionDecision] = field(default_factory=dict)

    def due(self) -> tuple[PartitionDecision, ...]:
        """The partitions to run, in order."""
        return tuple(p for p in self.partitions if p.verdict is Verdict.RUN)
