"""What every writer's process is: it opens the lake, and makes steps until it is told to end."""

from __future__ import annotations

import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.adapters import load
from iceberg_maint_tests.qualification.chaos.journal import Journal
from iceberg_maint_tests.qualification.chaos.lake import MODELLED, NOTE, TABLES, ChaosTable, Place, Row
from iceberg_maint_tests.support.spark.writers import Writers


@dataclass(slots=True)
class Role:
    """One writer. `pause_seconds` is the mean time between two steps."""

    name: str
    place: Place
    seed: int
    pause_seconds: float
    context: Context
    rng: random.Random = field(init=False)
    journal: Journal = field(init=False)
    writers: Writers = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed} {self.name}")
        self.journal = Journal(self.place.journal(self.name))
        self.writers = Writers(Bridge(self.context.engine.spark.session()))

    def run(self, step: Callable[[ChaosTable], object], tables: Iterable[ChaosTable] = TABLES) -> None:
        """Steps on one table after the other, in an order of its own, until SIGTERM."""
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        chosen = list(tables)
        self.journal.note(ready=self.name)
        while not ended.is_set():
            table = self.rng.choice(chosen)
            try:
                step(table)
            except Exception:  # noqa: BLE001 - before its commit: a table that changed while it was read
                sys.stderr.write(f"{table}: {traceback.format_exc()}\n")
            ended.wait(self.rng.uniform(0.3, 1.7) * self.pause_seconds)


def names_of(table: Any) -> list[str]:
    """What the modelled columns of a Java table are called now, in the model's order."""
    return [str(table.schema().findColumnName(i)) for i in MODELLED]


def note_of(table: Any) -> str:
    """What the renamed column of a Java table is called now."""
    return str(table.schema().findColumnName(NOTE))


def partition_of(table: Any, row: Row) -> tuple[int, ...]:
    """The partition of a row under the current spec, whose fields are `p`, `g`, both or none, as they are."""
    values = {"p": row[1], "g": row[2]}
    return tuple(values[str(f.name())] for f in table.spec().fields())


def by_partition(table: Any, rows: Sequence[Row]) -> Mapping[tuple[int, ...], list[Row]]:
    """Rows by their partition under the current spec."""
    parts: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault(partition_of(table, row), []).append(row)
    return parts


def start(name: str, pause_seconds: float, main: Callable[[Role], None]) -> None:
    """The entry point of a role's module: `FOLDER SEED` are its arguments."""
    folder, seed = sys.argv[1:]
    place = Place(Path(folder))
    main(Role(name, place, int(seed), pause_seconds, load(place.config)))
