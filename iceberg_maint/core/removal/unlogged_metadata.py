"""Lineage: table metadata files that the table's own metadata log does not name, and what they mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.removal.orphans import told

_CLOCKS_MS = 60_000
"""What the times of a metadata log may differ by between writers (Iceberg's `TableMetadata`)."""


@dataclass(frozen=True, slots=True)
class MetadataVersion:
    """What one metadata file says. `owner` is the table's uuid, its location where it has none, or why
    neither can be read. The numbers are None where they were not read."""

    path: str
    owner: str
    last_sequence_number: int | None = None
    last_updated_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """The catalog's pointer and the earlier versions that it names. `oldest_ms` is the time of the oldest
    of them: versions before that time have been trimmed from the log."""

    location: str
    last_sequence_number: int
    last_updated_ms: int
    oldest_ms: int
    files: tuple[str, ...]


class Standing(StrEnum):
    """A metadata file outside the log, compared with the log. `newer`: a commit that the pointer does not
    have. `beside`: written in the time of the log, by a commit that failed or by a second owner. `older`:
    from before the log."""

    NEWER = "newer"
    BESIDE = "beside"
    OLDER = "older"


@dataclass(frozen=True, slots=True)
class UnloggedMetadata:
    """Metadata files beside the log: how many, and some of their paths, the newest first."""

    files: int
    paths: tuple[str, ...]


def standing(version: MetadataVersion, log: MetadataLog) -> Standing:
    """How a metadata file outside the log stands to it."""
    updated_ms = version.last_updated_ms or 0
    if updated_ms > log.last_updated_ms or (version.last_sequence_number or 0) > log.last_sequence_number:
        return Standing.NEWER
    return Standing.BESIDE if updated_ms >= log.oldest_ms else Standing.OLDER


def second_line(entries: Sequence[tuple[str, int]], log: MetadataLog, ours: Collection[str]) -> str | None:
    """The first version of a line of commits that left ours; None where nothing shows that there is one.

    `entries` are path and time of each entry of the metadata log of a file beside ours, oldest first; `ours`
    are those paths that our log or pointer names. A log names only versions that a catalog has pointed at: an
    entry behind the last one that both logs share was committed, and not to our line. Where the two
    share none, an entry from the time of our log was.
    """
    shared = max((n for n, (path, _) in enumerate(entries) if path in ours), default=None)
    if shared is not None:
        return next((path for path, _ in entries[shared + 1 :]), None)
    return next((path for path, at_ms in entries if at_ms > log.oldest_ms + _CLOCKS_MS), None)


def unlogged(versions: Iterable[MetadataVersion], most_paths: int) -> UnloggedMetadata:
    """Counts the files and keeps so many of their paths."""
    newest = newest_first(versions)
    return UnloggedMetadata(len(newest), tuple(told(v.path) for v in newest[:most_paths]))


def sign(found: UnloggedMetadata | None) -> str:
    """What files beside the log mean, as a sentence; nothing where there are none."""
    if found is None or not found.files:
        return ""
    return (
        f"{found.files} metadata files in the table's folder are not in its metadata log, the newest is "
        f"{found.paths[0]}: commits failed, or another catalog has the table."
    )


def newest_first(versions: Iterable[MetadataVersion]) -> list[MetadataVersion]:
    """The versions, by sequence number and then by time, the newest first."""
    return sorted(
        versions, key=lambda v: (v.last_sequence_number or 0, v.last_updated_ms or 0, v.path), reverse=True
    )
