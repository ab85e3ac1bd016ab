"""Storage and metadata as one process's orphan scan sees them, each call a step."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from iceberg_maint.core.model.table_state import Manifest, TableState
from iceberg_maint.core.removal.orphan_rules import MetadataLog
from iceberg_maint.core.removal.released_file_rules import NamedFile
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval
from iceberg_maint_tests.qualification.simulation.disk import Disk
from iceberg_maint_tests.qualification.simulation.process import Process
from iceberg_maint_tests.qualification.simulation.process_ports import ProcessClock

_MANIFEST = ".m0"


class ProcessStore:
    """`ports.storage.Store` over the lake's disk."""

    at_once, bulk, resumes = 1, 0, True

    def __init__(self, process: Process) -> None:
        self._process = process
        self._disk: Disk = process.world.lake.disk

    def list(self, prefix: str) -> Iterator[StoredFile]:
        found: Iterator[StoredFile] = self._step("list", lambda: self._disk.list(prefix))
        return found

    def list_after(self, prefix: str, after: str) -> Iterator[StoredFile]:
        listed = sorted(self.list(prefix), key=lambda file: file.path)
        return (file for file in listed if file.path > after)

    def stat(self, path: str) -> StoredFile | None:
        return self._disk.stat(path)

    def now_ms(self, _folder: str) -> int:
        return self._process.world.store_now_ms()

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        return b"".join(self._lines(path))[:most_bytes]

    def read_lines(self, path: str) -> Iterator[bytes]:
        return iter(self._lines(path))

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        content = list(lines)
        self._step("create", lambda: self._disk.put(path, sum(map(len, content)), content))

    def move(self, source: str, target: str) -> None:
        def move() -> None:
            self._process.world.watch.storage.moves(source)
            self._disk.move(source, target)

        self._step("move", move)

    def delete(self, path: str) -> None:
        def delete() -> None:
            self._process.world.watch.storage.deletes(path)
            self._disk.delete(path)

        self._step("delete", delete)

    def tidy(self, folder: str) -> None:
        pass

    def _lines(self, path: str) -> list[bytes]:
        if path not in self._disk.lines:
            raise FileNotFoundError(path)
        return self._disk.lines[path]

    def _step(self, name: str, call: Callable[[], Any]) -> Any:
        return self._process.step(name, call, lambda: OSError("the store does not answer"))


class ProcessReachability:
    """`ports.storage.Reachability`: what the catalog points at, which a cache may show as it was; the
    metadata file itself holds all snapshots, whatever a catalog would show of it."""

    def __init__(self, process: Process, state: TableState) -> None:
        self._process, self._state = process, state

    def metadata_location(self) -> str:
        return self._now().metadata_location

    def log(self) -> MetadataLog:
        now, table = self._now(), self._process.world.lake.every[self._state.uuid]
        log = table.log(now.metadata_location)
        oldest_ms = table.former[log[0]].last_updated_ms if log else now.last_updated_ms
        return MetadataLog(
            now.metadata_location, now.last_sequence_number, now.last_updated_ms, oldest_ms, tuple(log)
        )

    def paths(self) -> Iterator[str]:
        return self._process.step("reach", lambda: iter(self._reached()), _unreachable)  # type: ignore[no-any-return]

    def names(self) -> Iterator[str]:
        now = self._process.step("reach", self._now, _unreachable)
        yield now.metadata_location
        for snapshot in now.snapshots:
            yield from (snapshot.manifest_list, f"{snapshot.manifest_list}{_MANIFEST}")

    def manifests(self, manifest_list: str) -> Sequence[Manifest]:
        """A snapshot has one manifest of its own here; neither is on the disk."""
        return (Manifest(f"{manifest_list}{_MANIFEST}", 1, False, 0, *[1] * 3, *[0] * 5),)

    def files(self, manifest: Manifest) -> Iterator[NamedFile]:
        number = int(manifest.path.rpartition("/snap-")[2].partition(".")[0])
        for file in self._process.world.lake.every[self._state.uuid].files[number]:
            yield NamedFile(file.path, file.kind, file.size_bytes)

    def pending(self, _location: str, data: bytes, *, certain: bool) -> Sequence[str] | None:
        return data.decode().splitlines()

    def second_opinion(self, _most: int) -> Iterator[str]:
        return iter(self._reached())

    def _reached(self) -> list[str]:
        files = self._process.world.lake.every[self._state.uuid].files
        return sorted({f.path for s in self._now().snapshots for f in files[s.snapshot_id]})

    def _now(self) -> TableState:
        now = self._process.world.pointed_at(self._state.table)
        if now.uuid != self._state.uuid:
            raise RefusedError("ICM-129", "the table is another one by now.", "none")
        return now


def remove_orphans(process: Process) -> OrphanRemoval:
    """The real pass over the simulated disk."""
    clock = ProcessClock(process)
    return OrphanRemoval(
        CleanupContext(
            others=lambda _table: (),
            store=lambda _state: ProcessStore(process),
            reachability=lambda state: ProcessReachability(process, state),
            scratch=_scratch(),
            now_ms=clock.now_ms,
        )
    )


def forget_versions() -> None:
    """A world begins: what passes remember of metadata files is of tables of other worlds."""
    for memo in _scratch().glob("metadata-*"):
        memo.unlink()


def _unreachable() -> Exception:
    return ConnectionError("the catalog cannot be reached")


@functools.cache
def _scratch() -> Path:
    """One folder of local disk for all simulated processes, as they are on one machine."""
    made = tempfile.mkdtemp(prefix="iceberg-maint-simulation-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)
