"""What the commit gate adds to a commit on a table with 200,000 live files.

    python -m bench.metadata.gate [--rounds N]

Every round commits, metadata only and through the gate: a rewrite of twenty files of one partition, so that
one manifest changes; a rewrite of two files of each of the twelve manifests, so that all change; a conversion
that drops the equality deletes of one partition for twenty deletion vectors. Counted is what the gate does
between Iceberg's call and the swap: reading the change back from the manifests and checking every rule. CPU
seconds of this process, medians; the whole commit (Iceberg's own part included) is shown beside it. Exits 1
when the target, which is for one manifest, is missed.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from rich.console import Console
from rich.table import Table

from bench.metadata.large_table import MANIFESTS, large_table
from bench.record import publish
from bench.used import jvm_process
from iceberg_maint.catalog.manifests.entries import read_entries
from iceberg_maint.catalog.manifests.reader import make_reader, read_manifest_list
from iceberg_maint.core.commits.change import MetadataReader
from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import AddedDelete, GroupIntent, Intent
from iceberg_maint.core.commits.planned_files import PlannedFile
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.partition_key import FIRST_SPEC_ID, encode_partition
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.engines.spark.commit.gate import Gate, inspecting_files
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.scan.scan import partition_specs
from iceberg_maint_tests.support.context import commit_context

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".cache"
TABLE = "lake.db.large"
LIMIT_SECONDS = 0.3
FILES = 20
CASES = {
    "one": "a rewrite in one manifest",
    "all": f"a rewrite in all {MANIFESTS} manifests",
    "conversion": "a conversion of one partition",
}


class TimedGate(Gate):
    """Notes the CPU seconds of this process when Iceberg hands over and when the swap may happen."""

    started = 0.0

    def commit(self, base: Any, metadata: Any) -> None:
        self.started = time.process_time()
        super().commit(base, metadata)


@dataclass
class Partition:
    """One partition's key and the Java files that lie in it."""

    key: PartitionKey
    data: list[Any] = field(default_factory=list)
    equality_deletes: list[Any] = field(default_factory=list)
    vectors: list[Any] = field(default_factory=list)


@dataclass
class Commit:
    """The groups of one commit, the equality deletes it drops, and how its operation is set up."""

    groups: tuple[GroupIntent, ...]
    dropped: frozenset[str]
    data_files: tuple[PlannedFile, ...]
    delete_files: tuple[PlannedFile, ...]
    prepare: Callable[[Any], Any]


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    source = large_table()
    before = set(source.rglob("*"))
    try:
        with tempfile.TemporaryDirectory(prefix="bench-gate-") as scratch:
            database = Path(scratch) / "catalog.db"
            shutil.copy(source / "catalog.db", database)
            figures = _measure(_session(database, source), rounds)
    finally:
        for left in sorted(set(source.rglob("*")) - before, reverse=True):
            left.unlink() if left.is_file() else left.rmdir()
    return _report(figures)


def _session(database: Path, warehouse: Path) -> Any:
    from iceberg_maint.engines.spark.session.jars import ivy_fetch, load_lock, resolve_jars
    from iceberg_maint.engines.spark.session.java import find_java
    from iceberg_maint.engines.spark.session.session import build_session
    from iceberg_maint.engines.spark.session.settings import SparkSettings, catalog_conf

    java = find_java(os.environ, shim_dir=CACHE / "java")
    os.environ["JAVA_HOME"] = str(java.path)
    jars = resolve_jars(load_lock().jars, CACHE / "jars", ivy_fetch(java))
    lake = catalog_conf("lake", "jdbc", f"sqlite:///{database}", warehouse.as_uri(), {})
    return build_session(SparkSettings("local[2]", tuple(map(str, jars)), {"lake": lake}))


def _measure(spark: Any, rounds: int) -> dict[str, dict[str, list[float]]]:
    bridge = Bridge(spark)
    jvm = jvm_process(spark)
    figures: dict[str, dict[str, list[float]]] = {
        case: {"gate": [], "commit": [], "commit_jvm": []} for case in CASES
    }
    commits = _commits(bridge, 1 + rounds)
    for number in range(1 + rounds):
        for case in CASES:
            commit = next(commits)
            ended: list[float] = []
            gc.collect()
            java_before, whole = sum(jvm.cpu_times()[:2]), time.process_time()
            gate = _commit(bridge, commit, partial(_note_end, ended))
            if number == 0:
                continue  # the JVM compiles and imports happen here
            figures[case]["gate"].append(ended[0] - gate.started)
            figures[case]["commit"].append(time.process_time() - whole)
            figures[case]["commit_jvm"].append(sum(jvm.cpu_times()[:2]) - java_before)
    spark.stop()
    return figures


