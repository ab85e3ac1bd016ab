"""Policy of a table's runs: how much they do, how they try again, and which work of others they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.policy.housekeeping import DAY_SECONDS, GIBIBYTE, key

DEFAULT_PARTITIONS_PER_BATCH = 10
PARTITIONS_PER_SMALL_BATCH = 100
SMALL_BATCH_BYTES = 128 * 1024 * 1024


class WindowOrder(StrEnum):
    """The order in which due partitions are processed."""

    WORST_FIRST = "worst_first"
    OLDEST_FIRST = "oldest_first"


@dataclass(frozen=True, slots=True)
class WindowsPolicy:
    """Section `windows`: the work of one run, hour and batch. Nothing exceeds these caps."""

    order: WindowOrder = key(WindowOrder.WORST_FIRST, "which due partitions go first")
    cold_after_seconds: int | None = key(
        None, "do not touch partitions that changed within this time; null: off", minimum=0
    )
    max_partitions_per_run: int | None = key(100, "maximum number of partitions per run", minimum=1)
    max_bytes_per_run: int | None = key(100 * GIBIBYTE, "maximum input bytes per run", minimum=1)
    max_partitions_per_hour: int | None = key(
        None, "maximum number of partitions per hour and table", minimum=1
    )
    max_bytes_per_hour: int | None = key(None, "maximum input bytes per hour and table", minimum=1)
    max_partitions_per_batch: int | None = key(
        None,
        "maximum number of partitions per batch (one commit); null: 10, and 100 in a batch of columnar rewrites or "
        "conversions with less than 128 MiB of input",
        minimum=1,
        unset="10 or 100",
    )
    max_bytes_per_batch: int = key(10 * GIBIBYTE, "maximum input bytes per batch", minimum=1)
    max_files_per_batch: int = key(5000, "maximum number of input files per batch", minimum=2)
    read_weight: float = key(
        1.0,
        "how much the table is read, as a multiple of others; with a fleet_budget it multiplies the predicted gain",
        minimum=0.0,
    )

    @property
    def partitions_per_batch(self) -> int:
        """The maximum number of partitions per batch."""
        if self.max_partitions_per_batch is None:
            return DEFAULT_PARTITIONS_PER_BATCH
        return self.max_partitions_per_batch

    def partitions_per_columnar_batch(self, input_bytes: int) -> int:
        """The maximum number of partitions of a batch of columnar rewrites with this many input bytes. A commit costs
        more than the rewrite of a tiny partition, and a small batch that loses its commit has wasted little."""
        if self.max_partitions_per_batch is None and input_bytes < SMALL_BATCH_BYTES:
            return PARTITIONS_PER_SMALL_BATCH
        return self.partitions_per_batch


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Section `retry`: conflicts, back-off and quarantine."""

    commit_tries: int = key(10, "attempts at one commit under concurrent writers", minimum=1)
    backoff_seconds: int = key(
        300,
        "wait after the first failed or ineffective attempt; doubles each time. After the second attempt in a row "
        "that crashed without a report it begins with a fifth",
        minimum=0,
    )
    backoff_max_seconds: int = key(86_400, "maximum wait", minimum=0)
    quarantine_after: int = key(
        4, "failed or ineffective attempts in a row that quarantine a partition", minimum=1
    )
    quarantine_after_crashes: int = key(
        6, "attempts in a row that crashed without a report and quarantine a partition", minimum=1
    )


class ForeignMode(StrEnum):
    """The mode beside another maintainer of the table: `refuse` to work, `coexist` by rewriting only data
    files of cold partitions, or `ignore` it."""

    REFUSE = "refuse"
    COEXIST = "coexist"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class ForeignMaintainersPolicy:
    """Section `foreign_maintainers`: the reaction to commits of other maintainers."""

    mode: ForeignMode = key(
        ForeignMode.REFUSE,
        "for two days after a commit of another maintainer: refuse, coexist (rewrite only data files of partitions "
        "that did not change within an hour, or windows.cold_after_seconds if it is longer), or ignore it",
    )


class PublishMode(StrEnum):
    """What commits to main do while something that builds on main's head is to be published: `wait`, or
    `ignore` it."""

    WAIT = "wait"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class WriteAuditPublishPolicy:
    """Section `write_audit_publish`: branches and staged snapshots that a commit to main would keep from being
    published."""

    mode: PublishMode = key(
        PublishMode.WAIT,
        "while a branch can be fast-forwarded or a staged change can be cherry-picked: wait with every commit to "
        "main, or ignore it",
    )
    max_age_seconds: int | None = key(
        3 * DAY_SECONDS,
        "age of the branch's oldest snapshot that main does not have, or of the staged snapshot, at which the "
        "wait ends; null: never",
        minimum=0,
    )
