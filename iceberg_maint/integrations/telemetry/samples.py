"""Samples: the numbers of a run's record and of an observed table, by the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.metrics import partition_metrics, table_metrics
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import LOST_RACES, Decision
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.integrations.telemetry import catalogue
from iceberg_maint.integrations.telemetry.series import Kind, Sample, Series, label_value
from iceberg_maint.ports.observers import Observation

_OTHER = "_other"


class TableLabels:
    """The labels of tables. Tables beyond the first `most` share the name `_other`, so that the number of
    series has a bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._labels: dict[str, tuple[str, str, str]] = {}

    def of(self, table: str) -> tuple[str, str, str]:
        """Returns the values of `catalog`, `namespace` and `table`."""
        if table not in self._labels:
            if len(self._labels) >= self._most:
                return (_OTHER, _OTHER, _OTHER)
            self._labels[table] = _table_labels(table)
        return self._labels[table]

    def is_shared(self, table: str) -> bool:
        """Whether the table has no labels of its own."""
        return self.of(table)[0] == _OTHER


def _table_labels(table: str) -> tuple[str, str, str]:
    with suppress(ValueError):
        name = TableId.parse(table)
        return (label_value(name.catalog), label_value(".".join(name.namespace)), label_value(name.name))
    return ("none", "none", label_value(table))


def operation_samples(record: Record, tables: TableLabels) -> tuple[Sample, ...]:
    """The samples of one recorded operation. Counters have no sample for zero. A table without labels of its
    own has no gauges: those of several tables would overwrite each other."""
    labels = (*tables.of(record.table), record.operation.value)
    samples = [s for s in _operation(record, labels) if s.value or s.series.kind is not Kind.COUNTER]
    if tables.is_shared(record.table):
        samples = [s for s in samples if s.series.kind is not Kind.GAUGE]
    return tuple(samples)


def _operation(record: Record, labels: tuple[str, ...]) -> Iterator[Sample]:
    outcome = record.outcome
    status = outcome.outcome.value
    seconds = max(0, record.ended_ms - record.started_ms) / 1000
    yield Sample(catalogue.OPERATIONS, (*labels, status, outcome.reason.value), 1)
    yield Sample(catalogue.OPERATION_DURATION, (*labels, status), seconds)
    yield Sample(catalogue.OPERATION_ENDED, (*labels, status), record.ended_ms / 1000)
    yield from _counted(catalogue.PARTITIONS, labels, (s.value for _, s, _ in outcome.partitions))
    yield from _counted(catalogue.BATCHES, labels, (b.outcome.value for b in outcome.batches))
    committed = [b for b in outcome.batches if b.snapshot_after is not None]
    skipped = [b for b in outcome.batches if b.snapshot_after is None]
    sums: list[tuple[Series, float]] = [
        (catalogue.CATALOG_CALLS, record.catalog_calls or 0),
        (catalogue.INPUT_FILES, sum(b.input_files for b in committed)),
        (catalogue.INPUT_BYTES, sum(b.input_bytes for b in committed)),
        (catalogue.OUTPUT_FILES, sum(b.output_files for b in committed)),
        (catalogue.OUTPUT_BYTES, sum(b.output_bytes for b in committed)),
        (catalogue.SKIPPED_FILES, sum(b.input_files for b in skipped)),
        (catalogue.SKIPPED_BYTES, sum(b.input_bytes for b in skipped)),
        (catalogue.DELETE_FILES_REMOVED, sum(b.delete_files_removed for b in committed)),
        (catalogue.COMMIT_ATTEMPTS, sum(b.commit_tries for b in outcome.batches)),
        (
            catalogue.COMMIT_CONFLICTS,
            sum(b.reason in LOST_RACES for b in outcome.batches),
        ),
        (catalogue.WASTED_BYTES, sum(b.wasted_bytes for b in outcome.batches)),
    ]
    for name, series in catalogue.COUNTS.items():
        sums.append((series, sum(b.counts.get(name, 0) for b in outcome.batches)))
    yield from (Sample(series, labels, value) for series, value in sums)
    yield from _proofs(outcome.batches, labels)
    yield from _estimates(outcome.batches, labels)
    yield from _trash(outcome.batches, labels[:3])


def _counted(series: Series, labels: tuple[str, ...], values: Iterator[str]) -> Iterator[Sample]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    yield from (Sample(series, (*labels, value), count) for value, count in sorted(counts.items()))


