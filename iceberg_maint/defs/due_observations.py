"""The tables that Dagster must observe: what it knows of them differs from the catalog and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.instance import queued_runs
from iceberg_maint.defs.last_observation import (
    LastObservation,
    finished_runs,
    read_last_observations,
)
from iceberg_maint.defs.stored_health import read_pointers
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.report.holds import pauses_text
from iceberg_maint.runner.runtime import Runtime


@dataclass(frozen=True, slots=True)
class TableSigns:
    """The signs of a table that need no measurement. `pointer` is None if its catalog does not answer or
    lacks the table. `pause` is the text of its pauses, `queued` names its runs in the queue, `last` is what
    Dagster knows, `run_ended` whether the run that `last` names has ended."""

    table: TableId
    pointer: str | None
    pause: str
    queued: str
    last: LastObservation | None
    run_ended: bool

    def changed(self) -> bool:
        """Whether Dagster must observe the existing table: it never did, the table or its pause changed, a
        run on it ended since, other runs wait in the queue, or healthy partitions are left to examine."""
        return self.pointer is not None and (
            self.last is None
            or self.last.pointer != self.pointer
            or self.last.pause != self.pause
            or self.run_ended
            or self.last.unexamined
            or self.queued not in ("", self.last.queued)
        )

    def only_waits(self) -> bool:
        """Whether Dagster must observe the table for no other cause than runs that wait in the queue."""
        return self.changed() and not replace(self, queued="").changed()

    def digest_text(self) -> str:
        """A text that differs for every cause of an observation."""
        run_id = self.last.run_id if self.last is not None and self.run_ended else None
        examined_ms = self.last.observed_ms if self.last is not None and self.last.unexamined else None
        return f"{self.table} {self.pointer} {self.pause} {run_id} {self.queued} {examined_ms}"


def read_signs(
    tables: Sequence[TableId],
    runtime: Runtime,
    instance: dg.DagsterInstance,
    translator: IcebergTranslator,
) -> list[TableSigns]:
    """The signs of these tables: one request per catalog, and few queries of the ledger and of Dagster."""
    pointers = read_pointers(runtime, tables)
    keys = {t: translator.get_asset_key(t) for t in tables}
    last = read_last_observations(instance, list(keys.values()))
    pauses = runtime.ledger.pauses()
    uuids: Mapping[TableId, str] = (
        {k.table: k.table_uuid for k in runtime.ledger.known_tables()} if pauses else {}
    )
    ended = finished_runs(instance, [o.run_id for o in last.values() if o.run_id is not None])
    queued = queued_runs(instance, runtime.clock.now_ms())
    return [
        TableSigns(
            t,
            pointers.get(t),
            pauses_text(pauses, t, uuids.get(t)),
            queued.get(keys[t], ""),
            observation := last.get(keys[t]),
            observation is not None and observation.run_id in ended,
        )
        for t in tables
    ]
