"""Our planner against Iceberg's `BinPackRewriteFilePlanner`: the same tables, the same thresholds, the same
groups.

The tables are real to both planners and made of metadata only: neither opens a data file, and so sizes and
row counts can be drawn freely. Where ours differs on purpose, `docs/design/decisions/` says why and a test here
shows the difference:

- groups that would neither shrink in number nor apply a delete nor split a large file are left alone;
- files of an older spec stay in their own partitions, which Iceberg lumps together;
- files under equality deletes are left over, which Iceberg rewrites.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.health.metrics import SizeLimits
from iceberg_maint.core.health.thresholds import size_limits
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.planning.file_groups import PlanInputs, Rules, candidates
from iceberg_maint.core.planning.plan import Leftover
from iceberg_maint.core.planning.rewrite_data_files import plan_groups
from iceberg_maint.core.planning.work import FileGroup
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.support.spark.writers import Writers

pytestmark = [pytest.mark.spark, pytest.mark.drawn(2)]

TARGET = 1000
BY = {
    "": lambda _r: "",
    "p": lambda r: f"p={r.choice('abc')}",
    "bucket(4, id)": lambda r: f"id_bucket={r.randrange(4)}",
}
_names = itertools.count()


@dataclass(frozen=True)
class Group:
    """What both planners say of one file group."""

    paths: frozenset[str]
    expected_output_files: int


@dataclass(frozen=True)
class Lake:
    """Both planners on one catalog."""

    writers: Writers
    catalog: PyIcebergCatalog

    def theirs(self, name: str, policy: Policy) -> set[Group]:
        planner = self.writers.iceberg.actions.BinPackRewriteFilePlanner(self.writers.load(name))
        planner.init(self.writers.bridge.map(options(policy).items()))
        return {
            Group(
                frozenset(
                    str(t.file().location()) for t in self.writers.bridge.iterate(group.fileScanTasks())
                ),
                int(group.expectedOutputFiles()),
            )
            for group in self.writers.bridge.iterate(planner.plan().groups())
        }

    def ours(self, name: str, policy: Policy) -> tuple[list[FileGroup], list[Leftover]]:
        """All partitions taken as due for their sizes, so that the groups alone are compared."""
        state = self.catalog.pin(TableId.parse(name))
        keys = self.catalog.measure(state, policy.rewrite_data_files).partitions
        found = candidates(state.specs, self.catalog.live_files(state, keys))
        groups: list[FileGroup] = []
        leftovers: list[Leftover] = []
        decision = Decision(name, Operation.REWRITE_DATA_FILES, Verdict.RUN, Reason.SMALL_FILES, None)
        inputs = PlanInputs(state, decision, (), policy, TARGET)
        for key in keys:
            due = PartitionDecision(key, Verdict.RUN, Reason.SMALL_FILES)
            some, left = plan_groups(inputs, Rules.of(due, inputs), found.get(key, ()))
            groups += some
            leftovers += left
        return groups, leftovers

    def sizes(self, name: str) -> dict[str, int]:
        state = self.catalog.pin(TableId.parse(name))
        keys = self.catalog.measure(state, RewriteDataFilesPolicy()).partitions
        live = self.catalog.live_files(state, keys)
        return {f.path: f.size_bytes for f in live if f.kind is FileKind.DATA}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, lake_dir: Path) -> Lake:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{lake_dir / 'catalog.db'}",
        "warehouse": lake_dir.as_uri(),
    }
    return Lake(Writers(Bridge(spark)), PyIcebergCatalog("lake", properties))


def options(policy: Policy) -> dict[str, str]:
    """Our policy in the words of Iceberg's planner."""
    rewrite = policy.rewrite_data_files
    limits = size_limits(rewrite, TARGET)
    return {
        "target-file-size-bytes": str(TARGET),
        "min-file-size-bytes": str(limits.small_below_bytes),
        "max-file-size-bytes": str(limits.large_above_bytes),
        "min-input-files": str(rewrite.min_input_files),
        "delete-ratio-threshold": str(rewrite.delete_ratio_act),
        "max-file-group-size-bytes": str(rewrite.max_group_bytes),
        "max-file-group-input-files": str(policy.windows.max_files_per_batch),
    }


def data_file(
    lake: Lake, table: Any, path: str, size: int, records: int, partition: str, spec_id: int
) -> Any:
    builder = lake.writers.iceberg.DataFiles.builder(table.specs().get(spec_id))
    builder = builder.withPath(path).withFileSizeInBytes(size).withRecordCount(records)
    return (builder.withPartitionPath(partition) if partition else builder).withFormat("parquet").build()


