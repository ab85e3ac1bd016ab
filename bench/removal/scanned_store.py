"""Looks for orphans by the program, on tables and stores that are given or made up."""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from bench.worker import PROJECT

TABLE = "lake.db.t"
MADE_UP = "s3://bucket/w/t"
"""The table of `bench.removal.made_up_s3`."""


class Reached:
    """The reachability of a table whose metadata names these paths."""

    def __init__(self, location: str, paths: Callable[[], Iterator[str]]) -> None:
        self._location, self._paths = location, paths

    def metadata_location(self) -> str:
        return f"{self._location}/metadata/1.metadata.json"

    def log(self) -> Any:
        from iceberg_maint.core.removal.orphan_rules import MetadataLog

        return MetadataLog(self.metadata_location(), 0, 0, 0, ())

    def paths(self) -> Iterator[str]:
        return self._paths()

    def names(self) -> Iterator[str]:
        return self._paths()

    def manifests(self, _manifest_list: str) -> tuple[()]:
        return ()

    def files(self, _manifest: Any) -> Iterator[Any]:
        return iter(())

    def pending(self, _location: str, _data: bytes, *, certain: bool) -> None:
        assert not certain

    def second_opinion(self, most: int) -> Iterator[str]:
        return islice(self._paths(), most)


def table_state(location: str) -> Any:
    """An empty table at this location."""
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.core.model.table_state import TableState

    return TableState(
        table=TableId.parse(TABLE),
        uuid="1",
        location=location,
        format_version=2,
        metadata_location=f"{location}/metadata/1.metadata.json",
        metadata_bytes=0,
        last_updated_ms=0,
        last_sequence_number=0,
        schema_id=0,
        current_spec_id=0,
        specs={},
        sort_order_id=0,
        properties={},
        refs=(),
        snapshot=None,
        snapshots=(),
        manifests=(),
    )


@contextmanager
def made_up_store(objects: int) -> Iterator[tuple[Any, Callable[[], dict[str, int]]]]:
    """The program's own store of an S3 endpoint in another process that makes so many objects up, and what returns the
    number of requests by kind."""
    import urllib.request

    from pyiceberg.io.pyarrow import PyArrowFileIO

    from iceberg_maint.catalog.approved_io import open_store
    from iceberg_maint.catalog.s3_store import S3Store

    command = [sys.executable, "-m", "bench.removal.made_up_s3", str(objects)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            properties = {"s3.endpoint": endpoint, "s3.region": "us-east-1"}
            properties |= {"s3.access-key-id": "key", "s3.secret-access-key": "secret"}
            store = open_store(PyArrowFileIO(properties), MADE_UP)
            assert isinstance(store, S3Store)

            def counts() -> dict[str, int]:
                with urllib.request.urlopen(f"{endpoint}/counts") as answer:
                    found: dict[str, int] = json.load(answer)
                    return found

            yield store, counts
        finally:
            server.terminate()


def scanned(state: Any, **context: Any) -> dict[str, Any]:
    """The figures of a scan by the program."""
    from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
    from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval

    with tempfile.TemporaryDirectory(prefix="bench-orphans-") as scratch:
        world = CleanupContext(**context, scratch=Path(scratch), now_ms=lambda: time.time_ns() // 1_000_000)
        looking = OrphanRemoval(world).scan(state, RemoveOrphanFilesPolicy(), in_flight=frozenset())
        with looking as found:
            digest, orphans = (
                digest_of_paths(o.path for o in found.paths.orphans()),
                found.counts.orphan_files,
            )
            on_disk = sum(p.stat().st_size for p in Path(scratch).rglob("*.db"))
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.time() - process_start(),
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
        "scratch_mb": on_disk / 1e6,
        "digest": digest,
        "orphans": orphans,
    }


def process_start() -> float:
    """Returns when this process was started, in seconds since the epoch."""
    import psutil

    return psutil.Process().create_time()


def digest_of_paths(paths: Iterator[str]) -> str:
    """Returns the SHA-256 of paths in their order, as hexadecimal digits."""
    found = hashlib.sha256()
    for path in paths:
        found.update(path.encode() + b"\n")
    return found.hexdigest()
