"""What an expiry of 490 of 500 snapshots releases: its files removed by ours and by Iceberg's own action.

Called by `bench.removal.housekeeping`. Ours goes the product's way: the release is stored, the expiry commits, the files
are proved unreferenced and retained in the trash or in place; after the hold they are proved again and deleted. Stock
commits and deletes at once. All must leave the same files.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.used import cpu_seconds, peak_mb

KEPT = 10
TABLE = "lake.db.worn"


def measure(
    bridge: Any, spark: Any, folder: Path, expiry: Callable[..., Callable[[str], None]] | None, hold: str
) -> dict[str, Any]:
    """One removal in this process, which has warmed up and whose catalog has the table. `expiry` is the way of
    the product with the files retained so; without it Iceberg's own action runs."""
    from bench.removal.worn_table import files_at_their_places

    read_before = _jvm_bytes_read(bridge)
    cpu, start = cpu_seconds(), time.monotonic()
    figures = _ours(spark, folder, expiry, hold) if expiry is not None else _stock(bridge)
    figures |= {"wall_seconds": time.monotonic() - start, "cpu_seconds": cpu_seconds() - cpu}
    figures["read_mb"] = figures.get("read_mb", 0.0) + (_jvm_bytes_read(bridge) - read_before) / 1e6
    figures["jvm_peak_mb"] = peak_mb(_jvm_pid(bridge))
    left = files_at_their_places()
    digest = hashlib.sha256("\n".join(sorted(left)).encode()).hexdigest()
    return {**figures, "left": len(left), "digest": digest}


def _stock(bridge: Any) -> dict[str, Any]:
    """Iceberg's own action with its defaults: it deletes what it expires."""
    action = bridge.iceberg.spark.actions.SparkActions.get(bridge.session).expireSnapshots(
        bridge.load_table(TABLE)
    )
    action.expireOlderThan(int(time.time() * 1000)).retainLast(KEPT).execute()
    return {}


def _ours(
    spark: Any, folder: Path, expiry: Callable[..., Callable[[str], None]], hold: str
) -> dict[str, Any]:
    from pyiceberg.io import FileIO

    from iceberg_maint.catalog.adapter import PyIcebergCatalog
    from iceberg_maint.catalog.local_store import LocalStore
    from iceberg_maint.catalog.location_owners import FleetLocationOwners
    from iceberg_maint.catalog.manifests import metadata_file
    from iceberg_maint.catalog.reachable_files import MetadataWalk
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.core.policy.housekeeping import ReleasedRetention, RemoveOrphanFilesPolicy
    from iceberg_maint.core.removal.released_file_rules import release_of
    from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval
    from iceberg_maint_tests.support.catalog.claim_memory import ClaimMemory

    table, ahead_ms = TableId.parse(TABLE), [0]
    policy = RemoveOrphanFilesPolicy(released_files=ReleasedRetention(hold))
    catalog = PyIcebergCatalog("lake", {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}"})
    claims: Any = ClaimMemory()
    reads = {"files": 0, "bytes": 0}
    read_bytes = metadata_file.read_bytes

    def counted(io: FileIO, location: str, what: str) -> bytes:
        data = read_bytes(io, location, what)
        reads["files"], reads["bytes"] = reads["files"] + 1, reads["bytes"] + len(data)
        return data

    metadata_file.read_bytes = counted

    class Later(LocalStore):
        """The local file system, once the retention is over."""

        def now_ms(self, folder: str) -> int:
            return super().now_ms(folder) + ahead_ms[0]

    def made() -> OrphanRemoval:
        return OrphanRemoval(
            CleanupContext(
                others=FleetLocationOwners({"lake": catalog}, claims).others,
                store=lambda _state: Later(),
                reachability=lambda state: MetadataWalk(catalog, state.table, state.uuid),
                scratch=folder / "scratch",
                now_ms=lambda: int(time.time() * 1000) + ahead_ms[0],
            )
        )

    seconds: dict[str, float] = {}
    started = time.monotonic()

    def step(name: str) -> None:
        nonlocal started
        seconds[f"{name}_seconds"], started = time.monotonic() - started, time.monotonic()

    def record(batch: Any, state: Any) -> None:
        document = catalog.metadata_document(table, state.metadata_location)
        release = release_of(batch.batch_id, state, document, batch.work.snapshots)
        made().record_release(state, policy, release)
        step("plan_and_record")

    expiry(spark, folder, "expire_snapshots", record)(TABLE)
    step("commit")
    retained = made().remove_released(catalog.pin(table), policy, in_flight=frozenset(), holds=lambda: True)
    assert retained.stopped is None, retained.stopped
    step("hold")
    files_read_to_hold = reads["files"]
    ahead_ms[0] = (policy.delete_after_seconds + 60) * 1000
    deleted = made().remove_released(catalog.pin(table), policy, in_flight=frozenset(), holds=lambda: True)
    assert (deleted.stopped, deleted.deleted_files) == (None, retained.released_files), deleted
    step("delete")
    metadata_file.read_bytes = read_bytes
    return {
        **seconds,
        "released_files": retained.released_files,
        "metadata_files_read_to_hold": files_read_to_hold,
        "metadata_files_read": reads["files"],
        "read_mb": reads["bytes"] / 1e6,
    }


def _jvm_bytes_read(bridge: Any) -> int:
    """What the JVM has read through Hadoop's file systems."""
    statistics = bridge.jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics()
    return sum(int(s.getBytesRead()) for s in bridge.iterate(statistics))


def _jvm_pid(bridge: Any) -> int:
    return int(bridge.jvm.java.lang.ProcessHandle.current().pid())
