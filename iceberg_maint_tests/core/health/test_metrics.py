"""Sums of measurements, derived metrics, and the closed list of names."""

from __future__ import annotations

from dataclasses import fields

from iceberg_maint.core.health.metrics import (
    SIZE_EDGES_BYTES,
    PartitionHealth,
    TableHealth,
    metric_docs,
    partition_metrics,
    table_metrics,
    total,
)

ONE = PartitionHealth(
    data_files=2,
    data_bytes=30,
    records=10,
    position_delete_records=1,
    deletion_vector_records=2,
    position_delete_files=1,
    deletion_vectors=2,
    equality_delete_files=4,
    min_data_sequence_number=3,
    max_data_sequence_number=9,
    spec_ids=(1, 2),
    size_histogram=(1, 0, 0, 0, 0, 0, 0, 0, 1),
    last_change_ms=50,
    oldest_equality_delete_ms=40,
)
OTHER = PartitionHealth(
    data_files=1,
    data_bytes=5,
    records=10,
    min_data_sequence_number=2,
    max_data_sequence_number=4,
    spec_ids=(0, 2),
    size_histogram=(1, 0, 0, 0, 0, 0, 0, 0, 0),
    last_change_ms=70,
    oldest_equality_delete_ms=20,
)
DELETES_ONLY = PartitionHealth(equality_delete_files=1, max_data_sequence_number=11, spec_ids=(2,))


def test_total_adds_counts_and_takes_extremes() -> None:
    found = total([ONE, OTHER, DELETES_ONLY])
    assert (found.data_files, found.data_bytes, found.records) == (3, 35, 20)
    assert found.equality_delete_files == 5
    assert found.size_histogram == (2, 0, 0, 0, 0, 0, 0, 0, 1)
    assert found.spec_ids == (0, 1, 2)
    assert (found.min_data_sequence_number, found.max_data_sequence_number) == (2, 11)
    assert (found.last_change_ms, found.oldest_equality_delete_ms) == (70, 20)


def test_total_of_nothing_is_an_empty_partition() -> None:
    assert total([]) == PartitionHealth()
    assert total([ONE]) == ONE


def test_total_skips_times_that_are_unknown() -> None:
    assert total([DELETES_ONLY, OTHER]).last_change_ms == 70
    assert total([DELETES_ONLY]).last_change_ms is None


def test_ratios_of_an_empty_partition_are_zero() -> None:
    assert (PartitionHealth().delete_ratio, PartitionHealth().average_file_bytes) == (0.0, 0.0)


def test_derived_metrics() -> None:
    assert (ONE.delete_ratio, ONE.average_file_bytes, ONE.delete_files) == (0.3, 15.0, 7)


def test_every_metric_is_named_once_and_documented() -> None:
    names = partition_metrics(ONE) | table_metrics(TableHealth())
    assert set(metric_docs()) == set(names)
    assert all(metric_docs().values())
    assert len(ONE.size_histogram) == len(SIZE_EDGES_BYTES) + 1


def test_bins_of_the_size_histogram_end_at_whole_mebibytes() -> None:
    assert [edge >> 20 for edge in SIZE_EDGES_BYTES] == [1, 4, 16, 64, 128, 256, 512, 1024]
    assert [edge % (1 << 20) for edge in SIZE_EDGES_BYTES] == [0] * 8


def test_contract_names_are_metrics() -> None:
    contract = (
        "data_files data_bytes records small_files small_bytes position_delete_files deletion_vectors "
        "equality_delete_files equality_delete_records delete_ratio"
    )
    assert set(contract.split()) <= set(partition_metrics(ONE))
    assert {"snapshots", "manifests", "metadata_bytes", "refs"} <= {f.name for f in fields(TableHealth)}


def test_overlap_depth_without_measured_ranges_is_zero() -> None:
    assert PartitionHealth().overlap_depth == 0.0
    assert PartitionHealth(overlap_depth_sum=6, sort_ranges=4).overlap_depth == 1.5
