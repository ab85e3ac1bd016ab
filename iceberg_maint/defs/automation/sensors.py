"""The sensors and the schedule: when to observe and to maintain.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.metadata import unmeasured_metadata
from iceberg_maint.defs.assets.table_checks import NOT_MEASURED, unmeasured_evaluation
from iceberg_maint.defs.automation.observations import LastObservation, TableSigns, store_last_observations
from iceberg_maint.defs.automation.tick_observation import (
    REPEAT_AFTER_SECONDS,
    TickObservation,
    TickTime,
    observe_config,
)
from iceberg_maint.defs.code_location import CodeLocation, read_table_list, reload_location, write_table_list
from iceberg_maint.defs.instance import check_instance, may_observe, observing
from iceberg_maint.defs.names import TABLE_TAG
from iceberg_maint.defs.runs.kept_connections import kept_connections, one_transaction
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.known_tables import ask_catalogs, prune_dropped_tables
from iceberg_maint.report.formatting import counted, shortened

LIST_SECONDS = 20.0
"""Seconds that a tick waits for the lists of the catalogs. Dagster fails a tick after 60."""
TABLES_PER_RUN = 400
"""Tables of one observe run, at most."""
_UNMEASURED_AT_ONCE = 25
"""Tables that one transaction of a tick reports as not measured yet. Other writers of SQLite wait for it."""

OBSERVE_CRON = "*/10 * * * *"
CHANGES_INTERVAL_SECONDS = 60
"""Seconds between two comparisons of the tables with their catalogs, at most."""
SHORTEST_INTERVAL_SECONDS = 10
"""Seconds between two ticks of a sensor, at least. Dagster's daemon starts due ticks every five seconds."""
TABLES_OF_FULL_INTERVAL = 100
"""A location of this many tables has the longest intervals. With fewer tables the intervals are shorter in proportion, so
no location compares more tables per second."""

_FIRST_TICK = "the lists of the catalogs"
"""The cursor if the next tick begins with these lists. Dagster would ignore an empty cursor and keep the previous one."""
_UNDER_WAY = "an observe run is queued or running"


def tick_interval(longest_seconds: int, tables: int) -> int:
    """Seconds between two ticks of a sensor over this many tables."""
    by_tables = longest_seconds * tables // TABLES_OF_FULL_INTERVAL
    return min(longest_seconds, max(SHORTEST_INTERVAL_SECONDS, by_tables))


