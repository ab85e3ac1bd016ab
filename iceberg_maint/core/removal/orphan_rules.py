"""Orphans: files below a table's prefix that no metadata references, the files that are never treated as orphans, and table
metadata files that the table's own metadata log does not name."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.removal.pending_manifests import PendingManifests

TRASH = ".iceberg-maint-trash"
"""Folder below a prefix that holds the trash. It is hidden, so that no engine lists it as data."""

_FOLDER_LEVELS = 2
_METADATA_FILE = re.compile(r".*\.json|.*\.metadata\.json\.gz|version-hint.*")


class Kept(StrEnum):
    """The reasons why a listed file is not an orphan. `named_elsewhere`: the metadata reference a file of
    the same name outside the prefix, which may be the same file by another path. `restored`: a person
    restored it from the trash. `pending`: a manifest names it that a Flink job may still commit.
    `empty_segment`: its path contains `//`, so Arrow's file systems list it but cannot read, move or delete it.
    `released`: an expiry released it, and it is not in the trash yet.
    """

    REACHABLE = "reachable"
    IN_FLIGHT = "in_flight"
    RESTORED = "restored"
    PENDING = "pending"
    RELEASED = "released"
    NAMED_ELSEWHERE = "named_elsewhere"
    YOUNG = "young"
    METADATA_FILE = "metadata_file"
    FLINK_MANIFEST = "flink_manifest"
    HIDDEN = "hidden"
    TRASH = "trash"
    EMPTY_SEGMENT = "empty_segment"


@dataclass(frozen=True, slots=True)
class Orphan:
    """One unreferenced file; times by the store's clock."""

    path: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class TrashBatchHeader:
    """First line of a trash manifest; one line per file follows. `marked_ms` is the store's time.
    `digest` is that of the orphans of the scan, some of which may not have been moved. `released`: the
    files are those that expiries released."""

    mark_id: str
    table: str
    table_uuid: str
    prefix: str
    marked_ms: int
    older_than_seconds: int
    metadata_location: str
    digest: str
    released: bool = False


@dataclass(frozen=True, slots=True)
class TrashedFile:
    """A line of a trash manifest: the file's original path, its path in the trash, its facts and the
    reason."""

    path: str
    trash_path: str
    size_bytes: int
    modified_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class RetainedOrphans:
    """Files of one trash batch that a later sweep removes, or orphans that a person must approve before
    they are moved to the trash: then `marked_ms` is None and `mark_id` is the digest. `oldest_ms` and
    `youngest_ms` are the times of the last write of the files. `paths` are some of them, most bytes
    first."""

    mark_id: str
    marked_ms: int | None
    files: int
    size_bytes: int
    oldest_ms: int | None
    youngest_ms: int | None
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """The counts of a scan. The trash and the files in it do not count as listed."""

    listed_files: int
    listed_bytes: int
    kept: Mapping[Kept, int]
    orphan_files: int
    orphan_bytes: int

    def is_abnormal(self, max_ratio: float) -> bool:
        """Returns whether the share of orphans is so large that it may be a mistake."""
        return (
            self.orphan_files > max_ratio * self.listed_files
            or self.orphan_bytes > max_ratio * self.listed_bytes
        )


class NameRules:
    """Classifies a file by its name alone: metadata files, state of Flink jobs, hidden files.

    Hidden are path segments that begin with `_` or `.`, except those of a partition field with such a
    name (Iceberg's `PartitionAwareHiddenPathFilter`).
    """

    def __init__(self, state: TableState, pending: PendingManifests) -> None:
        self._pending = pending
        self._fields = tuple(
            f"{field.name}="
            for spec in state.specs.values()
            for field in spec.fields
            if field.name.startswith(("_", "."))
        )

    def kept(self, relative_path: str, modified_ms: int | None) -> Kept | None:
        """Returns why a file with this path below the prefix stays, whatever references it. None if its
        name is no reason."""
        *folders, name = [s for s in relative_path.split("/") if s]
        if folders and folders[0] == TRASH:
            return Kept.TRASH
        if self._pending.keeps(name, modified_ms):
            return Kept.FLINK_MANIFEST
        # Most paths have neither. This runs once per listed file.
        suspect = "/_" in relative_path or "/." in relative_path or relative_path.startswith(("_", "."))
        if suspect and any(
            s.startswith(("_", ".")) and not s.startswith(self._fields) for s in (*folders, name)
        ):
            return Kept.HIDDEN
        if _METADATA_FILE.fullmatch(name):
            return Kept.METADATA_FILE
        return Kept.EMPTY_SEGMENT if "//" in relative_path else None


