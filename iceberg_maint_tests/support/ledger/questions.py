"""Every query of the ledger, as a command or a sensor asks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.ledger.ledger import SqlLedger

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


def questions(ledger: SqlLedger, tables: int) -> list[Question]:
    """Returns the queries of commands and sensors, about a table in the middle of a fleet or about all its tables. The fleet
    is `bench.footprint`'s: table 7 has the UUID `uuid-7` and the name `lake.db.t7`."""
    middle = tables // 2
    uuid, name = f"uuid-{middle}", f"lake.db.t{middle}"
    table = TableId.parse(name)
    rewrite = Operation.REWRITE_DATA_FILES
    every = {f"uuid-{n}": f"lake.db.t{n}" for n in range(tables)}
    names = [TableId.parse(n) for n in every.values()]
    of_one: dict[str, Callable[[], object]] = {
        "history": lambda: ledger.history(uuid, name, rewrite),
        "health": lambda: ledger.health(table),
        "health_days": lambda: ledger.health_days([uuid]),
        "records of a table": lambda: ledger.records(name, 20),
        "records of the fleet": lambda: ledger.records(None, 50),
        "records of a run": lambda: ledger.records_of_run(f"r-t{middle}-7"),
        "last_proved": lambda: ledger.last_proved(name),
        "open_attempts": lambda: ledger.open_attempts(uuid),
        "attempts_at": lambda: ledger.attempts_at(uuid, f"b-t{middle}-7"),
        "open_batches": lambda: ledger.open_batches(uuid, rewrite),
        "open_operations": lambda: ledger.open_operations(uuid),
        "cursors": lambda: ledger.cursors(uuid),
        "memory_uses": lambda: ledger.memory_uses(uuid),
        "commit_trials": lambda: ledger.commit_trials(uuid, rewrite),
        "last_report": lambda: ledger.last_report(uuid, rewrite),
        "has_unrecorded_runs": lambda: ledger.has_unrecorded_runs(uuid),
        "pause_note": lambda: ledger.pause_note(uuid, name),
        "readers": lambda: ledger.readers(uuid),
        "missing_partitions": lambda: ledger.missing_partitions(table),
        "retired_partitions": lambda: ledger.retired_partitions(table),
        "fleet_spends of an hour": lambda: ledger.fleet_spends(3600),
        "fleet_rewrites": lambda: ledger.fleet_rewrites(80),
        "past_work of 50 tables": lambda: ledger.past_work(list(every)[:50], 30, 30),
        "fleet_passed_ms": ledger.fleet_passed_ms,
        "outdated_tables": ledger.outdated_tables,
        "incidents": ledger.incidents,
        "prune of a table": lambda: ledger.prune(uuid, 80),
    }
    of_all: dict[str, Callable[[], object]] = {
        "known_tables": ledger.known_tables,
        "dropped_tables": ledger.dropped_tables,
        "measurements": lambda: ledger.measurements(names),
        "healths": lambda: ledger.healths(names),
        "histories": lambda: ledger.histories(every),
        "last_outcomes": lambda: ledger.last_outcomes(every, rewrite, 3),
        "fleet_spends of a day": lambda: ledger.fleet_spends(86_400),
        "pauses": ledger.pauses,
        "fleet_waits": ledger.fleet_waits,
        "confirm_health": lambda: ledger.confirm_health(dict.fromkeys(every, "nowhere")),
    }
    return [Question(n, ask) for n, ask in of_one.items()] + [
        Question(n, ask, True) for n, ask in of_all.items()
    ]
