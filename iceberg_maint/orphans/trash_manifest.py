"""Trash manifests: one file of lines per mark, first its header, then each file it sets aside.

What lies in a trash folder is told by them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.removal.orphans import (
    TRASH,
    HeldOrphans,
    MarkHeader,
    Orphan,
    TrashedFile,
    held_orphans,
)
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.ports.storage import Store


@dataclass(frozen=True, slots=True)
class TrashMark:
    """A manifest: where it is, and how many files and bytes it set aside. `restored`: all are back
    at their places, and no scan takes them for orphans while the manifest is there."""

    header: MarkHeader
    location: str
    files: int
    size_bytes: int
    restored: bool


def mark_location(header: MarkHeader) -> str:
    """Where the manifest of a mark is."""
    return f"{_folder(header.prefix, 'marks')}/{header.mark_id}.jsonl"


def restored_location(header: MarkHeader) -> str:
    """Where the manifest of a mark is once all its files are back at their places."""
    return f"{_folder(header.prefix, 'restored')}/{header.mark_id}.jsonl"


def trashed_file(orphan: Orphan, prefix: str, mark_id: str, why: str) -> TrashedFile:
    """The line of an orphan below a prefix."""
    below = orphan.path[len(prefix.rstrip("/")) :]
    place = files_folder(prefix, mark_id) + below
    return TrashedFile(orphan.path, place, orphan.size_bytes, orphan.modified_ms, why)


def mark_lines(header: MarkHeader, files: Iterable[TrashedFile]) -> Iterator[bytes]:
    """The manifest's content."""
    yield dumps(header).encode() + b"\n"
    for file in files:
        yield dumps(file).encode() + b"\n"


def read_marks(prefixes: Iterable[str], store: Store) -> Iterator[MarkHeader]:
    """The marks in the trash of the prefixes, in no order. Raises UnreadableTableError ICM-101 for
    a manifest that cannot be read."""
    return (header for prefix in prefixes for header, _ in _read(prefix, "marks", store))


def trash_marks(prefixes: Iterable[str], store: Store) -> list[TrashMark]:
    """All marks in the trash of the prefixes, oldest first. Raises UnreadableTableError ICM-101."""
    found = []
    for prefix in prefixes:
        for kind in ("marks", "restored"):
            for header, location in _read(prefix, kind, store):
                files, size_bytes = 0, 0
                for file in files_of(store, header, location):
                    files, size_bytes = files + 1, size_bytes + file.size_bytes
                found.append(TrashMark(header, location, files, size_bytes, kind == "restored"))
    return sorted(found, key=lambda m: (m.header.marked_ms, m.location))


def held_in_trash(prefixes: Iterable[str], store: Store, most_paths: int) -> Iterator[HeldOrphans]:
    """What the trash of the prefixes holds for a later sweep, in no order. Raises UnreadableTableError
    ICM-101."""
    for prefix in prefixes:
        for header, location in _read(prefix, "marks", store):
            lines = files_of(store, header, location)
            files = (Orphan(f.path, f.size_bytes, f.modified_ms) for f in lines)
            yield held_orphans(header.mark_id, header.marked_ms, files, (prefix,), most_paths)


def restored_paths(prefixes: Iterable[str], store: Store) -> Iterator[str]:
    """The files that were put back, wherever they are by now. Raises UnreadableTableError ICM-101."""
    for prefix in prefixes:
        for header, location in _read(prefix, "restored", store):
            yield from (file.path for file in files_of(store, header, location))


def files_of(store: Store, header: MarkHeader, location: str) -> Iterator[TrashedFile]:
    """The files of the manifest at the location. Raises UnreadableTableError ICM-101 for a line that
    is none, or that names a file elsewhere."""
    root, folder = header.prefix.rstrip("/"), files_folder(header.prefix, header.mark_id)
    lines = iter(store.read_lines(location))
    next(lines)
    for line in lines:
        with _readable(location):
            file = loads(TrashedFile, line.decode())
            if not file.path.startswith(f"{root}/") or file.trash_path != folder + file.path[len(root) :]:
                raise ValueError(f"it names {file.path} as {file.trash_path}")
        yield file


def _read(prefix: str, kind: str, store: Store) -> Iterator[tuple[MarkHeader, str]]:
    folder = _folder(prefix, kind)
    for file in store.list(folder):
        with _readable(file.path):
            header = loads(MarkHeader, next(iter(store.read_lines(file.path))).decode())
            if f"{_folder(header.prefix, kind)}/{header.mark_id}.jsonl" != file.path:
                raise ValueError(f"it is that of {header.mark_id} of {header.prefix}")
        yield header, file.path


def trash_folder(prefix: str) -> str:
    """The trash below a prefix."""
    return f"{prefix.rstrip('/')}/{TRASH}"


def _folder(prefix: str, kind: str) -> str:
    return f"{trash_folder(prefix)}/{kind}"


def files_folder(prefix: str, mark_id: str) -> str:
    """Where the files of a mark are set aside."""
    return f"{_folder(prefix, 'files')}/{mark_id}"


@contextmanager
def _readable(location: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, StopIteration) as error:
        raise UnreadableTableError(
            "ICM-101",
            f"trash manifest {location} cannot be read: {error}. Nothing of it was touched.",
            "repair it; each of its lines names one file.",
        ) from error
