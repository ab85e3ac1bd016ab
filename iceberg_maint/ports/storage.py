"""The ports to file storage: a store that lists, moves and deletes files, and the files that metadata reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from iceberg_maint.core.model.table_state import Manifest, TableState
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import MetadataLog, RetainedOrphans, UnloggedMetadata
from iceberg_maint.core.removal.released_file_rules import NamedFile, Release


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as its store lists it, with the scheme and authority of the requested location. `modified_ms` is
    the store's time, None if the store reports none."""

    path: str
    size_bytes: int
    modified_ms: int | None


class Store(Protocol):
    """The files of one table. Raises RefusedError ICM-125 if access is denied. `at_once` is the number of changes
    that may run at the same time, from different threads. `bulk` is the number of files that one request deletes, 0
    if the store has no such request. `resumes`: a listing can be continued behind any of its files."""

    at_once: int
    bulk: int
    resumes: bool

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Streams every file below the prefix, in no order. Does not follow links. A prefix that does not
        exist has no files."""

    def list_after(self, prefix: str, after: str) -> Iterator[StoredFile]:
        """Streams the files below the prefix in the one order of the store, from the first one behind the path
        `after`; all of them if it is empty. Raises NotImplementedError if the store does not resume."""

    def stat(self, path: str) -> StoredFile | None:
        """Returns the file, or None if it does not exist."""

    def now_ms(self, folder: str) -> int:
        """Returns the time of the store's clock: the time of a file that it writes in the folder and deletes
        again. This also proves that files can be written and deleted."""

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Returns the file, or its first `most_bytes` bytes. Raises FileNotFoundError."""

    def read_lines(self, path: str) -> Iterator[bytes]:
        """Streams the lines of the file. Raises FileNotFoundError."""

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        """Writes a new file. After it returns, the file survives a crash."""

    def move(self, source: str, target: str) -> None:
        """Moves a file within a store. Raises FileExistsError if the target exists, and
        FileNotFoundError."""

    def delete(self, path: str) -> None:
        """Deletes a file, if it exists."""

    def delete_bulk(self, paths: Sequence[str]) -> frozenset[str]:
        """Deletes up to `bulk` files by one request. Returns those that the store may still have."""

    def tidy(self, folder: str) -> None:
        """Removes a folder that has no files. Does nothing to other folders."""


@dataclass(frozen=True, slots=True)
class OrphanWork:
    """The work of one orphan scan.

    With `needs_approval` the scan moved nothing, and a person approves it by `digest`. `marks` are the ids of
    the trash manifests that it wrote. `restored_files` were in the trash and are reachable. `left_files` are
    still in the trash although their retention is over. `retained` is the content of the trash at the end, and the
    files that wait for approval; None if it is unknown. `unlogged` is the sign of a second owner, None
    without a scan. `stopped` is the error that ended the scan after a part of this work. `unfinished`: the scan
    used up its time, and the next one continues it.
    """

    listed_files: int
    listed_bytes: int
    orphan_files: int
    orphan_bytes: int
    trashed_files: int = 0
    trashed_bytes: int = 0
    swept_files: int = 0
    swept_bytes: int = 0
    restored_files: int = 0
    left_files: int = 0
    marks: tuple[str, ...] = ()
    digest: str = ""
    needs_approval: bool = False
    retained: tuple[RetainedOrphans, ...] | None = None
    unlogged: UnloggedMetadata | None = None
    stopped: Exception | None = None
    released: ReleasedWork | None = None
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class ReleasedWork:
    """What was done with the files that expiries released: `released` were moved to the trash or marked in
    place, `deleted` were deleted after their retention, `retained` are retained at the end. `skipped` files stay for an
    orphan scan: they are gone, or may be other files. `stopped` is what ended the work."""

    released_files: int = 0
    released_bytes: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    retained_files: int = 0
    retained_bytes: int = 0
    skipped_files: int = 0
    stopped: Exception | None = None


