"""The disk under the lake's tables: what is stored where, since when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from iceberg_maint.ports.storage import StoredFile


class Disk:
    """Files by path, each with the time it was written. `lines` are the contents of what is no data file; `origin` is where a file
    was before it was moved."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.files: dict[str, StoredFile] = {}
        self.lines: dict[str, list[bytes]] = {}
        self.origin: dict[str, str] = {}

    def put(self, path: str, size_bytes: int, lines: Iterable[bytes] | None = None) -> None:
        self.files[path] = StoredFile(path, size_bytes, self._now_ms())
        if lines is not None:
            self.lines[path] = list(lines)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        start = prefix.rstrip("/") + "/"
        return iter([f for path, f in self.files.items() if path.startswith(start)])

    def stat(self, path: str) -> StoredFile | None:
        return self.files.get(path)

    def move(self, source: str, target: str) -> None:
        if source not in self.files:
            raise FileNotFoundError(source)
        if target in self.files:
            raise FileExistsError(target)
        file = self.files.pop(source)
        self.files[target] = StoredFile(target, file.size_bytes, file.modified_ms)
        if source in self.lines:
            self.lines[target] = self.lines.pop(source)
        self.origin[target] = source

    def delete(self, path: str) -> None:
        self.files.pop(path, None)
        self.lines.pop(path, None)
