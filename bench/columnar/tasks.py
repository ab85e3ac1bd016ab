"""Tasks of the columnar engine against the same tasks in 40 lines of PyArrow, on the tables of `bench.cold.cold_tables`.

    python -m bench.columnar.tasks [TABLE...] [--share 0.2] [--rounds 3] [--tables-in FOLDER]

A task is a partition. `ours` is what a worker runs. `plain` reads the files, writes them as one (zstd, page index, checksums,
dictionaries as Arrow chooses), takes bounds and a SHA-256, reads the output back and compares it: no path of ours should need
more. Each variant runs all tasks of a table in a fresh process of one thread, in turns, forwards and backwards. Figures are
medians: CPU seconds, peak memory of the process, bytes written, and how the CPU of ours divides among its
phases. Exits 1 if ours needs more CPU than plain, above noise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.cold.cold_tables import KINDS, NAMESPACE, make_lake
from bench.used import peak_mb

VARIANTS = ("ours", "plain")
NOISE = 1.05
WHOLE = ("tiny", "wide")
"""Tables of few rows, made with all their files: an output and each of its columns cost calls, whatever its rows."""
LEFT_OUT = ("big", "small-tables")
"""Larger and smaller tables of events."""


def main() -> int:
    """Prints a line for each table, and one line of JSON."""
    parser = argparse.ArgumentParser()
    names = [n for n in KINDS if n not in LEFT_OUT]
    parser.add_argument("tables", nargs="*", metavar="TABLE", default=names)
    parser.add_argument("--share", type=float, default=0.2, help="share of the files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tables-in", type=Path, help="folder of lakes that stay")
    parser.add_argument("--run", choices=VARIANTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(_run(given.run, sys.stdin)))
        return 0
    if unknown := set(given.tables) - set(KINDS):
        parser.error(f"{min(unknown)} is no table. Fix: name one of {', '.join(KINDS)}.")
    missed = []
    for name in given.tables:
        with nullcontext(given.tables_in) if given.tables_in else tempfile.TemporaryDirectory() as folder:
            lake = Path(folder) / name
            if not lake.exists():
                make_lake(lake, name, 1.0 if name in WHOLE else given.share)
            medians = _medians(lake, given.rounds)
        ours, plain = (medians[v] for v in VARIANTS)
        columns = ", ".join(f"{k} {ours[k]} / {plain[k]}" for k in plain)
        print(
            f"{name}: {columns}; plain over ours {plain['cpu_seconds'] / ours['cpu_seconds']:.2f}; {_shares(ours)}",
            flush=True,
        )
        if ours["cpu_seconds"] > NOISE * plain["cpu_seconds"]:
            missed.append(name)
        print(json.dumps({"table": name, "medians": medians}), flush=True)
    if missed:
        print(f"MISSED {', '.join(missed)}")
    return int(bool(missed))


def _medians(lake: Path, rounds: int) -> dict[str, dict[str, float]]:
    texts = "".join(
        replace(task, output_path=str(lake / f"{n}.parquet")).to_json() + "\n"
        for n, task in enumerate(tasks_of(lake))
    )
    runs: dict[str, list[dict[str, float]]] = {v: [] for v in VARIANTS}
    for turn in range(rounds):
        for variant in VARIANTS if turn % 2 == 0 else VARIANTS[::-1]:
            command = [sys.executable, "-m", "bench.columnar.tasks", "--run", variant]
            run = subprocess.run(
                command, check=True, input=texts, stdout=subprocess.PIPE, text=True, env=_environment()
            )
            runs[variant].append(json.loads(run.stdout.splitlines()[-1]))
            print(lake.name, variant, runs[variant][-1], file=sys.stderr, flush=True)
    return {
        variant: {key: statistics.median(r[key] for r in of_variant) for key in of_variant[0]}
        for variant, of_variant in runs.items()
    }


def _shares(run: dict[str, float]) -> str:
    """The phases as shares of the CPU."""
    phases = {k: v for k, v in run.items() if k not in ("cpu_seconds", "peak_mb", "mb")}
    phases["rest"] = run["cpu_seconds"] - sum(phases.values())
    return ", ".join(f"{k} {100 * v / run['cpu_seconds']:.0f} %" for k, v in phases.items())


def _environment() -> dict[str, str]:
    from iceberg_maint.engines.spark.rewrite.columnar.workers import ENVIRONMENT

    return {**os.environ, **ENVIRONMENT}


def _run(variant: str, lines: Iterable[str]) -> dict[str, Any]:
    from iceberg_maint.columnar.task import RewriteTask

    tasks = [RewriteTask.from_json(line) for line in lines]
    run = _ours if variant == "ours" else _plain
    run(replace(tasks[0], inputs=tasks[0].inputs[:2]))
    Path(tasks[0].output_path).unlink()
    written, phases = 0, dict[str, float]()
    before = time.process_time()
    for task in tasks:
        for phase, seconds in run(task).items():
            phases[phase] = round(phases.get(phase, 0.0) + seconds, 2)
        output = Path(task.output_path)
        written += output.stat().st_size
        output.unlink()
    seconds = time.process_time() - before
    mb = round(written / 1e6, 2)
    return {"cpu_seconds": round(seconds, 2), "peak_mb": round(peak_mb(os.getpid())), "mb": mb} | phases


def tasks_of(lake: Path) -> list[Any]:
    """The task of each partition of a lake's tables, as the strategy makes it for two cores, without its output."""
    from pyiceberg.catalog.sql import SqlCatalog

    from iceberg_maint.columnar.task import Encoding, InputFile, RewriteTask
    from iceberg_maint.engines.spark.rewrite.bin_pack import row_group_bytes

    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}/warehouse")
    tasks = []
    for name in catalog.list_tables(NAMESPACE):
        table = catalog.load_table(name)
        partitions: dict[Any, list[Any]] = {}
        for planned in table.scan().plan_files():
            partitions.setdefault(
                tuple(planned.file.partition[i] for i in range(len(planned.file.partition))), []
            ).append(planned.file)
        field = next((f.source_id for f in table.spec().fields), None)
        for values, files in partitions.items():
            size = sum(f.file_size_in_bytes for f in files)
            constants = {} if field is None else {field: values[0]}
            inputs = tuple(
                InputFile(f.file_path, f.file_size_in_bytes, f.record_count, 1, constants=constants)
                for f in sorted(files, key=lambda f: f.file_path)
            )
            encoding = Encoding(
                level=None, row_group_bytes=row_group_bytes(size, 2, Encoding().row_group_bytes)
            )
            schema = table.schema().model_dump_json()
            tasks.append(RewriteTask(inputs, "", schema, 2, encoding=encoding, splice=True))
    catalog.close()
    return tasks


