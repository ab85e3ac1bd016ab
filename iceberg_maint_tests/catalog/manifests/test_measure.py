"""Columns to health: against the file-by-file definition, and each rule by itself."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.catalog.manifests.measure import References, measure, to_columns
from iceberg_maint.catalog.manifests.reader import KINDS, LiveEntries
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec, encode_partition
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint_tests.support.examples import examples
from iceberg_maint_tests.support.fakes.catalog import FakeTable, fake_table, measure_files

POLICY = RewriteDataFilesPolicy(target_file_size_bytes=4 << 20)
BY_REGION = PartitionSpec(0, (PartitionField(1000, 1, "region", "identity", "string"),))
UNPARTITIONED = PartitionSpec(1, ())
ALL_VOID = PartitionSpec(2, (PartitionField(1000, 1, "region", "void", "string"),))
BY_BUCKET = PartitionSpec(3, (PartitionField(1001, 2, "id_bucket", "bucket[4]", "int"),))
SPECS = (BY_REGION, UNPARTITIONED, ALL_VOID, BY_BUCKET)
VALUES = {0: (("eu",), ("us",), (None,)), 1: ((),), 2: ((None,),), 3: ((0,), (3,))}


def file(
    path: str,
    spec_id: int = 0,
    values: tuple[object, ...] = ("eu",),
    *,
    kind: FileKind = FileKind.DATA,
    records: int = 10,
    size_bytes: int = 1000,
    number: int = 1,
    referenced: str | None = None,
    added: int | None = None,
) -> LiveFile:
    return LiveFile(
        path=path,
        kind=kind,
        spec_id=spec_id,
        partition=encode_partition(SPECS[spec_id], values, 0),
        record_count=records,
        size_bytes=size_bytes,
        data_sequence_number=number,
        file_format="parquet",
        referenced_data_file=referenced,
        file_sequence_number=added,
    )


def by_columns(
    table: FakeTable, raw: dict[str, tuple[object, ...]], snapshot_id: int = 0
) -> dict[str, PartitionHealth]:
    """Health of the table's files through the columns, one manifest for each spec."""
    by_spec: dict[int, list[LiveFile]] = defaultdict(list)
    for f in table.live_files:
        by_spec[f.spec_id].append(f)
    data = {f.path: f for f in table.live_files if f.kind is FileKind.DATA}
    paths = sorted({f.referenced_data_file for f in table.live_files if f.referenced_data_file})
    parts, references, added = [], [], []
    ints = lambda values: np.array(list(values), np.int64)  # noqa: E731
    for spec_id, files in by_spec.items():
        distinct = list(dict.fromkeys(raw[f.path] for f in files))
        parts.append(
            LiveEntries(
                spec_id=spec_id,
                partitions=tuple(distinct),
                partition=ints(distinct.index(raw[f.path]) for f in files),
                kind=ints(KINDS.index(f.kind) for f in files),
                records=ints(f.record_count for f in files),
                size_bytes=ints(f.size_bytes for f in files),
                sequence_number=ints(f.data_sequence_number for f in files),
                snapshot_id=ints(snapshot_id for _ in files),
                more=(),
            )
        )
        named = ints(paths.index(f.referenced_data_file) if f.referenced_data_file else -1 for f in files)
        unreferenced = [
            f.referenced_data_file is not None
            and (
                f.referenced_data_file not in data
                or data[f.referenced_data_file].data_sequence_number > f.data_sequence_number
            )
            for f in files
        ]
        references.append(References(named, np.array(unreferenced, bool)))
        added.append(ints(max(f.data_sequence_number, f.file_sequence_number or 0) for f in files))
    return dict(measure(table.state, to_columns(table.state, parts, references, added), POLICY).partitions)


