"""Every query of the ledger, as a command or a sensor asks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.ports.ledger import Ledger

FLEET_QUESTIONS = frozenset(
    {
        *(
            "known_tables",
            "measurements",
            "healths",
            "histories",
            "last_outcomes",
            "fleet_spends of a day",
            "pauses",
        ),
        *("fleet_waits", "confirm_health", "dropped_tables"),
    }
)
"""The queries about all tables."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query as a command or a sensor asks it. `fleet`: about all tables."""

    name: str
    ask: Callable[[], object]
    fleet: bool = False


def questions(ledger: Ledger, tables: int) -> list[Question]:
    """Returns the queries of commands and sensors, about a table in the middle of a fleet or about all its tables. The fleet
    is `bench.fleet.footprint`'s: table 7 has the UUID `uuid-7` and the name `lake.db.t7`."""
    middle = tables // 2
    uuid, name = f"uuid-{middle}", f"lake.db.t{middle}"
    table = TableId.parse(name)
    rewrite = Operation.REWRITE_DATA_FILES
    every = {f"uuid-{n}": f"lake.db.t{n}" for n in range(tables)}
    names = [TableId.parse(n) for n in every.values()]
    of_one: dict[str, Callable[[], object]] = {
        "history": lambda: ledger.health.history(uuid, name, rewrite),
        "health": lambda: ledger.health.get(table),
        "health_days": lambda: ledger.health.health_days([uuid]),
        "records of a table": lambda: ledger.records.newest(name, 20),
        "records of the fleet": lambda: ledger.records.newest(None, 50),
        "records of a run": lambda: ledger.records.of_run(f"r-t{middle}-7"),
        "last_proved": lambda: ledger.records.last_proved(name),
        "open_attempts": lambda: ledger.work.open_attempts(uuid),
        "attempts_at": lambda: ledger.work.attempts_at(uuid, f"b-t{middle}-7"),
        "open_batches": lambda: ledger.work.open_batches(uuid, rewrite),
        "open_operations": lambda: ledger.work.open_operations(uuid),
        "cursors": lambda: ledger.work.cursors(uuid),
        "memory_uses": lambda: ledger.records.memory_uses(uuid),
        "commit_trials": lambda: ledger.records.commit_trials(uuid, rewrite),
        "last_report": lambda: ledger.records.last_report(uuid, rewrite),
        "has_unrecorded_runs": lambda: ledger.records.has_unrecorded_runs(uuid),
        "pause_note": lambda: ledger.registry.pause_note(uuid, name),
        "readers": lambda: ledger.registry.readers(uuid),
        "missing_partitions": lambda: ledger.health.missing_partitions(table),
        "retired_partitions": lambda: ledger.health.retired_partitions(table),
        "fleet_spends of an hour": lambda: ledger.records.fleet_spends(3600),
        "fleet_rewrites": ledger.records.fleet_rewrites,
        "past_work of 50 tables": lambda: ledger.records.past_work(list(every)[:50], 30, 30),
        "fleet_cycle_ms": ledger.registry.fleet_cycle_ms,
        "outdated_tables": ledger.health.outdated_tables,
        "incidents": ledger.registry.incidents,
        "prune of a table": lambda: ledger.records.prune(uuid, 80),
    }
    of_all: dict[str, Callable[[], object]] = {
        "known_tables": ledger.health.known_tables,
        "dropped_tables": ledger.records.dropped_tables,
        "measurements": lambda: ledger.health.measurements(names),
        "healths": lambda: ledger.health.get_all(names),
        "histories": lambda: ledger.health.histories(every),
        "last_outcomes": lambda: ledger.records.last_outcomes(every, rewrite, 3),
        "fleet_spends of a day": lambda: ledger.records.fleet_spends(86_400),
        "pauses": ledger.registry.pauses,
        "fleet_waits": ledger.registry.fleet_waits,
        "confirm_health": lambda: ledger.health.confirm(dict.fromkeys(every, "nowhere")),
    }
    return [Question(n, ask) for n, ask in of_one.items()] + [
        Question(n, ask, True) for n, ask in of_all.items()
    ]
