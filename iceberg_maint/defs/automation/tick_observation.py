"""The time of a sensor's tick. Dagster fails a tick after 60 seconds, and nothing of it is kept."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import TypeVar

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.housekeeping import HealthSource
from iceberg_maint.defs.automation.observations import TableSigns, read_signs
from iceberg_maint.defs.dagster_internals import without_captured_output
from iceberg_maint.defs.instance import launches_monitored_workers, may_observe
from iceberg_maint.defs.names import IN_TICK_TAG, TABLE_TAG
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.guards import run_heartbeat
from iceberg_maint.ports.clock import Clock
from iceberg_maint.report.formatting import shortened

WORK_SECONDS = 5.0
"""Seconds after which a tick begins no further part of its work. The next tick goes on there."""
_QUICK_SECONDS = 0.5
"""A part that took less time is followed by one of twice the size."""

T = TypeVar("T")


class TickTime:
    """The time of one tick, from the creation of this object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = clock.monotonic_seconds() + WORK_SECONDS

    def is_over(self) -> bool:
        """Whether the tick may begin nothing more."""
        return self._clock.monotonic_seconds() >= self._end

    def parts(self, items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
        """Yields consecutive parts of the items until the time is over: the first one of `size` at any time, later ones of
        more as long as they are quick."""
        start = 0
        while start < len(items) and (start == 0 or not self.is_over()):
            began = self._clock.monotonic_seconds()
            yield items[start : start + size]
            start += size
            if self._clock.monotonic_seconds() - began < _QUICK_SECONDS:
                size *= 2


REPEAT_AFTER_SECONDS = 600
"""A change whose observation failed is observed again after this time."""
READ_TIMEOUT_SECONDS = 8.0
"""Seconds that a tick waits for the pointers of its tables, and for each table that it measures. Dagster fails a tick after
60."""
TABLES_PER_TICK = 3
"""More changed tables are observed by one run of their own, which starts one process for all. If only their runs wait
in the queue, they are observed in ticks."""
WAITING_PARTITIONS_PER_TICK = 150
"""Partitions of the tables whose runs wait and that one tick observes, at most. A table counts as three more: its own
evaluations."""
PARTITIONS_PER_TICK = 50
"""Partitions of such a table at most. Dagster stores about 30 evaluations per second, and a tick may take a
minute."""
FILES_PER_TICK = 10_000
"""Data and delete files of such a table at most, by its stored health."""
_TABLES_AT_FIRST = 250
"""Tables that a tick looks at whatever that takes."""


def observe_config(tables: Sequence[TableId]) -> dict[str, object]:
    """The configuration of an observe run over these tables."""
    return {"ops": {"observe_tables": {"config": {"tables": [str(t) for t in tables]}}}}


class TickObservation:
    """The changed tables of one code location, and their observation in this process. Two sensors use it: the one
    that follows changes, and the automation, which then decides on the health of this moment."""

    def __init__(
        self,
        job: dg.JobDefinition,
        tables: Sequence[TableId],
        context: Context,
        translator: IcebergTranslator,
    ) -> None:
        self.job, self.tables, self.context, self.translator = job, tables, context, translator
        self._lock = threading.Lock()
        self._tried: dict[str, int] = {}

    def observe(
        self,
        context: dg.SensorEvaluationContext,
        time: TickTime,
        first: int = 0,
        enough: int | None = None,
    ) -> tuple[list[TableSigns], int]:
        """Looks at the tables from the number `first` on, until `enough` have changed or the tick's time is over. Observes the
        changed tables if they are few and small. Returns the changed tables that need a run of their own, and the number
        of the table with which the next tick goes on.

        The observation of one change is tried once in `REPEAT_AFTER_SECONDS`."""
        instance = context.instance
        with self._lock:
            changed, following = self._changed(instance, time, first, enough)
            chosen = self._chosen(changed)
            if (
                not chosen
                or not may_observe(instance, self.tables)
                or launches_monitored_workers(instance)
                or self._were_tried(chosen)
            ):
                return changed, following
            names = [s.table for s in chosen]
            origin = context.code_location_origin
            run_id = str(uuid.uuid4())
            with (
                run_heartbeat(self.context.ledger.leases, run_id),
                without_captured_output(instance) as quiet_instance,
            ):
                self.job.execute_in_process(
                    observe_config(names),
                    instance=quiet_instance,
                    run_id=run_id,
                    tags={
                        TABLE_TAG: shortened([str(t) for t in names]),
                        IN_TICK_TAG: origin.location_name if origin else "",
                        "dagster/sensor_name": context.sensor_name,
                        "dagster/max_retries": "0",
                    },
                    raise_on_error=False,
                )
            observed = read_signs(names, self.context, instance, self.translator)
            others = [s for s in changed if s not in chosen and not s.only_waits()]
            return [s for s in observed if s.changed()] + others, following

    def _changed(
        self, instance: dg.DagsterInstance, time: TickTime, first: int, enough: int | None
    ) -> tuple[list[TableSigns], int]:
        """The changed tables from the number `first` on, and the number of the first table that was not read; 0 after
        the last one."""
        changed: list[TableSigns] = []
        following = first
        for part in time.parts(self.tables[first:], _TABLES_AT_FIRST):
            following += len(part)
            for signs in read_signs(part, self.context, instance, self.translator):
                if signs.changed():
                    changed.append(signs)
                    if len(changed) == enough:
                        return changed, (self.tables.index(signs.table) + 1) % len(self.tables)
        return changed, following % len(self.tables) if self.tables else 0

    def _chosen(self, changed: Sequence[TableSigns]) -> list[TableSigns]:
        """The tables to observe in this tick: all, if they are few and small. Of more tables only those whose runs
        wait in the queue, some per tick: a run of their own would wait as well."""
        if len(changed) <= TABLES_PER_TICK and all(self._partitions_of_small(s) is not None for s in changed):
            return list(changed)
        chosen: list[TableSigns] = []
        total = 0
        for signs in changed:
            partitions = self._partitions_of_small(signs) if signs.only_waits() else None
            if partitions is not None:
                total += partitions + 3
                if chosen and total > WAITING_PARTITIONS_PER_TICK:
                    break
                chosen.append(signs)
        return chosen

    def _partitions_of_small(self, signs: TableSigns) -> int | None:
        """The number of partitions of a table that was observed before and whose stored health is small. None for
        another table."""
        if signs.last is None or signs.last.unexamined:
            return None
        measured = self.context.ledger.health.get(signs.table)
        if measured is None or len(measured.partitions) > PARTITIONS_PER_TICK:
            return None
        try:
            policy = self.context.policies.of_table(signs.table, measured.maintenance_properties)
        except IcebergMaintError:
            return None  # The run that observes the table reports it.
        if policy.health.source is HealthSource.SPARK:
            return None
        total = measured.total()
        return len(measured.partitions) if total.data_files + total.delete_files <= FILES_PER_TICK else None

    def _were_tried(self, changed: Sequence[TableSigns]) -> bool:
        """Whether one of these changes was tried a short time ago. Stores that all of them are tried now."""
        now_ms = self.context.clock.now_ms()
        oldest_ms = now_ms - REPEAT_AFTER_SECONDS * 1000
        self._tried = {change: at_ms for change, at_ms in self._tried.items() if at_ms > oldest_ms}
        changes = [s.digest_text() for s in changed]
        if any(change in self._tried for change in changes):
            return True
        self._tried.update(dict.fromkeys(changes, now_ms))
        return False
