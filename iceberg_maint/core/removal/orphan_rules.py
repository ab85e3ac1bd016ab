"""Orphans: files below a table's prefix that no metadata references, and the files that are never treated
as orphans."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
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
class HeldOrphans:
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


def held_orphans(
    mark_id: str, marked_ms: int | None, orphans: Iterable[Orphan], prefixes: Iterable[str], limit: int
) -> HeldOrphans:
    """Counts the files to remove and keeps `limit` of their paths, as printable text."""
    files, size_bytes = 0, 0

    def count_files() -> Iterator[Orphan]:
        nonlocal files, size_bytes
        for orphan in orphans:
            files, size_bytes = files + 1, size_bytes + orphan.size_bytes
            yield orphan

    summary = summarize(count_files(), prefixes, limit)
    paths = tuple(printable_path(o.path) for o in summary.largest)
    return HeldOrphans(mark_id, marked_ms, files, size_bytes, summary.oldest_ms, summary.youngest_ms, paths)


def printable_path(path: str) -> str:
    """Returns a path as printable text. File names need not be valid Unicode."""
    return path.encode("utf-8", "backslashreplace").decode()