def _commits(bridge: Bridge, rounds: int) -> Iterator[Commit]:
    """The commits of all rounds in the order of `CASES`, no file in two of them."""
    table = bridge.load_table(TABLE)
    manifests = list(table.currentSnapshot().dataManifests(table.io()))
    # Rewrites take the second partition of a manifest, 200 files; conversions the ones after it.
    whole = [_partitions(bridge, table, manifest, 2)[1] for manifest in manifests]
    wanted = _partitions(bridge, table, manifests[0], 2 + 2 * rounds)[2:]
    _add_deletes(bridge, table, {p.key: p for p in wanted})
    converted = [p for p in wanted if p.equality_deletes][:rounds]
    used = rounds * FILES
    for number in range(rounds):
        yield _rewrite(bridge, table, whole[:1], slice(number * FILES, (number + 1) * FILES), f"one-{number}")
        pair = slice(used + 2 * number, used + 2 * number + 2)
        yield _rewrite(bridge, table, whole, pair, f"all-{number}")
        yield _conversion(bridge, table, converted[number], number)


def _partitions(bridge: Bridge, table: Any, manifest: Any, count: int) -> list[Partition]:
    """The first partitions of a data manifest, which lists them one after the other."""
    key_of = _key_of(bridge, table)
    found: dict[str, Partition] = {}
    for file in bridge.iterate(bridge.iceberg.ManifestFiles.read(manifest, table.io(), table.specs())):
        key = key_of(file)
        if key not in found and len(found) == count:
            break
        found.setdefault(key, Partition(key)).data.append(file.copy())
    return list(found.values())


def _add_deletes(bridge: Bridge, table: Any, partitions: dict[str, Partition]) -> None:
    key_of = _key_of(bridge, table)
    for manifest in table.currentSnapshot().deleteManifests(table.io()):
        opened = bridge.iceberg.ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
        for file in bridge.iterate(opened):
            place = partitions.get(key_of(file))
            if place is not None and file.equalityFieldIds() is not None:
                place.equality_deletes.append(file.copy())
            elif place is not None and file.contentOffset() is not None:
                place.vectors.append(file.copy())


def _key_of(bridge: Bridge, table: Any) -> Callable[[Any], PartitionKey]:
    spec, value = partition_specs(bridge, table)[0], bridge.java_class("java.lang.Object")

    def key(file: Any) -> PartitionKey:
        partition = file.partition()
        values = [partition.get(i, value) for i in range(len(spec.fields))]
        return encode_partition(spec, values, FIRST_SPEC_ID)

    return key


def _rewrite(bridge: Bridge, table: Any, partitions: Sequence[Partition], chosen: slice, name: str) -> Commit:
    """Some files of every partition become one."""
    spec_id, pinned = int(table.spec().specId()), bridge.load_table(TABLE).currentSnapshot()
    groups, removed, added = [], [], []
    planned: list[PlannedFile] = []
    for number, partition in enumerate(partitions):
        sources = partition.data[chosen]
        path = f"{table.location()}/data/rewritten-{name}-{number}.parquet"
        output = (
            bridge.iceberg.DataFiles.builder(table.spec())
            .withPath(path)
            .withFormat(bridge.iceberg.FileFormat.PARQUET)
            .withFileSizeInBytes(1 << 28)
            .withRecordCount(1000)
            .withPartition(sources[0].partition())
            .build()
        )
        groups.append(GroupIntent(partition.key, spec_id, spec_id, _paths(sources), frozenset({path})))
        planned += _planned(sources, partition.key)
        removed += sources
        added.append(output)

    def prepare(table: Any) -> Any:
        rewrite = table.newRewrite().validateFromSnapshot(pinned.snapshotId())
        rewrite.dataSequenceNumber(pinned.sequenceNumber())
        for file in removed:
            rewrite.deleteFile(file)
        for file in added:
            rewrite.addFile(file)
        return rewrite

    return Commit(tuple(groups), frozenset(), tuple(planned), (), prepare)