def _proofs(batches: tuple[BatchOutcome, ...], labels: tuple[str, ...]) -> Iterator[Sample]:
    proofs = [b.proof for b in batches if b.proof is not None]
    kinds = sorted({(label_value(p.level), p.equal) for p in proofs})
    for level, equal in kinds:
        count = sum(label_value(p.level) == level and p.equal is equal for p in proofs)
        yield Sample(catalogue.PROOFS, (*labels, level, str(equal).lower()), count)
    yield Sample(catalogue.PROOF_ROWS, (*labels, "input"), sum(p.input_records for p in proofs))
    yield Sample(catalogue.PROOF_ROWS, (*labels, "output"), sum(p.output_records for p in proofs))
    yield Sample(catalogue.PROOF_ROWS, (*labels, "removed"), sum(p.removed_records for p in proofs))


def _estimates(batches: tuple[BatchOutcome, ...], labels: tuple[str, ...]) -> Iterator[Sample]:
    memory = [b.memory for b in batches if b.memory is not None]
    if memory:
        yield Sample(catalogue.MEMORY_ESTIMATED, labels, max(m.estimated_bytes for m in memory))
        yield Sample(catalogue.MEMORY_PEAK, labels, max(m.peak_bytes for m in memory))
    layouts = [b.layout for b in batches if b.layout is not None]
    if layouts:
        depth = catalogue.LAYOUT_DEPTH
        yield Sample(depth, (*labels, "before"), max(x.depth_before for x in layouts))
        yield Sample(depth, (*labels, "predicted"), max(x.depth_predicted for x in layouts))
        yield Sample(depth, (*labels, "measured"), max(x.depth_measured for x in layouts))


def _trash(batches: tuple[BatchOutcome, ...], labels: tuple[str, ...]) -> Iterator[Sample]:
    held = next((b.held for b in reversed(batches) if b.held is not None), None)
    if held is None:
        return
    for state, files in (
        ("trash", [h for h in held if h.marked_ms is not None]),
        ("approval", [h for h in held if h.marked_ms is None]),
    ):
        yield Sample(catalogue.TRASH_FILES, (*labels, state), sum(h.files for h in files))
        yield Sample(catalogue.TRASH_BYTES, (*labels, state), sum(h.size_bytes for h in files))


def table_samples(observation: Observation, tables: TableLabels) -> tuple[Sample, ...]:
    """The samples of one observed table. There are none for a table without labels of its own."""
    table = str(observation.measured.table)
    if tables.is_shared(table):
        return ()
    return tuple(_observation(observation, tables.of(table)))


def _observation(observation: Observation, labels: tuple[str, ...]) -> Iterator[Sample]:
    yield Sample(catalogue.OBSERVED, labels, observation.observed_ms / 1000)
    total = observation.measured.total()
    for below, files in zip(catalogue.SIZES, total.size_histogram, strict=True):
        yield Sample(catalogue.FILES_BY_SIZE, (*labels, below), files)
    metrics = {**partition_metrics(total), **table_metrics(observation.measured.table_health)}
    yield from _health(metrics, labels)
    for decision in observation.decisions:
        yield from _decision(decision, labels)
    for decision, history in zip(observation.decisions, observation.histories, strict=False):
        yield from _history(history, (*labels, decision.operation.value))


def _health(metrics: Mapping[str, object], labels: tuple[str, ...]) -> Iterator[Sample]:
    for name, series in catalogue.HEALTH.items():
        value = metrics[name]
        if isinstance(value, int | float):
            yield Sample(series, labels, value / 1000 if name.endswith("_ms") else value)


def _decision(decision: Decision, labels: tuple[str, ...]) -> Iterator[Sample]:
    operation = decision.operation.value
    backlog = sum(p.candidate_bytes for p in decision.backlog())
    yield Sample(catalogue.DUE_PARTITIONS, (*labels, operation), len(decision.due()))
    yield Sample(catalogue.BACKLOG_BYTES, (*labels, operation), backlog)


def _history(history: TableHistory, labels: tuple[str, ...]) -> Iterator[Sample]:
    quarantined = sum(p.quarantined for p in history.partitions.values())
    yield Sample(catalogue.QUARANTINED, labels, quarantined)
    yield Sample(catalogue.UNKNOWN_COMMITS, labels, history.unknown_commits)