class OrphanFiles(Protocol):
    """Removes the orphan files of one table: mark, trash, sweep."""

    def run(
        self,
        state: TableState,
        policy: RemoveOrphanFilesPolicy,
        *,
        in_flight: frozenset[str],
        sweep: bool,
        holds: Callable[[], bool],
        is_over: Callable[[], bool] = lambda: False,
    ) -> OrphanWork:
        """Deletes trash past its retention if `sweep` is set, then moves the present orphans to the trash.

        The retention of the files of stored releases begins first.
        `in_flight` are files that are written and not yet committed. `holds` returns whether this process
        still holds the lease. `is_over` returns whether the scan has used up its time; it is asked between the
        pages of the listing and between groups of moves and deletions. Raises FenceLostError. Raises
        RefusedError ICM-110 to 115, 122, 125 before the first file is moved or deleted. After that, it returns
        the error as `stopped`.
        """

    def leaving_released(self) -> OrphanFiles:
        """The same, whose scans leave the files of stored releases, and those that are retained in place."""

    def approving(self, digest: str) -> OrphanFiles:
        """The same, which moves exactly the orphans of the scan with this digest, whatever their share."""

    def record_release(self, state: TableState, policy: RemoveOrphanFilesPolicy, release: Release) -> None:
        """Stores the release of an expiry, before its commit. Raises RefusedError ICM-110 to 114, 125."""

    def remove_released(
        self,
        state: TableState,
        policy: RemoveOrphanFilesPolicy,
        *,
        in_flight: frozenset[str],
        holds: Callable[[], bool],
    ) -> ReleasedWork:
        """Deletes released files that were retained for `delete_after_seconds`, and begins the retention of the files of all stored
        releases, by the way of the policy. Lists only the trash and metadata, unless files are deleted. Errors
        other than FenceLostError are in `stopped`."""

    def second_owner(self, state: TableState, policy: RemoveOrphanFilesPolicy) -> UnloggedMetadata:
        """Returns the sign of a second owner, from one listing of the table's metadata folders. Raises
        RefusedError ICM-111 if a scan would be refused for it."""


class Reachability(Protocol):
    """Every file that one table's metadata reaches. Each call reads the catalog again."""

    def metadata_location(self) -> str:
        """Returns the current pointer of the catalog. Raises UnknownTableError ICM-126."""

    def log(self) -> MetadataLog:
        """Returns the current pointer of the catalog and its metadata log. Raises UnknownTableError ICM-126,
        UnreadableTableError ICM-101, and RefusedError ICM-129 if the name now belongs to another table."""

    def paths(self) -> Iterator[str]:
        """Streams every file that the current metadata reaches, in no order. A file may occur more than
        once.

        The files of a manifest that an earlier call of this object has read do not occur again, so callers
        keep them. Raises UnreadableTableError ICM-101 if anything cannot be read, and RefusedError ICM-129
        if the name now belongs to another table.
        """

    def names(self) -> Iterator[str]:
        """Every file that the current metadata name without a manifest being opened: metadata files,
        statistics files, manifest lists and manifests. Raises what `paths` raises."""

    def manifests(self, manifest_list: str) -> Sequence[Manifest]:
        """The manifests of a removed snapshot's manifest list; () if that is missing or damaged."""

    def files(self, manifest: Manifest) -> Iterator[NamedFile]:
        """The live files of a manifest of removed snapshots; none if that is missing or damaged."""

    def pending(self, location: str, data: bytes, *, certain: bool) -> Sequence[str] | None:
        """Returns the live files of a manifest that no snapshot has, from its bytes. None for an Avro file
        that is not a manifest. With `certain` its name says that it is one, and it raises
        UnreadableTableError ICM-101 instead."""

    def second_opinion(self, most: int) -> Iterator[str]:
        """Streams files that the last call of `paths` must have returned, read by another decoder: all files
        of a small table, a sample of about `most` files of a large one. Raises UnreadableTableError ICM-101.
        """
