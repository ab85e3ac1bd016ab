"""Predicted against measured files, bytes, CPU seconds and time of real rewrites by Spark.

    python -m bench.fleet.predictions [--partitions 10] [--seed 1] [--same | --no-targets]

Seven tables (`bench/fleet/predictions_lake.py`): v2 and v3, with and without deletes, rewritten by `columnar`, by `native` and sorted, and in batches of
eight partitions. Partitions have 4 to 200 files of 10 kB to 8 MB and leave one to six. Every rewrite records its prediction before it
runs; the errors are |predicted / measured - 1|, of the seconds in batches with at least five earlier ones to
learn from. Exits 1 if a median is above 10 % or fewer than 50 rewrites ended.

With `--same` all partitions have the same files, and the command prints how far a batch of one table is from the median of its table: no
prediction from the inputs can have a lower median error.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from bench.fleet.predictions_lake import finish_lake, make_lake
from iceberg_maint.core.outcomes.outcome import BatchOutcome

PER_RUN = 4
LEAST_LEARNED, LEAST_REWRITES = 5, 50
TARGET = 0.10
WARM = 10


def main() -> int:
    """Prints the errors and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=10, help="partitions of each table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--outcomes", type=Path, help="file that gets a line of JSON per batch")
    parser.add_argument(
        "--same", action="store_true", help="equal partitions: the spread of the measurements"
    )
    parser.add_argument(
        "--no-targets", action="store_true", help="judge files and bytes only, beside other work"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-predictions-") as scratch:
        done = _batches(Path(scratch), given.partitions, random.Random(given.seed), given.same)
    if given.outcomes:
        from iceberg_maint.core.model.codec import to_data

        given.outcomes.write_text(
            "".join(json.dumps({"table": t, **to_data(b)}) + "\n" for t, b in done), "utf-8"
        )
    if given.same:
        print(json.dumps(_spread(done)))
        return 0
    errors: dict[str, list[float]] = {
        name: [] for name in ("removed_files", "output_bytes", "cpu_seconds", "seconds")
    }
    for _, batch in done:
        predicted, cost = batch.predicted, batch.cost
        if predicted is None or cost is None or batch.snapshot_after is None:
            continue
        removed = batch.input_files - batch.output_files
        errors["removed_files"].append(_error(batch.input_files - predicted.output_files, max(1, removed)))
        errors["output_bytes"].append(_error(predicted.output_bytes or 0, batch.output_bytes))
        if predicted.learned_from >= LEAST_LEARNED:
            errors["seconds"].append(_error(predicted.seconds, batch.seconds))
            if cost.cpu_seconds and predicted.cpu_seconds is not None:
                errors["cpu_seconds"].append(_error(predicted.cpu_seconds, cost.cpu_seconds))
    figures = {
        name: {"median": _rounded(statistics.median(e)), "p90": _rounded(_p90(e)), "batches": len(e)}
        for name, e in errors.items()
    }
    judged = set(figures) - ({"cpu_seconds", "seconds"} if given.no_targets else set())
    missed = [name for name, figure in figures.items() if name in judged and figure["median"] > TARGET]
    print(json.dumps({"rewrites": len(errors["removed_files"]), **figures, "missed": missed}))
    return int(bool(missed) or len(errors["removed_files"]) < LEAST_REWRITES)


def _spread(done: list[tuple[str, BatchOutcome]]) -> dict[str, dict[str, float]]:
    """The distance of each batch from the median of its table. The first `WARM` batches of the session are left out."""
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for table, batch in done:
        cost = batch.cost
        if cost is None or batch.snapshot_after is None or cost.earlier < WARM or cost.cpu_seconds is None:
            continue
        if cost.groups == 1:
            taken["seconds", f"{table} {cost.delete_files > 0}"].append(batch.seconds)
            taken["cpu_seconds", f"{table} {cost.delete_files > 0}"].append(cost.cpu_seconds)
    figures = {}
    for name in ("cpu_seconds", "seconds"):
        errors = [
            _error(value, statistics.median(values))
            for (measure, _), values in taken.items()
            if measure == name
            for value in values
        ]
        figures[name] = {
            "median": _rounded(statistics.median(errors)),
            "p90": _rounded(_p90(errors)),
            "batches": len(errors),
        }
    return figures


def _error(predicted: float, measured: float) -> float:
    return abs(predicted / measured - 1)


def _rounded(share: float) -> float:
    return round(share, 4)


def _batches(
    folder: Path, partitions: int, draw: random.Random, same: bool
) -> list[tuple[str, BatchOutcome]]:
    """The batches of all tables, a few of each table in turn, each with its table."""
    from iceberg_maint.core.model.ids import Operation
    from iceberg_maint.loop.maintain import Request, maintain
    from iceberg_maint.wiring.adapters import load

    names = make_lake(folder, partitions, PER_RUN, draw, same=same)
    context = load(folder / "config.yaml")
    finish_lake(context.engine.spark.session())
    done: list[tuple[str, BatchOutcome]] = []
    while names:
        for name in tuple(names):
            request = Request(f"bench-{len(done)}", operations=(Operation.REWRITE_DATA_FILES,))
            batches = [b for o in maintain(context.catalogs.find(name), request, context) for b in o.batches]
            done += [(name, b) for b in batches]
            if not batches:
                names.remove(name)
    return done


def _p90(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[int(0.9 * (len(ordered) - 1))]


if __name__ == "__main__":
    sys.exit(main())
