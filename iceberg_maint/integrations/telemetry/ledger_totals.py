"""The totals of the whole fleet from the ledger, for a process that lives as long as Prometheus scrapes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.integrations.telemetry.samples import TableLabels, operation_samples, table_samples
from iceberg_maint.integrations.telemetry.series import Kind, Sample
from iceberg_maint.integrations.telemetry.totals import Key, Totals
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.observers import Observation
from iceberg_maint.ports.stored import KnownTable

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
            known = self._ledger.known_tables()
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
            records = self._ledger.records(None, limit)
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
