"""Policy of measurements, of alerts, and of each operation on the table as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

DAY_SECONDS = 86_400
GIBIBYTE = 1024**3
OWN_ENGINE = "spark"
"""The name, in lists of engines, of this program's own engine, whose commits pass the gate."""


def key(default: Any, doc: str, **limits: float | str) -> Any:
    """A field of a section: a key of the policy, its default, its meaning and the limits of its values."""
    return field(default=default, metadata={"doc": doc, **limits})


def engines_key() -> Any:
    """A key for the engines of an operation, in order."""
    return key(
        (OWN_ENGINE,),
        "engines that may do it, by their names under engines: the first that can takes a batch; spark is this program",
        configured_only=True,
    )


class HealthSource(StrEnum):
    """Where the health of a table is measured: from its `manifests` in this process, or from Iceberg's metadata
    tables by `spark`. `auto` takes Spark if this process would need more than the declared memory."""

    AUTO = "auto"
    MANIFESTS = "manifests"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Section `health`."""

    source: HealthSource = key(
        HealthSource.AUTO,
        "where health is measured: manifests in this process, spark by Iceberg's metadata tables, auto by "
        "Spark only if the estimate for manifests exceeds health.memory",
    )
    memory: int = key(
        GIBIBYTE,
        "bytes of this process that a measurement from manifests may take, by an estimate from the "
        "manifest list, with source auto",
        minimum=1024**2,
    )


@dataclass(frozen=True, slots=True)
class AlertsPolicy:
    """Section `alerts`: the owners of the table and the limits of its alerts."""

    enabled: bool = key(True, "whether the table has alerts")
    owners: tuple[str, ...] = key(
        (), "owners of the table; a receiver with owners gets the alerts of theirs only"
    )
    not_observed_seconds: int | None = key(
        1800, "alert when the last observation is longer ago; null: never", minimum=60
    )
    due_seconds: int | None = key(
        DAY_SECONDS, "alert when work is due for longer without a break; null: never", minimum=60
    )
    no_progress_seconds: int | None = key(
        21_600, "alert when work is due and nothing was committed for longer; null: never", minimum=60
    )
    expiry_grace_seconds: int | None = key(
        7 * DAY_SECONDS,
        "alert when the oldest snapshot is this much older than expire_snapshots keeps; null: never",
        minimum=0,
    )


class AttestLevel(StrEnum):
    """What is read to attest commits that claim to change no row: nothing (`off`), `metadata`, or also `files` where
    metadata cannot say."""

    OFF = "off"
    METADATA = "metadata"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class AttestPolicy:
    """Section `attest`: the proof of commits that claim to change no row, of whatever tool."""

    level: AttestLevel = key(
        AttestLevel.METADATA,
        "what Dagster's runs read to attest such commits: nothing, metadata, or also files where metadata cannot say; "
        "an observation reads metadata only. The command `attest` reads files unless its --level says otherwise",
    )
    max_bytes: int = key(
        10 * GIBIBYTE,
        "bytes of manifests and files that one attestation of the table reads; the remaining commits wait for the next one, and a "
        "commit with more is unprovable",
        minimum=1,
    )


ORPHAN_AGE_FLOOR_SECONDS = DAY_SECONDS
"""A file younger than this is never treated as an orphan, whatever the policy says."""
DELETE_AFTER_FLOOR_SECONDS = DAY_SECONDS
"""A file is not swept from the trash earlier than this after it was put there."""


class ReleasedRetention(StrEnum):
    """Where files that an expiry released spend the retention: in the `trash`, or `in_place`."""

    TRASH = "trash"
    IN_PLACE = "in_place"


@dataclass(frozen=True, slots=True)
class RewriteManifestsPolicy:
    """Section `rewrite_manifests`: when manifests are regrouped by partition."""

    enabled: bool = key(True, "whether manifests are rewritten")
    engines: tuple[str, ...] = engines_key()
    max_manifests: int = key(
        100,
        "due when one partition spec has more manifests below three quarters of their target size; from "
        "three tenths of this number on also when they are smaller than a quarter of it on average, or when files "
        "of one value of the leading partition field may lie in more than ten of them",
        minimum=1,
    )


@dataclass(frozen=True, slots=True)
class ExpireSnapshotsPolicy:
    """Section `expire_snapshots`: which snapshots expire. If two rules disagree, the one that keeps more
    applies."""

    enabled: bool = key(True, "whether snapshots are expired")
    engines: tuple[str, ...] = engines_key()
    every_seconds: int = key(DAY_SECONDS, "time between two expiries; each is a commit", minimum=0)
    max_snapshot_age_seconds: int = key(
        5 * DAY_SECONDS,
        "snapshots younger than this stay; the table's history.expire.max-snapshot-age-ms "
        "can only lengthen it",
        minimum=0,
    )
    min_snapshots_to_keep: int = key(
        10,
        "newest snapshots of every branch that stay at any age; the table's "
        "history.expire.min-snapshots-to-keep can only raise it",
        minimum=1,
    )
    staged_max_age_seconds: int | None = key(
        None,
        "age at which a snapshot that write-audit-publish staged and never published may expire; null: never",
        minimum=0,
    )
    writer_state_max_age_seconds: int | None = key(
        None,
        "age at which the last snapshot that holds a streaming writer's position (Flink, "
        "Kafka Connect, Spark) may expire; a writer that was paused for longer commits its data twice; "
        "null: never",
        minimum=0,
    )
    reader_max_silence_seconds: int | None = key(
        None,
        "time without a report after which a registered reader holds no snapshot; null: never",
        minimum=0,
    )


@dataclass(frozen=True, slots=True)
class RemoveOrphanFilesPolicy:
    """Section `remove_orphan_files`: which files are orphans, and when they are removed."""

    enabled: bool = key(True, "whether orphan files are removed")
    engines: tuple[str, ...] = engines_key()
    every_seconds: int = key(
        7 * DAY_SECONDS, "time between two orphan scans; each lists the storage", minimum=0
    )
    older_than_seconds: int = key(
        7 * DAY_SECONDS,
        "age by the store's clock at which an unreferenced file is an orphan",
        minimum=ORPHAN_AGE_FLOOR_SECONDS,
    )
    delete_after_seconds: int = key(
        3 * DAY_SECONDS,
        "time that orphans stay in the trash before they are swept",
        minimum=DELETE_AFTER_FLOOR_SECONDS,
    )
    released_files: ReleasedRetention = key(
        ReleasedRetention.TRASH,
        "where files that an expiry released spend the retention: trash moves them there, in_place lists "
        "them, leaves them at their paths and deletes them there",
    )
    writer_state_max_age_seconds: int | None = key(
        None,
        "age by the store's clock at which a manifest that a Flink job has not committed may be "
        "removed, with the files that only it names, and at which a Kafka Connect group that has not "
        "committed since holds no files; null: never",
        minimum=ORPHAN_AGE_FLOOR_SECONDS,
    )
    max_orphan_ratio: float = key(
        0.2,
        "share of the listed files or bytes above which a person must approve the removal",
        minimum=0.0,
        maximum=1.0,
    )
    exclusive_prefixes: tuple[str, ...] = key(
        (),
        "locations other than the table's own that hold files of this table only, and may be cleaned as well",
        configured_only=True,
    )
    equal_schemes: tuple[str, ...] = key(
        ("s3a=s3", "s3n=s3"),
        "schemes that name the same store, each as spelling=canonical",
        configured_only=True,
    )
    equal_authorities: tuple[str, ...] = key(
        (), "buckets or hosts that name the same store, each as spelling=canonical", configured_only=True
    )