@st.composite
def tables(draw: st.DrawFn) -> tuple[FakeTable, dict[str, tuple[object, ...]]]:
    files: list[LiveFile] = []
    raw: dict[str, tuple[object, ...]] = {}
    for n in range(draw(st.integers(0, 12))):
        spec_id = draw(st.sampled_from(range(4)))
        values = draw(st.sampled_from(VALUES[spec_id]))
        number = draw(st.integers(1, 5))
        kind = draw(st.sampled_from(FileKind))
        referenced = None
        same = [
            f.path
            for f in files
            if f.kind is FileKind.DATA and raw[f.path] == values and f.spec_id == spec_id
        ]
        if kind is FileKind.DELETION_VECTOR or (kind is FileKind.POSITION_DELETES and draw(st.booleans())):
            referenced = draw(st.sampled_from([*same, "gone.parquet"]))
        size = draw(st.sampled_from([1, (1 << 20) - 1, 1 << 20, 3 << 20, 8 << 20, 1 << 31]))
        path = f"f{n}"
        raw[path] = values
        files.append(
            file(
                path,
                spec_id,
                values,
                kind=kind,
                records=draw(st.integers(0, 1 << 40)),
                size_bytes=size,
                number=number,
                referenced=referenced,
                added=draw(st.sampled_from([None, number, 5])) if kind is FileKind.DATA else None,
            )
        )
    made = fake_table("lake.db.t", files, specs=SPECS)
    # An expiry: the oldest snapshots go, their files stay.
    kept = made.state.snapshots[draw(st.integers(0, max(0, len(made.state.snapshots) - 1))) :]
    return replace(made, state=replace(made.state, snapshots=kept)), raw


@settings(max_examples=examples(300), deadline=None)
@given(tables())
def test_measure_any_files_equal_the_definition_file_by_file(made: tuple[FakeTable, dict]) -> None:
    table, raw = made
    assert by_columns(table, raw) == dict(measure_files(table, POLICY).partitions)


def health_of(*files: LiveFile, key: str = "region=eu", raw: dict | None = None) -> PartitionHealth:
    values = {f.path: ("eu",) for f in files} | (raw or {})
    table = fake_table("lake.db.t", files, specs=SPECS)
    found = by_columns(table, values)[key]
    assert found == measure_files(table, POLICY).partitions[key]
    return found


def test_measure_sizes_at_the_edges_fall_into_the_upper_bin_and_are_neither_small_nor_large() -> None:
    small_below, large_above = 3 << 20, int((4 << 20) * 1.8)
    sizes = [small_below - 1, small_below, large_above, large_above + 1, 1 << 20, (1 << 30) + 5]
    found = health_of(*(file(f"f{n}", size_bytes=size) for n, size in enumerate(sizes)))
    assert (found.small_files, found.small_bytes) == (2, small_below - 1 + (1 << 20))
    assert found.large_files == 2
    assert found.size_histogram == (0, 3, 2, 0, 0, 0, 0, 0, 1)


def test_measure_equality_delete_of_equal_number_is_dangling_and_of_higher_applies() -> None:
    data = file("d", number=3)
    equal = file("e3", kind=FileKind.EQUALITY_DELETES, number=3)
    higher = file("e4", kind=FileKind.EQUALITY_DELETES, number=4)
    found = health_of(data, equal, higher)
    assert (found.applicable_equality_delete_files, found.dangling_delete_files) == (1, 1)
    assert found.equality_delete_files == 2


def test_measure_dangling_equality_deletes_are_counted_apart_and_as_old_as_the_oldest() -> None:
    data = file("d", number=5)
    equality = [file(f"e{n}", kind=FileKind.EQUALITY_DELETES, number=n) for n in (3, 5, 6)]
    position = file("p", kind=FileKind.POSITION_DELETES, number=2)
    found = health_of(data, *equality, position)
    assert (found.dangling_delete_files, found.dangling_equality_delete_files) == (3, 2)
    table = fake_table("lake.db.t", [data, *equality, position], specs=SPECS)
    times = {s.sequence_number: s.timestamp_ms for s in table.state.snapshots}
    assert found.oldest_dangling_equality_delete_ms == times[3]
    assert found.oldest_equality_delete_ms == times[6]
    assert health_of(data, equality[2]).oldest_dangling_equality_delete_ms is None


def test_measure_position_delete_of_equal_number_applies_and_of_lower_is_dangling() -> None:
    data = file("d", number=3)
    equal = file("p3", kind=FileKind.POSITION_DELETES, number=3)
    lower = file("p2", kind=FileKind.POSITION_DELETES, number=2)
    assert health_of(data, equal).dangling_delete_files == 0
    assert health_of(data, equal, lower).dangling_delete_files == 1


def test_measure_deletion_vector_whose_file_is_gone_is_dangling() -> None:
    vector = file("v", kind=FileKind.DELETION_VECTOR, number=3, referenced="d")
    assert health_of(file("d"), vector).dangling_delete_files == 0
    assert health_of(file("other"), vector).dangling_delete_files == 1


