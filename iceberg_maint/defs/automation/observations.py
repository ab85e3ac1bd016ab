"""The last observation of each table that Dagster has received, in Dagster's own storage.

It is kept apart from the health in the ledger. Every measurement updates that health, also those of the
command line and of runs, which report nothing to Dagster. It lives and ends with Dagster's storage: a new
instance has observed no table.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.automation.due_work import read_pointers
from iceberg_maint.defs.instance import queued_runs
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.loop.context import Context
from iceberg_maint.report.deferrals import pauses_text

_PREFIX = "iceberg_maint/last_observation/"
_KEYS_PER_QUERY = 500


@dataclass(frozen=True, slots=True)
class LastObservation:
    """What Dagster knows of a table.

    `pointer` is the metadata location that was observed, empty before the first observation. `observed_ms`
    is its time by the ledger's clock, `sequence_number` the last one of the metadata. `pause` and `deferral` are the texts of the pause and of the deferral that
    the observation reported. `queued` names the runs on the table that waited in the queue. `run_id` names the last run on the table that started since: the evaluations
    that Dagster planned for it may have been left without a result. `unexamined` says that healthy partitions
    were never reported as examined. `sizes_before` is the histogram of file sizes before the last run with a
    commit, `proof` the line of the last proof.
    """

    pointer: str = ""
    observed_ms: int = 0
    sequence_number: int = 0
    pause: str = ""
    deferral: str = ""
    queued: str = ""
    run_id: str | None = None
    unexamined: bool = False
    sizes_before: tuple[int, ...] = ()
    proof: str = ""


_FIELDS = frozenset(f.name for f in fields(LastObservation))


def read_last_observations(
    instance: dg.DagsterInstance, keys: Collection[dg.AssetKey]
) -> Mapping[dg.AssetKey, LastObservation]:
    """The last observations of these assets, without those that Dagster does not know."""
    names = {_PREFIX + key.to_user_string(): key for key in keys}
    ordered = sorted(names)
    observations: dict[dg.AssetKey, LastObservation] = {}
    for start in range(0, len(ordered), _KEYS_PER_QUERY):
        chunk = set(ordered[start : start + _KEYS_PER_QUERY])
        for name, text in instance.daemon_cursor_storage.get_cursor_values(chunk).items():
            values = {k: v for k, v in json.loads(text).items() if k in _FIELDS}
            values["sizes_before"] = tuple(values.get("sizes_before", ()))
            observations[names[name]] = LastObservation(**values)
    return observations


def read_last_observation(instance: dg.DagsterInstance, key: dg.AssetKey) -> LastObservation | None:
    """The last observation of this asset; None if Dagster does not know the table."""
    return read_last_observations(instance, [key]).get(key)


def store_last_observations(
    instance: dg.DagsterInstance, observations: Mapping[dg.AssetKey, LastObservation]
) -> None:
    """Stores observations that Dagster has received."""
    if observations:
        values = {_PREFIX + k.to_user_string(): json.dumps(asdict(o)) for k, o in observations.items()}
        instance.daemon_cursor_storage.set_cursor_values(values)


def store_last_observation(
    instance: dg.DagsterInstance, key: dg.AssetKey, observation: LastObservation
) -> None:
    """Stores an observation that Dagster has received."""
    store_last_observations(instance, {key: observation})


def store_run(instance: dg.DagsterInstance, key: dg.AssetKey, run_id: str) -> None:
    """Stores that a run on the table started, whatever becomes of it."""
    observation = read_last_observation(instance, key) or LastObservation()
    store_last_observation(instance, key, replace(observation, run_id=run_id))


def finished_runs(instance: dg.DagsterInstance, run_ids: Collection[str]) -> frozenset[str]:
    """Those of these runs that have ended, or that Dagster no longer knows."""
    wanted = sorted(set(run_ids))
    if not wanted:
        return frozenset()
    active = {run.run_id for run in instance.get_runs(dg.RunsFilter(run_ids=wanted)) if not run.is_finished}
    return frozenset(wanted) - active


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
    context: Context,
    instance: dg.DagsterInstance,
    translator: IcebergTranslator,
) -> list[TableSigns]:
    """The signs of these tables: one request per catalog, and few queries of the ledger and of Dagster."""
    pointers = read_pointers(context, tables)
    keys = {t: translator.get_asset_key(t) for t in tables}
    last = read_last_observations(instance, list(keys.values()))
    pauses = context.ledger.registry.pauses()
    uuids: Mapping[TableId, str] = (
        {k.table: k.table_uuid for k in context.ledger.health.known_tables()} if pauses else {}
    )
    ended = finished_runs(instance, [o.run_id for o in last.values() if o.run_id is not None])
    queued = queued_runs(instance, context.clock.now_ms())
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
