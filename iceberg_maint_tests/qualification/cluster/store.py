"""moto's S3, which names the process that writes an object and can hold one write back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any

from iceberg_maint.demo import store
from iceberg_maint_tests.qualification.cluster.processes import Process, owner_of_port

BUCKET, REGION = store.BUCKET, store.REGION
KEY, SECRET = store.KEY_ID, store.SECRET
COPY = "killed-attempt-1"
"""Part of the name of a file that `add_old_copies` makes."""
HOLD_SECONDS = 120.0
"""A write is held back for no longer than this."""


@dataclass
class Watch:
    """The first write of an object whose path `matches`: the process that makes it. It ends after `release`."""

    matches: Callable[[str], bool]
    key: str = ""
    writer: Process | None = None
    caught: Event = field(default_factory=Event)
    release: Event = field(default_factory=Event)


class Store:
    """The WSGI application. `writers` are the processes that wrote data files, by table."""

    def __init__(self) -> None:
        self._app = store.moto_application()
        self._lock = Lock()
        self.watch: Watch | None = None
        self.writers: dict[str, list[Process]] = {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT":
            self._write(str(environ["PATH_INFO"]), int(environ["REMOTE_PORT"]))
        answer: Iterable[bytes] = self._app(environ, start_response)
        return answer

    def _write(self, path: str, port: int) -> None:
        watch = self.watch
        is_watched = watch is not None and not watch.caught.is_set() and watch.matches(path)
        is_data = path.endswith(".parquet")
        writer = owner_of_port(port) if is_data or is_watched else None
        with self._lock:
            if writer is not None and is_data:
                table = path.partition("/data/")[0].rpartition("/")[2]
                self.writers.setdefault(table, []).append(writer)
            if not is_watched or watch is None or watch.caught.is_set() or writer is None:
                return
            watch.key, watch.writer = path.lstrip("/").removeprefix(f"{BUCKET}/"), writer
            watch.caught.set()
        watch.release.wait(HOLD_SECONDS)

    @contextmanager
    def delaying(self, matches: Callable[[str], bool]) -> Iterator[Watch]:
        """Holds back the first write of a matching object inside the block."""
        watch = self.watch = Watch(matches)
        try:
            yield watch
        finally:
            self.watch = None
            watch.release.set()


def serving(application: Store) -> AbstractContextManager[str]:
    """Runs the store on a loopback port. Gives its address."""
    return store.serving(application)


def add_old_copies(prefix: str, number: int, age_seconds: float) -> int:
    """Copies data files under a prefix beside themselves, with a time in the past. Returns the number of copies."""
    return store.add_old_copies(prefix, number, age_seconds, f"{{:05}}-0-{COPY}.parquet")


def mirror(prefix: str, folder: Path) -> None:
    """Copies all objects under a prefix into a folder of this machine. Objects never change."""
    for key in sorted(store.bucket_of_moto().keys):
        path = folder / key
        if key.startswith(prefix) and not key.endswith("/") and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.bucket_of_moto().keys[key].value)


def keys(prefix: str) -> list[str]:
    """The keys under a prefix."""
    return sorted(k for k in store.bucket_of_moto().keys if k.startswith(prefix))


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits until a condition holds. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} after {seconds:g} seconds")
        time.sleep(0.2)