def build_observe_schedule(job: dg.JobDefinition, tables: Sequence[TableId]) -> dg.ScheduleDefinition:
    """Observes changed tables, also those that the sensor missed."""

    @dg.schedule(
        name="observe_schedule",
        description="Requests an observation of all tables. The run measures the tables that changed or were "
        "last measured long ago.",
        job=job,
        cron_schedule=OBSERVE_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    def observe_schedule(
        context: dg.ScheduleEvaluationContext,
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        check_instance(context.instance)
        if observing(context.instance, tables):
            yield dg.SkipReason(_UNDER_WAY)
            return
        at = context.scheduled_execution_time.isoformat()
        for number, chunk in enumerate(chunks(tables, TABLES_PER_RUN)):
            yield _observe_request(chunk, f"{at} {number}")

    return observe_schedule


def build_changes_sensor(
    observation: TickObservation, location: CodeLocation, left_out: Mapping[TableId, Exception]
) -> dg.SensorDefinition:
    """Detects new, dropped and changed tables, pauses, ended runs, and changes of the configuration file. Reports the
    tables that this code location could not load (`left_out`).

    It compares with the last observation that Dagster received, not with the last measurement: the command
    line and runs measure too. A tick works for `WORK_SECONDS` and requests a run of at most `TABLES_PER_RUN`
    tables. The cursor is the table with which the next tick continues, or `_FIRST_TICK`.
    """

    tables, loop_context, translator = observation.tables, observation.context, observation.translator
    numbers = {str(table): number for number, table in enumerate(tables)}

    @dg.sensor(
        name="table_changes",
        description=(
            "Compares the catalogs' lists of tables and the configuration file with the last tick, and requests an "
            "observation of the tables that changed."
        ),
        job=observation.job,
        minimum_interval_seconds=tick_interval(CHANGES_INTERVAL_SECONDS, len(tables)),
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def table_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        check_instance(context.instance)
        origin = context.code_location_origin
        messages = [f"table {t} is not loaded: {why}" for t, why in left_out.items()]
        name = origin.location_name if origin else None
        time = TickTime(loop_context.clock)
        first = numbers.get(context.cursor or "", 0)

        def reload(why: str) -> str:
            return reload_location(location.webserver_url, name, why)

        if location.configuration is not None:
            messages += location.configuration.follow(lambda: reload("the configuration changed"))
        if first == 0:
            messages += follow_table_list(
                (*tables, *left_out),
                loop_context,
                location.table_list,
                location.has,
                lambda: reload("the table list changed"),
            )
        messages = [loop_context.process.masked(m) for m in messages]
        for message in messages:
            context.log.info(message)
        with kept_connections(context.instance):
            changed, following = observation.observe(context, time, first, TABLES_PER_RUN)
            _show_unmeasured(context.instance, changed, translator, time)
            under_way = not may_observe(context.instance, tables)
        if under_way:
            return dg.SensorResult(skip_reason="; ".join([*messages, _UNDER_WAY]), cursor=context.cursor)
        cursor = str(tables[following]) if following else _FIRST_TICK
        goes_on = f"; the next tick goes on with {cursor}" if following else ""
        if not changed:
            idle = f"no observe run is needed for {counted(len(tables), 'table')}{goes_on}"
            return dg.SensorResult(skip_reason="; ".join([*messages, idle]), cursor=cursor)
        epoch = loop_context.clock.now_ms() // 1000 // REPEAT_AFTER_SECONDS
        body = "\n".join(s.digest_text() for s in changed)
        key = hashlib.sha256(f"{epoch}\n{body}".encode()).hexdigest()[:24]
        return dg.SensorResult(
            run_requests=[_observe_request([s.table for s in changed], key)], cursor=cursor
        )

    return table_changes


def _show_unmeasured(
    instance: dg.DagsterInstance, signs: Sequence[TableSigns], translator: IcebergTranslator, time: TickTime
) -> None:
    """Reports new tables to Dagster as not measured yet, once per table, until the tick's time is over. Without this report
    Dagster shows checks that were never evaluated as passed."""
    for some in time.parts([s.table for s in signs if s.last is None], _UNMEASURED_AT_ONCE):
        keys = {translator.get_asset_key(table): table for table in some}
        with one_transaction(instance):
            for key, table in keys.items():
                observation = dg.AssetObservation(
                    key, description=NOT_MEASURED, metadata=unmeasured_metadata()
                )
                instance.report_runless_asset_event(unmeasured_evaluation(table, translator))
                instance.report_runless_asset_event(observation)
        store_last_observations(instance, dict.fromkeys(keys, LastObservation()))


def follow_table_list(
    tables: Sequence[TableId],
    loop_context: Context,
    path: Path,
    belongs: Callable[[TableId], bool],
    reload: Callable[[], str],
) -> list[str]:
    """Compares the catalogs with the table list and with the loaded tables. Returns messages for a person.

    If they differ, rewrites the list and requests a reload. A catalog that does not answer keeps its
    tables. Catalogs do not list views.
    """
    listing = ask_catalogs(loop_context.within(LIST_SECONDS))
    listed, errors = frozenset(listing.tables), listing.errors
    messages = [
        f"catalog {name} does not answer: {loop_context.process.masked(str(why))}"
        for name, why in errors.items()
    ]
    stored = frozenset(_stored(path))
    now = listed | {t for t in stored | set(tables) if t.catalog in errors}
    if now != stored:
        write_table_list(path, now)
        messages += [f"new table {t}" for t in sorted(now - stored)]
        messages += [f"table {t} is no longer in its catalog" for t in sorted(stored - now)]
        for table in stored - now:
            loop_context.ledger.health.forget_table(table)
    prune_dropped_tables(loop_context)
    if frozenset(t for t in now if belongs(t)) != frozenset(tables):
        messages.append(reload())
    return messages


def _stored(path: Path) -> tuple[TableId, ...]:
    try:
        return read_table_list(path) or ()
    except IcebergMaintError:
        return ()  # The caller writes the list again.


def _observe_request(tables: Sequence[TableId], run_key: str) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=run_key,
        run_config=observe_config(tables),
        tags={TABLE_TAG: shortened([str(t) for t in tables])},
    )


def chunks(tables: Sequence[TableId], size: int) -> list[Sequence[TableId]]:
    return [tables[i : i + size] for i in range(0, len(tables), size)]
