"""Samples: the numbers of a record, of an observation, and of the whole ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.metrics import partition_metrics, table_metrics
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import LOST_RACES, Decision
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.integrations.telemetry import catalogue
from iceberg_maint.integrations.telemetry.series import Key, Kind, Sample, Series, Totals, label_value
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.observers import Observation
from iceberg_maint.ports.stored import KnownTable

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
    retained = next((b.retained for b in reversed(batches) if b.retained is not None), None)
    if retained is None:
        return
    for state, files in (
        ("trash", [h for h in retained if h.marked_ms is not None]),
        ("approval", [h for h in retained if h.marked_ms is None]),
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


_PAGE_RECORDS = 200
_LATE_RECORDS = 50
"""Records before the newest known one that are compared too: on PostgreSQL a record may become visible after a newer one."""
_REMEMBERED_RECORDS = 10_000
ZERO_SECONDS = 75.0
"""How long a counter that is new is served as zero: a scrape a minute sees it. Prometheus counts an increase between
two values, so it would not count the first failure of a table, or its only one."""
DECIDE_AGAIN_SECONDS = 60.0
"""A table that was not measured again is decided on again after this time, because decisions depend on time."""


@dataclass(frozen=True, slots=True)
class _Cached:
    observed_ms: int
    until: float
    samples: tuple[Sample, ...]


class LedgerTotals:
    """Reads new records and changed tables at each call. Counters begin with the records that the ledger has at
    the first call. A counter that appears later is zero for `ZERO_SECONDS`. The gauges of a table that was dropped are not
    served, and tables that exist get labels before those that were dropped."""

    def __init__(
        self,
        ledger: Ledger,
        observe: Callable[[TableId], Observation | None],
        tables: TableLabels,
        monotonic_seconds: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._observe = observe
        self._tables = tables
        self._seconds = monotonic_seconds
        self._totals = Totals()
        self._newest: str | None = None
        self._counted: dict[str, None] = {}
        self._gauges: dict[str, dict[Key, Sample]] = {}
        self._zero_until: dict[Key, float] | None = None
        self._cache: dict[TableId, _Cached] = {}
        self._lock = Lock()

    def __call__(self) -> Totals:
        """Returns the totals of now. Raises what reading the ledger raises."""
        with self._lock:
            now = self._seconds()
            known = self._ledger.health.known_tables()
            labels = {k.table_uuid: self._tables.of(str(k.table)) for k in known}
            born: dict[Key, float] = {}
            for record in self._new_records():
                samples = operation_samples(record, self._tables)
                gauges = {(s.series, s.labels): s for s in samples if s.series.kind is Kind.GAUGE}
                self._gauges.setdefault(record.table_uuid, {}).update(gauges)
                added = [s for s in samples if s.series.kind is not Kind.GAUGE]
                keys = ((s.series, s.labels) for s in added)
                born |= dict.fromkeys((k for k in keys if k not in self._totals), now + ZERO_SECONDS)
                self._totals.add(added)
            if self._zero_until is None:
                self._zero_until = {}
            else:
                self._zero_until = {k: t for k, t in self._zero_until.items() if now < t} | born
            totals = self._totals.copy(self._zero_until)
            for table_uuid, own in labels.items():
                gauges = self._gauges.get(table_uuid, {})
                totals.add(s for s in gauges.values() if s.labels[: len(own)] == own)
            self._cache = {k.table: self._of_table(k) for k in known}
            for cached in self._cache.values():
                totals.add(cached.samples)
            return totals

    def _new_records(self) -> list[Record]:
        """The records since the last call, oldest first."""
        limit = _PAGE_RECORDS
        while True:
            records = self._ledger.records.newest(None, limit)
            ids = [r.record_id for r in records]
            end = ids.index(self._newest) + _LATE_RECORDS if self._newest in ids else len(ids) + 1
            if end <= len(ids) or len(records) < limit:
                break
            limit *= 4
        new = [r for r in records[:end] if r.record_id not in self._counted]
        if new:
            self._newest = records[0].record_id
        self._counted |= dict.fromkeys(r.record_id for r in reversed(new))
        for old in list(self._counted)[:-_REMEMBERED_RECORDS]:
            del self._counted[old]
        return new[::-1]

    def _of_table(self, known: KnownTable) -> _Cached:
        cached = self._cache.get(known.table)
        now = self._seconds()
        if cached is not None and cached.observed_ms == known.observed_ms and now < cached.until:
            return cached
        # The decisions on a table without labels of its own would be made for nothing.
        is_shared = self._tables.is_shared(str(known.table))
        observation = None if is_shared else self._observe(known.table)
        samples: tuple[Sample, ...] = ()
        if observation is not None:
            samples = table_samples(replace(observation, observed_ms=known.observed_ms), self._tables)
        return _Cached(known.observed_ms, now + DECIDE_AGAIN_SECONDS, samples)