@pytest.mark.parametrize(("spec_id", "values"), [(1, ()), (2, (None,))], ids=["no fields", "all void"])
def test_measure_equality_delete_of_an_unpartitioned_spec_applies_everywhere(
    spec_id: int, values: tuple
) -> None:
    data, everywhere = (
        file("d", number=3),
        file("e", spec_id, values, kind=FileKind.EQUALITY_DELETES, number=4),
    )
    found = health_of(data, everywhere, raw={"e": values})
    assert (found.applicable_equality_delete_files, found.equality_delete_files) == (1, 0)
    assert health_of(data, everywhere, key="__all__", raw={"e": values}).dangling_delete_files == 0
    newer = file("d", number=4)
    assert health_of(newer, everywhere, key="__all__", raw={"e": values}).dangling_delete_files == 1


def test_measure_position_delete_of_an_unpartitioned_spec_stays_in_its_own_spec() -> None:
    delete = file("p", 1, (), kind=FileKind.POSITION_DELETES, number=9)
    in_other_spec = file("d", 2, (None,), number=1)
    found = health_of(delete, in_other_spec, key="__all__", raw={"p": (), "d": (None,)})
    assert (found.dangling_delete_files, found.spec_ids) == (1, (1, 2))


def test_measure_entry_of_an_unknown_snapshot_takes_the_time_of_its_sequence_number() -> None:
    table = fake_table("lake.db.t", [file("d", number=3), file("e", number=7)], specs=SPECS)
    times = {s.sequence_number: s.timestamp_ms for s in table.state.snapshots}
    found = by_columns(table, {"d": ("eu",), "e": ("us",)}, snapshot_id=4)
    assert found["region=eu"].last_change_ms == times[3]


def test_measure_entry_of_a_retained_snapshot_takes_its_time_whatever_its_sequence_number() -> None:
    # A compaction keeps the old sequence number and commits under a newer snapshot.
    table = fake_table("lake.db.t", [file("d", number=3), file("e", number=7)], specs=SPECS)
    found = by_columns(table, {"d": ("eu",), "e": ("eu",)}, snapshot_id=1007)
    assert found["region=eu"].last_change_ms == table.state.snapshots[-1].timestamp_ms


def test_measure_expired_commit_is_null_and_its_equality_delete_as_old_as_the_oldest_snapshot() -> None:
    files = [file("d", number=1), file("e", kind=FileKind.EQUALITY_DELETES, number=2)]
    table = fake_table("lake.db.t", files, specs=SPECS)
    newest = replace(table.state.snapshots[-1], sequence_number=9, timestamp_ms=77)
    table = replace(table, state=replace(table.state, snapshots=(newest,), snapshot=newest))
    found = by_columns(table, {"d": ("eu",), "e": ("eu",)})["region=eu"]
    assert (found.last_change_ms, found.oldest_equality_delete_ms) == (None, 77)


def test_measure_format_v1_sequence_numbers_of_zero_name_no_snapshot() -> None:
    table = fake_table("lake.db.t", [file("d", number=0)], specs=SPECS, format_version=1)
    found = by_columns(table, {"d": ("eu",)}, snapshot_id=4)["region=eu"]
    assert (found.last_change_ms, found.max_data_sequence_number) == (None, 0)


def test_measure_no_files_has_no_partitions() -> None:
    table = fake_table("lake.db.t", [], properties={"maintenance.paused": "true", "x": "y"})
    measured = measure(table.state, to_columns(table.state, [], [], []), POLICY)
    assert (measured.partitions, measured.snapshot_id) == ({}, None)
    assert measured.maintenance_properties == {"maintenance.paused": "true"}
    assert measured == measure_files(table, POLICY)


def test_measure_bytes_beyond_double_precision_are_exact() -> None:
    huge = (1 << 53) + 1
    assert health_of(file("a", size_bytes=huge), file("b", size_bytes=1)).data_bytes == huge + 1


def test_measure_table_metrics_come_from_the_state() -> None:
    table = fake_table("lake.db.t", [file("a", number=1), file("b", 3, (0,), number=2)], specs=SPECS)
    measured = measure_files(table, POLICY)
    health = measured.table_health
    first, last = table.state.snapshots
    assert (health.partitions, health.snapshots, health.refs, health.live_specs) == (2, 2, 1, 2)
    assert (health.oldest_snapshot_ms, health.last_change_ms) == (first.timestamp_ms, last.timestamp_ms)
    assert list(measured.partitions) == ["region=eu", "spec=3/id_bucket=0"]
