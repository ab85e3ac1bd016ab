"""Overlap for all partitions at once, against the sweep of one partition and what manifests hold."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.manifests.column_overlap import file_layout, joined, layout_metrics
from iceberg_maint.core.health.layout import overlap
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import LayoutOrder, SortColumn
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec

LONG, TEXT, BIG = (
    SortColumn("n", 1, "long"),
    SortColumn("s", 2, "string"),
    SortColumn("m", 3, "decimal(38, 0)"),
)
ENDS = st.tuples(st.integers(-4, 9), st.integers(0, 5))


def stored(kind: str, value: int) -> bytes:
    if kind == "string":
        return f"{value + 10:04d}".encode()
    if kind == "long":
        return struct.pack("<q", value)
    return (value * 10**25).to_bytes(13, "big", signed=True)  # beyond 64 bits


@given(
    st.lists(
        st.tuples(st.integers(0, 2), ENDS, ENDS, st.booleans(), st.sampled_from([None, 0, 7])), max_size=30
    )
)
def test_metrics_of_every_partition_are_those_of_a_sweep(
    files: list[tuple[int, tuple[int, int], tuple[int, int], bool, int | None]],
) -> None:
    for first, second in ((LONG, TEXT), (BIG, LONG)):
        order = LayoutOrder((first, second), (first, second), z_order=True)
        kinds = (first.type, second.type)
        ends = [((a, a + wide), (b, b + deep)) for _, (a, wide), (b, deep), _, _ in files]
        lower = [tuple(stored(k, e[0]) for k, e in zip(kinds, both, strict=True)) for both in ends]
        upper = [tuple(stored(k, e[1]) for k, e in zip(kinds, both, strict=True)) for both in ends]
        some = [None if lacks else low for low, (*_, lacks, _) in zip(lower, files, strict=True)]
        ids = [f[4] for f in files]
        half = len(files) // 2
        parts = (slice(0, half), slice(half, None))
        layout = joined(file_layout(order, ids[p], some[p], upper[p]) for p in parts)
        key = np.array([f[0] for f in files], np.int64)
        found = layout_metrics(key, 3, layout, 7)
        for k in range(3):
            own = [e for e, f in zip(ends, files, strict=True) if f[0] == k and not f[3]]
            sweeps = [overlap([e[at] for e in own]) for at in range(2)]
            assert found["sort_ranges"][k] == 2 * len(own)
            assert found["overlap_depth_sum"][k] == sum(s.depth_sum for s in sweeps)
            assert found["max_overlap_depth"][k] == max(s.max_depth for s in sweeps)
            assert found["unbounded_files"][k] == sum(f[0] == k and f[3] for f in files)
            assert found["unsorted_files"][k] == sum(f[0] == k and f[4] != 7 for f in files)


def test_health_and_live_files_take_bounds_of_the_order_from_manifests(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "n", LongType(), required=False), NestedField(2, "s", StringType(), required=False)
    )
    by = spec(0, (2, 1000, IdentityTransform(), "s"))
    table = TableFiles(tmp_path / "t", schema, [by])
    bounds = [(0, 9), (5, 9), None]
    files = tuple(
        File(
            f"f{n}",
            ("a",),
            lower_bounds=None if b is None else {1: stored("long", b[0]), 2: b"a"},
            upper_bounds=None if b is None else {1: stored("long", b[1]), 2: b"a"},
            sort_order_id=n,
        )
        for n, b in enumerate(bounds)
    )
    table.commit([ManifestFile(files, by, 1, 1)], snapshot_id=1, sequence_number=1, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.t")
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    catalog = PyIcebergCatalog("lake", {"type": "sql", "uri": uri, "warehouse": tmp_path.as_uri()})
    plain = catalog.pin(TableId.parse("lake.db.t"))
    state = replace(plain, order=LayoutOrder((LONG,), (LONG,), sort_order_id=1))
    health = catalog.measure(state, RewriteDataFilesPolicy()).partitions["s=a"]
    assert (health.sort_ranges, health.overlap_depth_sum, health.max_overlap_depth) == (2, 3, 2)
    assert (health.unbounded_files, health.unsorted_files) == (1, 2)
    assert [f.ranges for f in catalog.live_files(state, ["s=a"])] == [((0, 9),), ((5, 9),), (None,)]
    # Without an order no bound is looked at.
    assert catalog.measure(plain, RewriteDataFilesPolicy()).partitions["s=a"].sort_ranges == 0
    assert {f.ranges for f in catalog.live_files(plain, ["s=a"])} == {()}
