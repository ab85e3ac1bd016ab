"""Unlogged metadata: table metadata files that the table's own metadata log does not name, and what they
indicate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.removal.orphan_rules import printable_path

_CLOCKS_MS = 60_000
"""The tolerance of the times in a metadata log between writers (Iceberg's `TableMetadata`)."""


@dataclass(frozen=True, slots=True)
class MetadataVersion:
    """The contents of one metadata file. `owner` is the table's UUID, its location if it has no UUID, or
    the reason why neither can be read. The numbers are None if they were not read. The sequence number of another
    table's file is not compared."""

    path: str
    owner: str
    last_sequence_number: int | None = None
    last_updated_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """The catalog's pointer and the earlier versions that it names. `oldest_ms` is the time of the oldest
    one. `complete` is False if earlier versions exist that are not known."""

    location: str
    last_sequence_number: int
    last_updated_ms: int
    oldest_ms: int
    files: tuple[str, ...]
    complete: bool = True


class Standing(StrEnum):
    """The relation of a metadata file outside the log to the log. `newer`: a commit that the pointer does
    not have. `beside`: written in the time of the log, by a commit that failed or by a second owner.
    `older`: from before the log."""

    NEWER = "newer"
    BESIDE = "beside"
    OLDER = "older"


@dataclass(frozen=True, slots=True)
class UnloggedMetadata:
    """Metadata files outside the log: their number and some of their paths, newest first."""

    files: int
    paths: tuple[str, ...]


def standing(version: MetadataVersion, log: MetadataLog) -> Standing:
    """Returns the relation of a metadata file outside the log to the log."""
    updated_ms = version.last_updated_ms or 0
    if updated_ms > log.last_updated_ms or (version.last_sequence_number or 0) > log.last_sequence_number:
        return Standing.NEWER
    return Standing.BESIDE if updated_ms >= log.oldest_ms else Standing.OLDER


def second_line(
    entries: Sequence[tuple[str, int]],
    log: MetadataLog,
    ours: Collection[str],
    unlogged: Collection[str] = (),
) -> str | None:
    """Returns the first version of a second line of commits, which diverged from ours. None if nothing
    shows a second line.

    `entries` are path and time of each entry in the metadata log of a file outside our log, oldest first.
    `ours` are those paths that our log or pointer names. A log names only versions that a catalog has
    pointed at. An entry after the last one that both logs share was therefore committed, and not to our
    line. If the logs share no entry, an entry from the time of our log was. `unlogged` are those paths that
    name a file outside our log from its time: a catalog has pointed at such a file, and our line has not.
    """
    if committed := [path for path, _ in entries if path in unlogged]:
        return committed[0]
    shared = max((n for n, (path, _) in enumerate(entries) if path in ours), default=None)
    if shared is not None:
        return next((path for path, _ in entries[shared + 1 :]), None)
    return next((path for path, at_ms in entries if at_ms > log.oldest_ms + _CLOCKS_MS), None)


def unlogged(versions: Iterable[MetadataVersion], most_paths: int) -> UnloggedMetadata:
    """Counts the files and keeps at most `most_paths` of their paths."""
    newest = newest_first(versions)
    return UnloggedMetadata(len(newest), tuple(printable_path(v.path) for v in newest[:most_paths]))


def sign(unlogged_files: UnloggedMetadata | None) -> str:
    """Returns a sentence about what the unlogged files indicate; an empty text if there are none."""
    if unlogged_files is None or not unlogged_files.files:
        return ""
    return (
        f"{unlogged_files.files} metadata files in the table's folder are not in its metadata log, the newest is "
        f"{unlogged_files.paths[0]}: either commits failed, or another catalog also has the table."
    )


def newest_first(versions: Iterable[MetadataVersion]) -> list[MetadataVersion]:
    """Returns the versions by sequence number and then by time, newest first."""
    return sorted(
        versions, key=lambda v: (v.last_sequence_number or 0, v.last_updated_ms or 0, v.path), reverse=True
    )
