"""One cold command against one cold stock call, on tables as people have them: `make bench BENCH=end-to-end`.

    python -m bench.cold.end_to_end [TABLE...] [--rounds 3] [--share 1.0] [--variants NAME...]

`ours` is `iceberg-maint run --operation rewrite_data_files` as `init` leaves the configuration, with the full proof. `stock` is
one vanilla session and `CALL rewrite_data_files`; `stock-tuned` has the Java options `-XX:TieredStopAtLevel=1 -XX:+UseSerialGC`.
The table `cdc` has equality deletes: there ours runs all operations on data, and stock's call has the options that apply and drop
deletes. Every command is a fresh process on a fresh copy of the lake at the same path. Variants take turns, forwards and backwards.
Figures are medians: CPU of all processes, wall time, peak memory, and how many times less ours uses than stock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.cold.cold_tables import CDC, KINDS, copy_lake, make_lake
from bench.cold.sampled_run import Cost, run_sampled
from bench.record import publish
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation

TUNED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
VARIANTS = ("ours", "stock", "stock-tuned")
Costs = dict[str, list[Cost]]


def main() -> int:
    """Prints a row for each table and variant, and one line of JSON for each table."""
    parser = argparse.ArgumentParser()
    names = ", ".join((*KINDS, CDC))
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", default=[*KINDS, CDC], help=f"of {names}; all by default"
    )
    parser.add_argument("--rounds", type=int, default=3, help="3 by default")
    parser.add_argument("--share", type=float, default=1.0, help="share of the files")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    given = parser.parse_args()
    if unknown := set(given.tables) - {*KINDS, CDC}:
        parser.error(f"{min(unknown)} is no table. Fix: name one of {names}.")
    for name in given.tables:
        with tempfile.TemporaryDirectory(prefix="bench-cold-") as folder:
            costs = _costs(Path(folder), name, given)
        _report(name, costs)
    return 0


def _costs(folder: Path, name: str, given: argparse.Namespace) -> Costs:
    lake, kept = folder / "lake", folder / "kept"
    make_lake(lake, name, given.share)
    before = _content(lake)
    lake.rename(kept)
    costs: Costs = {variant: [] for variant in given.variants}
    for turn in range(given.rounds):
        for variant in given.variants if turn % 2 == 0 else given.variants[::-1]:
            copy_lake(kept, lake)
            cost = run_sampled(*_command(variant, lake, name), folder / "log")
            costs[variant].append(cost)
            print(name, variant, cost, file=sys.stderr, flush=True)
            if (content := _content(lake))["rows"] != before["rows"] or content["files"] >= before["files"]:
                raise AssertionError(f"{name}, {variant}: {content} after {before}")
    return costs


def _command(variant: str, lake: Path, name: str) -> tuple[list[str], dict[str, str]]:
    environ = dict(os.environ)
    if variant == "ours":
        operations = DATA_OPERATIONS if name == CDC else (Operation.REWRITE_DATA_FILES,)
        chosen = [word for operation in operations for word in ("--operation", operation.value)]
        command = [sys.executable, "-m", "iceberg_maint", "run", *chosen]
        return [*command, "--config", str(lake / "iceberg_maint.yaml")], environ
    if variant == "stock-tuned":
        environ["JDK_JAVA_OPTIONS"] = TUNED
    deletes = ["--deletes"] if name == CDC else []
    return [sys.executable, "-m", "bench.cold.stock_call", str(lake), *deletes], environ


def _content(lake: Path) -> dict[str, int]:
    """Files and live rows of all tables, by the metadata: of equality deletes, which hide the rows, by what was written."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}/warehouse")
    summaries: list[Any] = []
    for namespace in catalog.list_namespaces():
        for table in catalog.list_tables(namespace):
            snapshot = catalog.load_table(table).current_snapshot()
            assert snapshot is not None
            summaries.append(snapshot.summary)
    catalog.close()
    files = sum(int(s["total-data-files"]) for s in summaries)
    rows = sum(int(s["total-records"]) - int(s["total-position-deletes"]) for s in summaries)
    if any(int(s["total-equality-deletes"]) for s in summaries):
        rows = int(json.loads((lake / "expected.json").read_text())["rows"])
    return {"files": files, "rows": rows}


def _report(name: str, costs: Costs) -> None:
    medians = {
        variant: [statistics.median(getattr(c, field) for c in runs) for field in Cost.__dataclass_fields__]
        for variant, runs in costs.items()
    }
    document: dict[str, Any] = {"table": name, "rounds": len(next(iter(costs.values()))), "medians": medians}
    key = name.replace("-", "_")
    for other in ("stock", "stock-tuned"):
        if {"ours", other} <= set(medians):
            ratios = [b / a for a, b in zip(medians["ours"], medians[other], strict=True)]
            wall, cpu, memory = (round(r, 2) for r in ratios)
            print(f"{name}: {cpu:.2f} x CPU, {wall:.2f} x wall, {memory:.2f} x memory of {other}")
            document[f"{key}_{other.replace('-', '_')}"] = f"{cpu}/{wall}/{memory}"
    print(json.dumps(medians))
    publish("end_to_end", document)


if __name__ == "__main__":
    raise SystemExit(main())
