"""One instance of our maintenance in a loop over all tables and operations, until SIGTERM; it may be killed
at any moment and started again. Its memo keeps all manifests and is damaged before every second run.

    python -m iceberg_maint_tests.qualification.chaos.maintainer FOLDER SEED NAME
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import traceback
import uuid
from pathlib import Path

from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import ALL_OPERATIONS, TableId
from iceberg_maint.core.outcomes.outcome import OperationOutcome
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.wiring.adapters import load
from iceberg_maint_tests.qualification.chaos.journal import Journal
from iceberg_maint_tests.qualification.chaos.lake import TABLES, Place
from iceberg_maint_tests.support.damaged_memo import damage, entries, keep_all_manifests

PAUSE_SECONDS = 4.0
DAMAGED_RUNS = 0.5
"""Share of the runs before which the memo is damaged."""


def maintained(context: Context, table: TableId, run_id: str) -> tuple[OperationOutcome, ...]:
    """One run of all operations on one table."""
    return maintain(table, Request(run_id, operations=ALL_OPERATIONS), context)


def told(outcome: OperationOutcome) -> dict[str, object]:
    """An outcome for the journal."""
    return {
        "operation": outcome.operation,
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "message": outcome.message,
        "batches": [[b.outcome, b.reason, b.message] for b in outcome.batches],
    }


def main(folder: str, seed: str, name: str) -> None:
    place = Place(Path(folder))
    keep_all_manifests()
    context = load(place.config)
    memo = load_config(place.config, os.environ).home / "manifests.db"
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    journal = Journal(place.journal(name))
    rng = random.Random(f"{seed} {name} {uuid.uuid4()}")
    jvm = context.engine.spark.session().sparkContext._gateway.proc
    journal.note(ready=name)
    while not ended.is_set():
        table = TableId.parse(str(rng.choice(TABLES)))
        if rng.random() < DAMAGED_RUNS:
            kept = entries(memo)
            journal.note(memo_entries=kept, memo_damage=damage(memo, rng))
        try:
            outcomes = maintained(context, table, f"{name}-{uuid.uuid4().hex[:12]}")
            journal.note(table=str(table), outcomes=[told(o) for o in outcomes if o.batches or o.message])
        except Exception as why:  # noqa: BLE001 - the next run settles what this one left
            sys.stderr.write(f"{table}: {traceback.format_exc()}\n")
            journal.note(table=str(table), error=f"{type(why).__name__}: {why}"[:400])
        if jvm.poll() is not None:
            raise SystemExit("the JVM is gone")
        ended.wait(rng.uniform(0.5, 1.5) * PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
