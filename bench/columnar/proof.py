"""What the proof costs: its share of the CPU seconds of a task of the columnar engine.

    python -m bench.columnar.proof FOLDER

The part `proof` of `bench.columnar.rewrites` runs it for a task that encodes all columns (`encoded`) and for one that copies
pages (`small`): the files of one partition, in one process, without Spark. After a run that warms up, tasks with the
proof levels `full` and `statistics` take five turns. Figures are medians. The parts of a full proof are `values` (every
value of the encoded columns), `pages` (bytes and page headers of copied columns) and `statistics` (all the rest: footer,
manifest, page index). `decompression` is what zstd alone needs for the pages that a splice copied, without reading a
value: no proof of their statistics can cost less. The part `proof` exits 1 if a share is above its target.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.columnar import strategies
from bench.columnar.tables import table_of

if TYPE_CHECKING:
    from iceberg_maint.columnar.task import RewriteTask

MOST_SHARES = {"encoded": {"proof": 0.30, "statistics": 0.03}, "small": {"proof": 0.12, "statistics": 0.03}}
"""By the part whose table has the input files, the targets of a full proof."""
LEVELS = ("full", "statistics")
TURNS = 5
Run = dict[str, float]
"""CPU seconds of a task, `all` and by phase of the engine, and of its proof, `proof` and by part."""


def proof_misses(share: float, tables: Path | None, *, checks: bool) -> list[str]:
    """Prints the shares. Returns the targets that are missed, none unless it `checks` them."""
    missed, tasks = [], {}
    for name, most in MOST_SHARES.items():
        with table_of(name, share, tables) as folder:
            command = [sys.executable, "-m", "bench.columnar.proof", str(folder)]
            run = subprocess.run(
                command, check=True, cwd=strategies.PROJECT, stdout=subprocess.PIPE, text=True
            )
        found = json.loads(run.stdout.splitlines()[-1])
        assert bool(found["spliced"]) is (name == "small"), found
        seconds, shares = found["seconds"], found["shares"]
        task = f"splice of columns {found['spliced']}" if found["spliced"] else "re-encode"
        print(f"proof, {task}: {found['files']} files of `{name}`, {found['bytes'] / 1e6:.0f} MB")
        if found["spliced"]:
            print(f"  decompression of the copied pages alone: {100 * found['decompression']:.1f} %")
        for level in LEVELS:
            parts = ", ".join(f"{n} {100 * s:.1f} %" for n, s in shares[level].items())
            print(f"  {level}: {seconds[level]:.2f} CPU s; {parts}")
        tasks[name] = found
        for part, target in most.items():
            if checks and (value := shares["full"][part]) > target:
                missed.append(f"{task}: {part} {100 * value:.1f} %, target {100 * target:g} %")
    for line in missed:
        print(f"MISSED {line}")
    print(json.dumps({"part": "proof", "tasks": tasks, "missed": missed}), flush=True)
    return missed


def main() -> None:
    """Prints one line of JSON."""
    task = _task(Path(sys.argv[1]))
    parts = _timed_parts()
    runs: dict[str, list[Run]] = defaultdict(list)
    spliced = _run(task, parts)[1]
    for turn in range(TURNS):
        for level in LEVELS if turn % 2 == 0 else LEVELS[::-1]:
            runs[level].append(_run(replace(task, proof=level), parts)[0])
    shares = {
        level: {
            name: round(statistics.median(r[name] / r["all"] for r in of_level), 4)
            for name in of_level[0]
            if name != "all"
        }
        for level, of_level in runs.items()
    }
    seconds = {
        level: round(statistics.median(r["all"] for r in of_level), 3) for level, of_level in runs.items()
    }
    result = {
        "files": len(task.inputs),
        "bytes": sum(f.size_bytes for f in task.inputs),
        "spliced": spliced,
        "seconds": seconds,
        "decompression": round(_decompression(task, spliced) / seconds["full"], 4),
        "shares": shares,
    }
    print(json.dumps(result))


def _task(folder: Path) -> RewriteTask:
    """The task for the files of the first partition, as the strategy makes it for two cores."""
    from pyiceberg.catalog.sql import SqlCatalog

    from iceberg_maint.columnar.task import Encoding, InputFile, RewriteTask
    from iceberg_maint.engines.spark.rewrite.bin_pack import row_group_bytes

    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder / 'wh'}"
    )
    table = catalog.load_table(strategies.TABLE.removeprefix("lake."))
    files = [t.file for t in table.scan().plan_files()]
    inputs = [f for f in files if f.partition[0] == min(g.partition[0] for g in files)]
    size = sum(f.file_size_in_bytes for f in inputs)
    encoding = Encoding(level=None, row_group_bytes=row_group_bytes(size, 2, Encoding().row_group_bytes))
    return RewriteTask(
        tuple(InputFile(f.file_path, f.file_size_in_bytes, f.record_count, 1) for f in inputs),
        str(folder / "proof.parquet"),
        table.schema().model_dump_json(),
        2,
        encoding=encoding,
        splice=True,
    )


def _run(task: RewriteTask, parts: Run) -> tuple[Run, list[int]]:
    """Runs a task. Returns its CPU seconds and the field ids of the copied columns."""
    from iceberg_maint.columnar.rewrite import rewrite

    parts.update(dict.fromkeys(parts, 0.0))
    before = time.process_time()
    result = rewrite(task)
    seconds = time.process_time() - before
    Path(task.output_path).unlink()
    assert result.proof.equal, result.proof.difference
    assert not result.streamed
    phases = dict(result.cpu_seconds)
    others = phases["proof"] - parts["values"] - parts["pages"]
    return {"all": seconds, **phases, **parts, "statistics": others}, list(result.spliced)


def _decompression(task: RewriteTask, spliced: list[int]) -> float:
    """Returns the CPU seconds in which the pages of these columns are decompressed, the median of some turns."""
    import pyarrow as pa

    from iceberg_maint.columnar.parquet.parquet_metadata import ParquetBytes, get
    from iceberg_maint.columnar.parquet.thrift import Reader
    from iceberg_maint.columnar.storage import Storage

    codec = pa.Codec(task.encoding.codec)
    pages = []
    for file in task.inputs:
        source = ParquetBytes.of(Storage(task.io).read(file.path))
        for group in range(len(source.row_groups)):
            for field_id in spliced:
                data = source.chunk(group, source.leaf_by_id[field_id]).pages_bytes
                position = 0
                while position < len(data):
                    reader = Reader(data, position)
                    header = reader.struct()
                    position = reader.position + get(header, 3)
                    pages.append((pa.py_buffer(data[reader.position : position]), get(header, 2)))
    runs = []
    for _ in range(TURNS):
        before = time.process_time()
        for page, size in pages:
            codec.decompress(page, size)
        runs.append(time.process_time() - before)
    return statistics.median(runs)


def _timed_parts() -> Run:
    """Replaces the functions of the proof by such that add their CPU seconds to the part of the proof."""
    from iceberg_maint.columnar.check.file_proof import Comparison
    from iceberg_maint.columnar.splice import page_splice

    parts: Run = {}
    functions: tuple[tuple[str, Any, str], ...] = (
        ("values", Comparison, "value_difference"),
        ("statistics", Comparison, "statistics_difference"),
        ("pages", page_splice, "difference"),
        ("statistics", page_splice, "page_statistics"),
        ("statistics", page_splice, "statistics_difference"),
    )
    for part, owner, name in functions:
        parts[part] = 0.0
        setattr(owner, name, _timed(getattr(owner, name), part, parts))
    return parts


def _timed(function: Callable[..., Any], part: str, parts: Run) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        before = time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            parts[part] += time.process_time() - before

    return timed


if __name__ == "__main__":
    main()
