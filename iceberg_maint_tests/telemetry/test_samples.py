"""The numbers of a record and of an observation, one by one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.core.health.metrics import metric_docs
from iceberg_maint.integrations.telemetry.catalogue import CATALOGUE, COUNTS, HEALTH
from iceberg_maint.integrations.telemetry.samples import TableLabels, operation_samples, table_samples
from iceberg_maint.integrations.telemetry.series import MAX_LABEL_BYTES, Kind, Sample, label_value
from iceberg_maint_tests.support.telemetry.values import observation, record

TABLE = ("lake", "db", "t")
RUN = (*TABLE, "rewrite_data_files")


def numbers(samples: tuple[Sample, ...]) -> dict[tuple[str, ...], float]:
    return {(s.series.name, *s.labels[3:]): s.value for s in samples}


def test_record_gives_exactly_these_samples() -> None:
    samples = operation_samples(record(), TableLabels(10))
    assert {s.labels[:3] for s in samples} == {TABLE}
    operation = "rewrite_data_files"
    assert numbers(samples) == {
        ("iceberg_maint.operations", operation, "FAILED", "conflict"): 1,
        ("iceberg_maint.operation.duration", operation, "FAILED"): 12.5,
        ("iceberg_maint.operation.ended", operation, "FAILED"): 1012.5,
        ("iceberg_maint.operation.partitions", operation, "IMPROVED"): 1,
        ("iceberg_maint.operation.partitions", operation, "FAILED"): 1,
        ("iceberg_maint.operation.partitions", operation, "NO_OP"): 1,
        ("iceberg_maint.operation.batches", operation, "IMPROVED"): 1,
        ("iceberg_maint.operation.batches", operation, "FAILED"): 1,
        ("iceberg_maint.rewrite.input.files", operation): 10,
        ("iceberg_maint.rewrite.input.bytes", operation): 1000,
        ("iceberg_maint.rewrite.output.files", operation): 2,
        ("iceberg_maint.rewrite.output.bytes", operation): 900,
        ("iceberg_maint.rewrite.skipped.files", operation): 5,
        ("iceberg_maint.rewrite.skipped.bytes", operation): 500,
        ("iceberg.commit.delete_files.removed", operation): 3,
        ("iceberg.commit.attempts", operation): 6,
        ("iceberg_maint.commit.conflicts", operation): 1,
        ("iceberg_maint.commit.wasted", operation): 450,
        ("iceberg_maint.snapshots.expired", operation): 7,
        ("iceberg_maint.proof.batches", operation, "full", "true"): 1,
        ("iceberg_maint.proof.rows", operation, "input"): 50,
        ("iceberg_maint.proof.rows", operation, "output"): 45,
        ("iceberg_maint.proof.rows", operation, "removed"): 5,
        ("iceberg_maint.memory.estimated", operation): 100,
        ("iceberg_maint.memory.peak", operation): 80,
        ("iceberg_maint.layout.depth", operation, "before"): 4.0,
        ("iceberg_maint.layout.depth", operation, "predicted"): 1.5,
        ("iceberg_maint.layout.depth", operation, "measured"): 1.25,
        ("iceberg_maint.trash.files", "trash"): 6,
        ("iceberg_maint.trash.files", "approval"): 2,
        ("iceberg_maint.trash.size", "trash"): 600,
        ("iceberg_maint.trash.size", "approval"): 20,
    }


def test_observation_gives_every_health_number_and_the_work_that_is_due() -> None:
    samples = numbers(table_samples(observation(), TableLabels(10)))
    operation = "rewrite_data_files"
    expected = {
        ("iceberg_maint.table.observed",): 3000,
        ("iceberg_maint.table.data_files",): 6,
        ("iceberg_maint.table.data_bytes",): 500,
        ("iceberg_maint.table.delete_ratio",): 0.2,
        ("iceberg_maint.table.snapshots",): 9,
        ("iceberg_maint.table.manifests",): 4,
        ("iceberg_maint.table.last_change",): 2000.5,
        ("iceberg_maint.table.data_files_by_size", "1"): 3,
        ("iceberg_maint.table.data_files_by_size", "128"): 2,
        ("iceberg_maint.table.data_files_by_size", "more"): 1,
        ("iceberg_maint.due.partitions", operation): 1,
        ("iceberg_maint.backlog", operation): 450,
        ("iceberg_maint.quarantined.partitions", operation): 1,
        ("iceberg_maint.commit.unknown", operation): 1,
    }
    assert {key: samples[key] for key in expected} == expected
    # A time that is not known has no sample.
    unknown = {"oldest_snapshot_ms", "oldest_equality_delete_ms", "oldest_dangling_equality_delete_ms"}
    assert {HEALTH[m].name for m in HEALTH if m not in unknown} < {name for name, *_ in samples}


def test_catalogue_covers_health_and_counts_and_names_no_series_twice() -> None:
    assert set(metric_docs()) - set(HEALTH) == {
        "spec_ids",
        "size_histogram",
        "min_data_sequence_number",
        "max_data_sequence_number",
    }
    names = [s.name for s in CATALOGUE]
    assert len(set(names)) == len(names)
    prometheus = [s.prometheus_name for s in CATALOGUE]
    assert len(set(prometheus)) == len(prometheus)
    assert [n for n in prometheus if not re.fullmatch(r"iceberg_[a-z0-9_]+", n)] == []
    assert [
        s.name for s in CATALOGUE if (s.kind is Kind.COUNTER) != s.prometheus_name.endswith("_total")
    ] == []
    assert set(COUNTS.values()) < set(CATALOGUE)


def test_no_label_can_hold_an_id_a_partition_or_a_message() -> None:
    labels = {label for s in CATALOGUE for label in s.labels}
    assert labels == {
        *("catalog", "namespace", "table", "operation", "outcome", "reason", "level", "equal", "rows"),
        *("depth", "state", "below_mib", "exporter"),
    }


def test_tables_beyond_the_limit_share_one_name_and_have_no_gauges() -> None:
    tables = TableLabels(1)
    operation_samples(record("lake.db.first"), tables)
    second = operation_samples(record("lake.db.second"), tables)
    assert {s.labels[:3] for s in second} == {("_other", "_other", "_other")}
    assert {s.series.kind for s in second} == {Kind.COUNTER, Kind.HISTOGRAM}
    assert table_samples(observation("lake.db.second"), tables) == ()
    assert {s.labels[:3] for s in operation_samples(record("lake.db.first"), tables)} == {
        ("lake", "db", "first")
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("events", "events"),
        ("a|b,c#d", "a%7Cb%2Cc%23d"),
        ("line\nbreak", "line%0Abreak"),
        ('quote"{}', "quote%22%7B%7D"),
        ("über", "%C3%BCber"),
        ("50%", "50%25"),
        ("", "none"),
        ("  ", "%20%20"),
        (" a b ", "%20a b%20"),
    ],
)
def test_hostile_name_becomes_a_value_that_every_receiver_takes(text: str, value: str) -> None:
    assert label_value(text) == value


@given(st.text(max_size=400))
def test_any_name_becomes_short_printable_ascii_without_separators(text: str) -> None:
    value = label_value(text)
    assert re.fullmatch(r"[A-Za-z0-9_.:/=*@+%~ -]+", value)
    assert len(value) <= MAX_LABEL_BYTES


def test_long_names_that_differ_at_the_end_stay_different() -> None:
    assert label_value("x" * 300 + "a") != label_value("x" * 300 + "b")