def _conversion(bridge: Bridge, table: Any, partition: Partition, number: int) -> Commit:
    """Files of a partition get deletion vectors, and its equality deletes go."""
    spec_id, pinned = int(table.spec().specId()), bridge.load_table(TABLE).currentSnapshot()
    path = f"{table.location()}/data/marks-{number}.puffin"
    marked = [str(f.location()) for f in partition.data[:FILES]]
    old = {str(v.referencedDataFile()): v for v in partition.vectors}
    vectors = [
        bridge.iceberg.FileMetadata.deleteFileBuilder(table.spec())
        .ofPositionDeletes()
        .withPath(path)
        .withFormat(bridge.iceberg.FileFormat.PUFFIN)
        .withFileSizeInBytes(1 << 20)
        .withRecordCount(1000)
        .withPartition(partition.data[0].partition())
        .withReferencedDataFile(data_file)
        .withContentOffset(4 + 900 * index)
        .withContentSizeInBytes(900)
        .build()
        for index, data_file in enumerate(marked)
    ]
    deletes = tuple(
        AddedDelete(
            (path, 4 + 900 * index),
            FileKind.DELETION_VECTOR,
            data_file,
            1000,
            (str(old[data_file].location()),) if data_file in old else (),
        )
        for index, data_file in enumerate(marked)
    )
    removed = [*partition.equality_deletes, *(old[f] for f in marked if f in old)]

    def prepare(table: Any) -> Any:
        delta = table.newRowDelta().validateFromSnapshot(pinned.snapshotId())
        delta.validateDeletedFiles().validateDataFilesExist(bridge.list(marked))
        for file in vectors:
            delta.addDeletes(file)
        for file in removed:
            delta.removeDeletes(file)
        return delta

    group = GroupIntent(partition.key, spec_id, spec_id, examined=_paths(partition.data), deletes=deletes)
    deleting = [*partition.equality_deletes, *partition.vectors]
    return Commit(
        (group,),
        _paths(partition.equality_deletes),
        _planned(partition.data, partition.key),
        _planned(deleting, partition.key),
        prepare,
    )


def _note_end(ended: list[float]) -> bool:
    ended.append(time.process_time())
    return True


def _planned(files: Iterable[Any], key: PartitionKey) -> tuple[PlannedFile, ...]:
    found = []
    for file in files:
        offset = file.contentOffset() if str(file.content().toString()) != "DATA" else None
        size = file.fileSizeInBytes() if offset is None else file.contentSizeInBytes()
        number, spec_id = file.dataSequenceNumber() or 0, int(file.specId())
        found.append(
            PlannedFile((str(file.location()), offset), spec_id, key, number, file.recordCount(), size)
        )
    return tuple(found)


def _paths(files: Iterable[Any]) -> frozenset[str]:
    return frozenset(str(f.location()) for f in files)


def _commit(bridge: Bridge, commit: Commit, holds: Callable[[], bool]) -> TimedGate:
    table = bridge.load_table(TABLE)
    pinned = table.currentSnapshot()
    intent = Intent(
        str(table.uuid()),
        int(table.operations().current().formatVersion()),
        int(pinned.snapshotId()),
        int(pinned.sequenceNumber()),
        int(table.schema().schemaId()),
        commit.groups,
        commit.dropped,
        data_files=commit.data_files,
        delete_files=commit.delete_files,
    )
    io = PyArrowFileIO()
    reader = MetadataReader(
        lambda at: read_manifest_list(io, at), make_reader(io), lambda m: read_entries(io, m)
    )
    context = commit_context("token", 1, "bench", 1, holds, lambda *_: None)
    inspect = inspecting_files(bridge, intent, reader, context, check)
    gate = TimedGate(bridge, table.operations(), inspect, context)
    with bridge.callbacks():
        commit.prepare(gate.table(TABLE)).commit()
    return gate


def _report(figures: dict[str, dict[str, list[float]]]) -> int:
    missed = statistics.median(figures["one"]["gate"]) > LIMIT_SECONDS
    table = Table("figure", "CPU s, median", "limit", "spread")
    for case, title in CASES.items():
        for name, label in (
            ("gate", "the gate"),
            ("commit", "the whole commit, Python"),
            ("commit_jvm", "the whole commit, JVM"),
        ):
            values = figures[case][name]
            limited = case == "one" and name == "gate"
            limit = f"{LIMIT_SECONDS:g}{' MISSED' if missed else ''}" if limited else ""
            spread = f"{min(values):.3f} to {max(values):.3f}"
            table.add_row(f"{title}: {label}", f"{statistics.median(values):.3f}", limit, spread)
    Console().print(table)
    medians = {
        f"{case}_{name}_cpu_seconds": round(statistics.median(values), 4)
        for case, of_case in figures.items()
        for name, values in of_case.items()
    }
    publish("gate", {**medians, "limit": LIMIT_SECONDS})
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