def delete_file(
    lake: Lake,
    table: Any,
    path: str,
    records: int,
    partition: str,
    *,
    of: str | None,
    ids: Iterable[int] = (),
) -> Any:
    """Equality deletes of these field ids; else a deletion vector of a v3 table or v2 position deletes,
    for one data file or (of None) for the partition."""
    java = lake.writers.iceberg
    builder = java.FileMetadata.deleteFileBuilder(table.spec())
    columns = list(ids)
    vector = not columns and int(table.operations().current().formatVersion()) == 3
    builder = (
        builder.ofEqualityDeletes(lake.writers.bridge.ints(columns))
        if columns
        else builder.ofPositionDeletes()
    )
    name = f"{path}.puffin" if vector else f"{path}.parquet"
    builder = builder.withPath(name).withFileSizeInBytes(40).withRecordCount(records)
    builder = builder.withFormat("puffin" if vector else "parquet")
    if of is not None:
        builder = builder.withReferencedDataFile(of)
    if vector:
        builder = builder.withContentOffset(4).withContentSizeInBytes(40)
    return (builder.withPartitionPath(partition) if partition else builder).build()


def commit(table: Any, data: Iterable[Any] = (), deletes: Iterable[Any] = ()) -> None:
    """One commit, hence one manifest per kind: Iceberg then plans in the order of the files."""
    change = table.newRowDelta()
    for file in data:
        change = change.addRows(file)
    for file in deletes:
        change = change.addDeletes(file)
    change.commit()


def random_table(lake: Lake, choose: random.Random, version: int, by: str) -> str:
    name = f"lake.planner.t{next(_names)}"
    table = lake.writers.create(name, "id int, p string", version=version, partitioned_by=by)
    place: Callable[[random.Random], str] = BY[by]
    data, deletes = [], []
    for i in range(choose.randrange(1, 45)):
        partition, path = place(choose), f"file:/{name}/{i}.parquet"
        spread = choose.choice([(1, 749), (1, 749), (750, 1800), (1801, 5000)])
        data.append(data_file(lake, table, path, choose.randint(*spread), 10, partition, 0))
        if choose.random() < 0.2:
            of = path if version == 3 or choose.random() < 0.7 else None
            deletes.append(delete_file(lake, table, f"{path}.d", choose.randrange(1, 12), partition, of=of))
    commit(table, data)
    if deletes:
        commit(table, deletes=deletes)
    return name


def random_policy(choose: random.Random) -> Policy:
    return Policy(
        rewrite_data_files=RewriteDataFilesPolicy(
            target_file_size_bytes=TARGET,
            small_file_ratio=choose.choice([0.75, 0.5]),
            min_input_files=choose.choice([2, 5]),
            delete_ratio_act=choose.choice([0.3, 1.0]),
            max_group_bytes=choose.choice([5_000, 10**12]),
        ),
        windows=WindowsPolicy(max_files_per_batch=choose.choice([4, 5000])),
    )


def gains(group: Group, sizes: Mapping[str, int], limits: SizeLimits, deleted: frozenset[str]) -> bool:
    """Our own condition on top of Iceberg's, said over again from the facts of a group."""
    fewer = group.expected_output_files < len(group.paths)
    splits = any(sizes[p] > limits.large_above_bytes for p in group.paths)
    return fewer or splits or bool(group.paths & deleted)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("by", list(BY), ids=["unpartitioned", "identity", "bucket"])
@pytest.mark.parametrize("version", [2, 3])
def test_groups_equal_icebergs_where_they_gain(lake: Lake, version: int, by: str) -> None:
    choose = random.Random(f"{version} {by}")
    compared = 0
    for _ in range(3):
        name = random_table(lake, choose, version, by)
        sizes = lake.sizes(name)
        for policy in (random_policy(choose) for _ in range(3)):
            limits = size_limits(policy.rewrite_data_files, TARGET)
            theirs = lake.theirs(name, policy)
            groups, leftovers = lake.ours(name, policy)
            ours = {Group(frozenset(f.path for f in g.files), g.expected_output_files) for g in groups}
            ratio = policy.rewrite_data_files.delete_ratio_act or 1.0
            deleted = heavily_deleted(lake, name, ratio)
            assert ours == {g for g in theirs if gains(g, sizes, limits, deleted)}
            assert {left.reason for left in leftovers} <= {Reason.NO_GAIN}
            compared += len(ours)
    assert compared > 10


def heavily_deleted(lake: Lake, name: str, ratio: float) -> frozenset[str]:
    """Files with too high a delete ratio, read from Iceberg's own scan tasks."""
    found = set()
    for task in lake.writers.tasks(lake.writers.load(name)):
        file = task.file()
        scoped = [d for d in task.deletes() if lake.writers.iceberg.util.ContentFileUtil.isFileScoped(d)]
        marked = min(sum(int(d.recordCount()) for d in scoped), int(file.recordCount()))
        if scoped and marked / int(file.recordCount()) >= ratio:
            found.add(str(file.location()))
    return frozenset(found)


