"""Dagster's definitions of production on the cluster, tick by tick, until they request nothing.

    python -m iceberg_maint_tests.qualification.cluster.healing FOLDER

Prints one JSON document: the ticks, the failed runs, and the state of each table at the end.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from iceberg_maint.config import load_config
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.demo.heal import Requested, heal, open_in_process, state_of
from iceberg_maint.demo.workspace import place, table_id
from iceberg_maint.wiring.adapters import build
from iceberg_maint_tests.qualification.cluster.lake import LAKE


def step(tick: int, request: Requested, success: bool, records: tuple[Record, ...]) -> None:
    done = ", ".join(f"{r.outcome.operation} {r.outcome.outcome}" for r in records)
    print(
        f"tick {tick} {request.table.name}: {'' if success else 'FAILED '}{done}", file=sys.stderr, flush=True
    )
    for message in (b.message for r in records for b in r.outcome.batches if b.message):
        print(f"    {message}", file=sys.stderr, flush=True)


def main(folder: str) -> None:
    where = place(Path(folder))
    context = build(load_config(where.config, os.environ))
    dagster = open_in_process(context, where, housekeeping=True)
    try:
        dagster.observe()
        healing = heal(context, dagster, step)
    finally:
        dagster.close()
    looks = {t.name: state_of(context, table_id(t.name)).document() for t in LAKE}
    document = {
        "ticks": healing.ticks,
        "settled": healing.settled,
        "failed_runs": healing.failed_runs,
        "records": len(healing.records),
        "tables": looks,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main(*sys.argv[1:])
