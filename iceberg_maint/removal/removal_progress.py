"""What an orphan scan has done so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from iceberg_maint.core.removal.orphan_rules import RetainedOrphans, TrashBatchHeader
from iceberg_maint.ports.storage import OrphanWork, ReleasedWork
from iceberg_maint.removal.orphan_scan import Scan
from iceberg_maint.removal.released_lists import marks_of
from iceberg_maint.removal.target import Removal
from iceberg_maint.removal.trash_manifest import files_of, manifest_location, read_batch_headers


@dataclass(frozen=True, slots=True)
class TrashChange:
    """The result for the files of a trash batch. `left` files are still in the trash: another file is at
    their place, they differ from what was put there, or the metadata reference them in the trash. `released`: an
    expiry released the files."""

    mark_id: str
    deleted_files: int = 0
    deleted_bytes: int = 0
    restored_files: int = 0
    left_files: int = 0
    released: bool = False


@dataclass(slots=True)
class Moved:
    """The work of a mark so far: trash batches, and files moved to them or retained in place. `skipped` files were referenced,
    changed or deleted since they were found."""

    headers: list[TrashBatchHeader] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0
    skipped: int = 0


@dataclass(slots=True)
class RemovalProgress:
    """The work of a scan so far."""

    trash_changes: list[TrashChange] = field(default_factory=list)
    trashed: list[Moved] = field(default_factory=list)
    scan: Scan | None = None
    waiting: RetainedOrphans | None = None
    taken: list[Moved] = field(default_factory=list)
    marked: list[Moved] = field(default_factory=list)
    retained_released: tuple[int, int] = (0, 0)

    @property
    def begun(self) -> tuple[Moved, ...]:
        """The released files whose retention began."""
        return (*self.taken, *self.marked)

    @property
    def is_something(self) -> bool:
        """Returns whether a file was marked, moved or deleted."""
        return any(e.deleted_files or e.restored_files for e in self.trash_changes) or any(
            t.files for t in (*self.trashed, *self.begun)
        )

    def count_retained(self, removal: Removal) -> None:
        """Counts the released files that are retained, in the trash or in place."""
        target, store = removal.target, removal.store
        taken = {header.mark_id for t in self.taken for header in t.headers}
        files, size_bytes = (sum(getattr(t, name) for t in self.taken) for name in ("files", "size_bytes"))
        for header in read_batch_headers(target.prefixes, store):
            if header.released and header.mark_id not in taken:
                for file in files_of(store, header, manifest_location(header)):
                    files, size_bytes = files + 1, size_bytes + file.size_bytes
        for mark in marks_of(target.prefixes, target.state.uuid, store):
            files, size_bytes = files + mark.files, size_bytes + mark.size_bytes
        self.retained_released = files, size_bytes

    def released(self, stopped: Exception | None = None) -> ReleasedWork:
        """Returns the work on released files as one value."""
        trash_changes = [e for e in self.trash_changes if e.released]
        retained_files, retained_bytes = self.retained_released
        return ReleasedWork(
            released_files=sum(t.files for t in self.begun),
            released_bytes=sum(t.size_bytes for t in self.begun),
            deleted_files=sum(e.deleted_files for e in trash_changes),
            deleted_bytes=sum(e.deleted_bytes for e in trash_changes),
            retained_files=retained_files,
            retained_bytes=retained_bytes,
            skipped_files=sum(t.skipped for t in self.begun),
            stopped=stopped,
        )

    def work(
        self, retained: tuple[RetainedOrphans, ...] | None, stopped: Exception | None = None
    ) -> OrphanWork:
        """Returns the work as one value."""
        counts = self.scan.counts if self.scan else None
        return OrphanWork(
            listed_files=counts.listed_files if counts else 0,
            listed_bytes=counts.listed_bytes if counts else 0,
            orphan_files=counts.orphan_files if counts else 0,
            orphan_bytes=counts.orphan_bytes if counts else 0,
            trashed_files=sum(t.files for t in self.trashed),
            trashed_bytes=sum(t.size_bytes for t in self.trashed),
            swept_files=sum(e.deleted_files for e in self.trash_changes),
            swept_bytes=sum(e.deleted_bytes for e in self.trash_changes),
            restored_files=sum(e.restored_files for e in self.trash_changes),
            left_files=sum(e.left_files for e in self.trash_changes),
            marks=tuple(dict.fromkeys(h.mark_id for t in self.trashed for h in t.headers)),
            digest=self.scan.digest if self.scan else "",
            needs_approval=self.waiting is not None,
            retained=retained,
            unlogged=self.scan.unlogged if self.scan else None,
            stopped=stopped,
            released=self.released(),
        )
