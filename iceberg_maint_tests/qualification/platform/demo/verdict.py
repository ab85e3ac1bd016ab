"""What Dagster stored of the runs of the demo: who used a table when, what was due for how long, what arrived."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from iceberg_maint.defs.names import DUE_CHECK

_TYPE = dg.DagsterEventType
_ENDS = (_TYPE.STEP_SUCCESS, _TYPE.STEP_FAILURE, _TYPE.RUN_FAILURE, _TYPE.RUN_CANCELED)
_ARRIVE = (_TYPE.ASSET_MATERIALIZATION, _TYPE.ASSET_OBSERVATION, _TYPE.ASSET_CHECK_EVALUATION)
TABLES = {"raw/orders": "orders", "shop/clicks": "clicks", "daily_orders": "orders"}
READERS = frozenset({"daily_orders"})
MAINTENANCE = "iceberg_maint/lake/shop/"
YIELDED = ": yields to "
_WAITS = "Waits for "
"""Begin of the description of a partition that is due again after the load."""


@dataclass(frozen=True)
class Use:
    """One step on a table: `load`, `read`, `data`, `housekeeping`, or `yielded`, a maintenance that began nothing."""

    kind: str
    table: str
    begin: float
    end: float
    run: str

    def overlaps(self, other: Use) -> float:
        """The seconds of both at once."""
        return max(0.0, min(self.end, other.end) - max(self.begin, other.begin))


@dataclass
class Story:
    """All of it. `waits` are the seconds from the first evaluation as due of a partition to that as not due; `open` those that
    are due at the end."""

    uses: list[Use] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    arrived: Counter[str] = field(default_factory=Counter)
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    open: dict[str, float] = field(default_factory=dict)

    def overlaps(self, kinds: Sequence[str], others: Sequence[str]) -> list[tuple[Use, Use, float]]:
        """The steps of `kinds` at the same time as a step of `others` on the same table."""
        pairs = (
            (a, b, a.overlaps(b))
            for a in self.uses
            for b in self.uses
            if a.kind in kinds and b.kind in others and a.table == b.table and a.run != b.run
        )
        return [(a, b, seconds) for a, b, seconds in pairs if seconds > 0]


def read_story(home: Path, now: float) -> Story:
    """Reads the instance, as of `now` in seconds."""
    story = Story()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for record in reversed(instance.get_run_records()):
            run = record.dagster_run
            entries = instance.all_logs(run.run_id)
            if run.status in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED):
                story.failed.append(f"{run.run_id[:8]} {run.job_name} {run.status.value}")
            story.uses += _uses(entries, now)
            story.arrived.update(_arrived(entries))
        _read_waits(instance, story, now)
    return story


def _uses(entries: Sequence[dg.EventLogEntry], now: float) -> Iterator[Use]:
    planned: dict[str, set[str]] = defaultdict(set)
    begins: dict[str, float] = {}
    ends: dict[str, float] = {}
    yielded = set()
    for entry in entries:
        event = entry.dagster_event
        step = entry.step_key or ""
        if event is None:
            if YIELDED in entry.user_message and "no further" not in entry.user_message:
                yielded.add(step)
            continue
        if event.event_type is _TYPE.ASSET_MATERIALIZATION_PLANNED and event.asset_key is not None:
            planned[step].add(event.asset_key.to_user_string())
        elif event.event_type is _TYPE.STEP_START:
            begins.setdefault(step, entry.timestamp)
        elif event.event_type in _ENDS:
            for ended in [step] if step else set(begins) - set(ends):
                ends[ended] = entry.timestamp
    for step, begin in begins.items():
        for key in planned[step]:
            kind, table = _kind(key)
            end = ends.get(step, now)
            began_nothing = step in yielded and end - begin < _YIELD_SECONDS
            if kind:
                own = "yielded" if began_nothing and kind in ("data", "housekeeping") else kind
                yield Use(own, table, begin, end, entries[0].run_id)


_YIELD_SECONDS = 3.0


def _kind(key: str) -> tuple[str, str]:
    if key.startswith(MAINTENANCE):
        table, _, housekeeping = key.removeprefix(MAINTENANCE).partition("__")
        return (housekeeping or "data"), table
    if key in TABLES:
        return ("read" if key in READERS else "load"), TABLES[key]
    return "", ""


def _arrived(entries: Sequence[dg.EventLogEntry]) -> Iterator[str]:
    """The kinds of events of the assets of maintenance."""
    for entry in entries:
        event = entry.dagster_event
        if event is None or event.event_type not in _ARRIVE:
            continue
        check = event.event_type is _TYPE.ASSET_CHECK_EVALUATION
        key = event.asset_check_evaluation_data.asset_key if check else event.asset_key
        if key is not None and key.to_user_string().startswith(MAINTENANCE):
            yield event.event_type.value.removeprefix("ASSET_").lower()


def _read_waits(instance: dg.DagsterInstance, story: Story, now: float) -> None:
    """Reads the evaluations of what is due, of each partition in their order."""
    for table in sorted(set(TABLES.values())):
        key = dg.AssetCheckKey(dg.AssetKey([*MAINTENANCE.rstrip("/").split("/"), table]), DUE_CHECK)
        records = instance.event_log_storage.get_asset_check_execution_history(key, limit=10_000)
        since: dict[str, float] = {}
        for record in reversed(records):
            if not isinstance(record.evaluation, dg.AssetCheckEvaluation):
                continue
            partition, passed = f"{table} {record.evaluation.partition}", record.evaluation.passed
            if not passed:
                since.setdefault(partition, record.create_timestamp)
            elif partition in since and not (record.evaluation.description or "").startswith(_WAITS):
                story.waits[partition].append(record.create_timestamp - since.pop(partition))
        story.open.update({partition: now - begin for partition, begin in since.items()})
