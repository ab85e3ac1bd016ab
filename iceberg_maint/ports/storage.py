"""The seams to file storage: a store that lists, moves and deletes, and what metadata reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from iceberg_maint.core.model.table_state import Manifest, TableState
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphans import HeldOrphans
from iceberg_maint.core.removal.released_files import NamedFile, Release
from iceberg_maint.core.removal.unlogged_metadata import MetadataLog, UnloggedMetadata


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as its store lists it, in the spelling of the location that was asked for.
    `modified_ms` is the store's time, None where it tells none."""

    path: str
    size_bytes: int
    modified_ms: int | None


class Store(Protocol):
    """Files of one table. Raises RefusedError ICM-125 where access is denied."""

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Every file below the prefix, in no order, streamed; links are not followed. A prefix
        that does not exist holds none."""
        ...

    def stat(self, path: str) -> StoredFile | None:
        """The file, or None when there is none."""
        ...

    def now_ms(self, folder: str) -> int:
        """The store's clock: the time of a file it is given to write in the folder, and which is
        removed again. Proves on the way that files can be written and deleted."""
        ...

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """The whole file, or so much of its beginning. Raises FileNotFoundError."""
        ...

    def read_lines(self, path: str) -> Iterator[bytes]:
        """The file line by line, streamed. Raises FileNotFoundError."""
        ...

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        """Writes a new file; once it returns the file outlives a crash."""
        ...

    def move(self, source: str, target: str) -> None:
        """Moves a file within a store. Raises FileExistsError rather than replace one, and
        FileNotFoundError."""
        ...

    def delete(self, path: str) -> None:
        """Deletes a file, if there is one."""
        ...

    def tidy(self, folder: str) -> None:
        """Removes what is left of a folder that holds no file any more; else nothing."""
        ...


@dataclass(frozen=True, slots=True)
class OrphanWork:
    """What one pass did. `digest` is what a person approves where `needs_approval`; nothing was
    moved then. `marks` are the trash manifests written; `restored_files` were in the trash and
    reached after all, `left_files` are still in it although their hold is over. `held` is what the
    trash holds at the end and what waits for approval, None when that cannot be told. `unlogged` is the
    sign of a second owner, None where nothing was scanned. `stopped` is what ended the pass after part
    of this had been done."""

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
    held: tuple[HeldOrphans, ...] | None = None
    unlogged: UnloggedMetadata | None = None
    stopped: Exception | None = None
    released: ReleasedWork | None = None


@dataclass(frozen=True, slots=True)
class ReleasedWork:
    """What was done with the files that expiries released: `released` were moved to the trash, `deleted`
    were deleted from it after the hold, `held` are in it at the end. `skipped` files stay for an orphan
    pass: they are gone, or may be other files. `stopped` is what ended the work."""

    released_files: int = 0
    released_bytes: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    held_files: int = 0
    held_bytes: int = 0
    skipped_files: int = 0
    stopped: Exception | None = None


class OrphanFiles(Protocol):
    """Removes the files of one table that nothing reaches: mark, trash, sweep."""

    def run(
        self,
        state: TableState,
        policy: RemoveOrphanFilesPolicy,
        *,
        in_flight: frozenset[str],
        sweep: bool,
        takes_released: bool = True,
        holds: Callable[[], bool],
    ) -> OrphanWork:
        """Sweeps what has been in the trash long enough, if asked to, then puts there what nothing
        reaches now. With `takes_released` the files of stored releases go there first; without it they stay. `in_flight` are files written and not yet committed; `holds` asks whether the
        lease is still ours. Raises RefusedError ICM-110 to 115, 122, 125 where nothing was moved
        or deleted before it, else tells it as `stopped`; FenceLostError.
        """
        ...

    def approving(self, digest: str) -> OrphanFiles:
        """The same, which moves exactly the orphans of the scan with this digest, whatever their share."""
        ...

    def record_release(self, state: TableState, policy: RemoveOrphanFilesPolicy, release: Release) -> None:
        """Stores the release of an expiry, before its commit. Raises RefusedError ICM-110 to 114, 125."""
        ...

    def remove_released(
        self,
        state: TableState,
        policy: RemoveOrphanFilesPolicy,
        *,
        in_flight: frozenset[str],
        holds: Callable[[], bool],
    ) -> ReleasedWork:
        """Deletes released files that have been in the trash for the hold, then moves the files of all
        stored releases there. Lists only the trash and metadata, unless files are deleted. Errors other than
        FenceLostError are in `stopped`."""
        ...

    def second_owner(self, state: TableState, policy: RemoveOrphanFilesPolicy) -> UnloggedMetadata:
        """The sign of a second owner, by one listing of the table's metadata folders. Raises RefusedError
        ICM-111 where a pass would be refused for it."""
        ...


class Reachability(Protocol):
    """Every file that one table's metadata reaches, read from the catalog anew at each call."""

    def metadata_location(self) -> str:
        """The catalog's pointer now. Raises UnknownTableError ICM-126."""
        ...

    def log(self) -> MetadataLog:
        """The catalog's pointer and the metadata log that it names, read now. Raises UnknownTableError
        ICM-126, UnreadableTableError ICM-101, RefusedError ICM-102 when the table is another one by now."""
        ...

    def paths(self) -> Iterator[str]:
        """Every file that the current metadata reaches, in no order, streamed; the same file may
        come more than once.

        Of manifests that an earlier call of this object has read nothing comes again: callers
        keep what they were given. Raises UnreadableTableError ICM-101 where anything cannot be
        read, RefusedError ICM-102 when the table is another one by now.
        """
        ...

    def names(self) -> Iterator[str]:
        """Every file that the current metadata name without a manifest being opened: metadata files,
        statistics files, manifest lists and manifests. Raises what `paths` raises."""
        ...

    def manifests(self, manifest_list: str) -> Sequence[Manifest]:
        """The manifests of a removed snapshot's manifest list; () if that is missing or damaged."""
        ...

    def files(self, manifest: Manifest) -> Iterator[NamedFile]:
        """The live files of a manifest of removed snapshots; none if that is missing or damaged."""
        ...

    def pending(self, location: str, data: bytes, *, certain: bool) -> Sequence[str] | None:
        """The live files of a manifest that no snapshot has, from its bytes. None for an Avro file that
        is no manifest, unless its name makes it `certain` to be one. Raises UnreadableTableError
        ICM-101."""
        ...

    def second_opinion(self, most: int) -> Iterator[str]:
        """Files that the last call of `paths` must have given, found by another decoder: all of a
        small table, of a large one a sample of about `most`. Raises UnreadableTableError ICM-101.
        """
        ...