def _ours(task: Any) -> dict[str, float]:
    from iceberg_maint.columnar.rewrite import rewrite

    result = rewrite(task)
    assert result.proof.equal, result.proof.difference
    return dict(result.cpu_seconds)


def _plain(task: Any) -> dict[str, float]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    output = Path(task.output_path)
    paths = [f.path.removeprefix("file://") for f in task.inputs]
    table = pa.concat_tables([pq.ParquetFile(p, page_checksum_verification=True).read() for p in paths])
    pq.write_table(
        table,
        output,
        compression="zstd",
        compression_level=3,
        row_group_size=1_000_000,
        write_page_index=True,
        write_page_checksum=True,
        dictionary_pagesize_limit=2 * 1024 * 1024,
    )
    for column, field in zip(table.columns, table.schema, strict=True):
        if not pa.types.is_nested(field.type):
            pc.min_max(column)
    digest = hashlib.sha256()
    with output.open("rb") as stream:
        while part := stream.read(1 << 20):
            digest.update(part)
    start = 0
    for batch in pq.ParquetFile(output, page_checksum_verification=True).iter_batches(200_000):
        rows = pa.Table.from_batches([batch])
        assert rows.equals(table.slice(start, len(rows))) or _has_nan(rows)
        start += len(rows)
    return {}


def _has_nan(rows: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    return any(pa.types.is_floating(c.type) and pc.any(pc.is_nan(c)).as_py() for c in rows.columns)


if __name__ == "__main__":
    raise SystemExit(main())