def orphans_digest(orphans: Iterable[Orphan]) -> str:
    """Returns the digest that a person approves: the time of the youngest orphan, and the SHA-256 of the
    orphans in the given order."""
    import hashlib  # loads OpenSSL

    sha256 = hashlib.sha256()
    youngest_ms = 0
    for orphan in orphans:
        line = f"{orphan.size_bytes} {orphan.modified_ms} {orphan.path}\n"
        sha256.update(line.encode("utf-8", "surrogateescape"))
        youngest_ms = max(youngest_ms, orphan.modified_ms)
    return f"{youngest_ms}-{sha256.hexdigest()}"


def approved_until_ms(digest: str) -> int:
    """Returns the time in a digest; 0 for a text that is not a digest, which then approves nothing."""
    youngest, _, _ = digest.partition("-")
    return int(youngest) if youngest.isascii() and youngest.isdigit() else 0


@dataclass(frozen=True, slots=True)
class OrphanFolder:
    """The orphans below one folder."""

    folder: str
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OrphanSummary:
    """The summary that a person reads before the orphans are removed: the folders with most bytes, the
    largest files, and the times of the oldest and the youngest file. Times are None without orphans."""

    folders: tuple[OrphanFolder, ...]
    largest: tuple[Orphan, ...]
    oldest_ms: int | None
    youngest_ms: int | None


def summarize(orphans: Iterable[Orphan], prefixes: Iterable[str], limit: int) -> OrphanSummary:
    """Returns folders two levels below their prefix, and files: `limit` of each, most bytes first."""
    roots = [p.rstrip("/") for p in prefixes]
    folders: dict[str, tuple[int, int]] = {}
    largest: list[tuple[int, str, Orphan]] = []
    oldest_ms: int | None = None
    youngest_ms: int | None = None
    for orphan in orphans:
        root = next((r for r in roots if orphan.path.startswith(r + "/")), "")
        below = orphan.path[len(root) + 1 :].split("/")[:-1]
        folder = "/".join((root, *below[:_FOLDER_LEVELS]))
        files, size_bytes = folders.get(folder, (0, 0))
        folders[folder] = (files + 1, size_bytes + orphan.size_bytes)
        heapq.heappush(largest, (orphan.size_bytes, orphan.path, orphan))
        if len(largest) > limit:
            heapq.heappop(largest)
        modified_ms = orphan.modified_ms
        oldest_ms = modified_ms if oldest_ms is None else min(oldest_ms, modified_ms)
        youngest_ms = modified_ms if youngest_ms is None else max(youngest_ms, modified_ms)
    most = sorted(folders.items(), key=lambda item: (-item[1][1], item[0]))[:limit]
    return OrphanSummary(
        folders=tuple(OrphanFolder(name, files, size) for name, (files, size) in most),
        largest=tuple(o for _, _, o in sorted(largest, key=lambda item: (-item[0], item[1]))),
        oldest_ms=oldest_ms,
        youngest_ms=youngest_ms,
    )


def retained_orphans(
    mark_id: str, marked_ms: int | None, orphans: Iterable[Orphan], prefixes: Iterable[str], limit: int
) -> RetainedOrphans:
    """Counts the files to remove and keeps `limit` of their paths, as printable text."""
    files, size_bytes = 0, 0

    def count_files() -> Iterator[Orphan]:
        nonlocal files, size_bytes
        for orphan in orphans:
            files, size_bytes = files + 1, size_bytes + orphan.size_bytes
            yield orphan

    summary = summarize(count_files(), prefixes, limit)
    paths = tuple(printable_path(o.path) for o in summary.largest)
    return RetainedOrphans(
        mark_id, marked_ms, files, size_bytes, summary.oldest_ms, summary.youngest_ms, paths
    )


def printable_path(path: str) -> str:
    """Returns a path as printable text. File names need not be valid Unicode."""
    return path.encode("utf-8", "backslashreplace").decode()


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