def test_group_that_would_not_shrink_is_left_alone(lake: Lake) -> None:
    """Iceberg rewrites 600 + 600 bytes to 600 + 600 bytes, each time it is asked."""
    name = f"lake.planner.t{next(_names)}"
    table = lake.writers.create(name, "id int, p string")
    commit(table, [data_file(lake, table, f"file:/{name}/{i}", 600, 10, "", 0) for i in range(2)])
    policy = Policy(rewrite_data_files=RewriteDataFilesPolicy(target_file_size_bytes=TARGET))
    (theirs,) = lake.theirs(name, policy)
    assert (len(theirs.paths), theirs.expected_output_files) == (2, 2)
    assert lake.ours(name, policy) == ([], [Leftover("__all__", Reason.NO_GAIN)])


def test_files_of_an_older_spec_keep_their_partitions(lake: Lake) -> None:
    """Iceberg takes the old spec's files for one partition and moves them to the current spec."""
    name = f"lake.planner.t{next(_names)}"
    table = lake.writers.create(name, "id int, p string", partitioned_by="p")
    old = {
        p: [data_file(lake, table, f"file:/{name}/{p}{i}", 10, 10, f"p={p}", 0) for i in range(6)]
        for p in "ab"
    }
    commit(table, itertools.chain(*old.values()))
    lake.writers.sql(f"alter table {name} add partition field bucket(4, id) as id_bucket")
    table = lake.writers.load(name)
    new = [data_file(lake, table, f"file:/{name}/n{i}", 10, 10, "p=a/id_bucket=1", 1) for i in range(6)]
    commit(table, new)

    policy = Policy(rewrite_data_files=RewriteDataFilesPolicy(target_file_size_bytes=TARGET))
    paths = {k: frozenset(str(f.location()) for f in files) for k, files in (*old.items(), ("n", new))}
    assert {g.paths for g in lake.theirs(name, policy)} == {paths["a"] | paths["b"], paths["n"]}
    groups, _ = lake.ours(name, policy)
    assert {
        (g.partition, g.spec_id, g.output_spec_id, frozenset(f.path for f in g.files)) for g in groups
    } == {
        ("p=a", 0, 0, paths["a"]),
        ("p=b", 0, 0, paths["b"]),
        ("spec=1/p=a/id_bucket=1", 1, 1, paths["n"]),
    }


def test_files_under_equality_deletes_are_grouped_as_icebergs_unless_keys_cannot_be_matched(
    lake: Lake,
) -> None:
    name = f"lake.planner.t{next(_names)}"
    table = lake.writers.create(name, "id int, p string, x double")
    under = [data_file(lake, table, f"file:/{name}/u{i}", 10, 10, "", 0) for i in range(6)]
    commit(table, under)
    commit(table, deletes=[delete_file(lake, table, f"file:/{name}/e", 3, "", of=None, ids=[1])])
    free = [data_file(lake, table, f"file:/{name}/f{i}", 10, 10, "", 0) for i in range(6)]
    commit(table, free)

    policy = Policy(rewrite_data_files=RewriteDataFilesPolicy(target_file_size_bytes=TARGET))
    groups, leftovers = lake.ours(name, policy)
    assert {
        Group(frozenset(f.path for f in g.files), g.expected_output_files) for g in groups
    } == lake.theirs(name, policy)
    assert leftovers == []

    commit(table, deletes=[delete_file(lake, table, f"file:/{name}/x", 3, "", of=None, ids=[3])])
    commit(table, [data_file(lake, table, f"file:/{name}/g{i}", 10, 10, "", 0) for i in range(6)])
    (group,), leftovers = lake.ours(name, policy)
    assert {f.path for f in group.files} == {f"file:/{name}/g{i}" for i in range(6)}
    assert leftovers == [Leftover("__all__", Reason.UNSUPPORTED_KEY, 12, 120)]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("by", list(BY), ids=["unpartitioned", "identity", "bucket"])
@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_apply_are_those_of_icebergs_scan(lake: Lake, version: int, by: str) -> None:
    """The scope rules of `core.planning.file_groups` against Iceberg's `DeleteFileIndex`, and the number of the
    commit that added a file against the manifest's."""
    choose = random.Random(f"{version}-{by}")
    name = random_table(lake, choose, version, by)
    table = lake.writers.load(name)
    place = BY[by]
    ids = [[1], [2]]
    for i in range(3):
        commit(
            table,
            [data_file(lake, table, f"file:/{name}/late{i}", 10, 10, place(choose), 0)],
            [
                delete_file(
                    lake, table, f"file:/{name}/e{i}", 1, place(choose), of=None, ids=choose.choice(ids)
                )
            ],
        )
    state = lake.catalog.pin(TableId.parse(name))
    keys = lake.catalog.measure(state, RewriteDataFilesPolicy()).partitions
    found = candidates(state.specs, lake.catalog.live_files(state, keys))
    ours = {
        c.file.path: (
            {d.path for d in (*c.position_deletes, *c.equality_deletes)},
            c.file.file_sequence_number,
        )
        for some in found.values()
        for c in some
    }
    theirs = {
        str(t.file().location()): (
            {str(d.location()) for d in t.deletes()},
            int(t.file().fileSequenceNumber()),
        )
        for t in lake.writers.tasks(table)
    }
    assert ours == theirs
