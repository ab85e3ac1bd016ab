"""Five engines read every table before and after its maintenance: `make qualify SUITE=readers`.

    python -m iceberg_maint_tests.qualification.readers [--data DIR] [--apart .cache/readers] [--record FILE]

Builds the demo lake, small, tables by DuckDB's own writer, and the unusual tables three times: rewritten by `columnar` and by
`native`, and with the five engines as `readers`, for conversions and merges. Everything is due at once; else the policy is
the built-in one. Prints who reads each table. Exits with 1 if an engine that read a table before does not read the same rows
after.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.demo.main import build_lake
from iceberg_maint.demo.store import LOCAL
from iceberg_maint.demo.tables import SMALL
from iceberg_maint.demo.workspace import CATALOG, place, write_config
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.session.driver_jvm import exit_jvm
from iceberg_maint.errors import EXIT_REFUSED
from iceberg_maint.wiring.adapters import build
from iceberg_maint_tests.qualification.readers import duckdb_writer, tables
from iceberg_maint_tests.qualification.readers.engines import DIED, ENGINES, Answer, Engine
from iceberg_maint_tests.support import jvm
from iceberg_maint_tests.support.spark.writers import Writers

NAMESPACES = ("columnar", "native", "marked")
"""Each has all unusual tables: rewritten by one strategy or the other, or with their deletes converted where each of the five engines
reads the marks."""
POLICY = f"""\
defaults:
  rewrite_data_files: {{min_input_files: 2, equality_delete_max_age_seconds: 0}}
  expire_snapshots: {{max_snapshot_age_seconds: 0, min_snapshots_to_keep: 1}}
tables:
  "lake.native.*": {{rewrite_data_files: {{strategy: native}}}}
  "lake.marked.*":
    readers: [{", ".join(ENGINES)}]
    equality_deletes: {{route: convert}}
    rewrite_data_files: {{min_input_files: 1000, delete_ratio_act: null}}
"""
Answers = dict[str, dict[str, Answer]]
"""The answers of all engines, by table and engine."""


def main() -> int:
    """Builds, reads, maintains, reads again."""
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint_tests.qualification.readers")
    parser.add_argument("--data", type=Path, help="keep the lake in this folder")
    parser.add_argument("--apart", type=Path, default=Path(".cache/readers"))
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    os.environ.update(jvm.environment())
    with tempfile.TemporaryDirectory(prefix="readers-") as scratch:
        root = (given.data or Path(scratch) / "lake").absolute()
        rows = build_lake_of(root, given.apart)
        engines = [Engine(name, given.apart) for name in ENGINES]
        before = read_all(root, rows, engines)
        ended = maintain(root)
        after = read_all(root, rows, engines)
        for engine in engines:
            engine.close()
    if given.record:
        given.record.write_text(record({e.name: e.version for e in engines}, rows, before, after), "utf-8")
    print(page(rows, before, after))
    lost = losses(rows, before, after)
    print("\n".join(lost))
    return int(bool(lost) or ended not in (0, EXIT_REFUSED))


def build_lake_of(root: Path, apart: Path) -> dict[str, int]:
    """Writes all tables. Returns the number of rows of each, by Iceberg's own reader."""
    where = place(root)
    root.mkdir(parents=True)
    write_config(where.config, "make qualify SUITE=readers", POLICY)
    config = where.prepare(os.environ)
    context = build(config)
    build_lake(config, context, where, SMALL, LOCAL, lambda table, seconds: None)
    session = context.engine.spark.session()
    for namespace in NAMESPACES:
        tables.build(Writers(Bridge(session)), f"{CATALOG}.{namespace}", root / "imported")
    duckdb_writer.write(Bridge(session), root, apart)
    counted = {str(t): counted_rows(Bridge(session), str(t)) for t in context.catalogs.tables()}
    exit_jvm()
    return counted


def counted_rows(bridge: Bridge, name: str) -> int:
    """The number of rows by Iceberg's generic reader, which knows every type."""
    scan = bridge.iceberg.data.IcebergGenerics.read(bridge.load_table(name)).build()
    return int(bridge.iceberg.relocated.com.google.common.collect.Iterables.size(scan))


def read_all(root: Path, rows: Mapping[str, int], engines: list[Engine]) -> Answers:
    """What each engine reads of each table."""
    context = build(place(root).prepare(os.environ))
    locations = {name: context.catalogs.pin(TableId.parse(name)).metadata_location for name in rows}
    return {
        name: {engine.name: engine.read(location) for engine in engines}
        for name, location in locations.items()
    }


def maintain(root: Path) -> int:
    """Runs all of maintenance on all tables."""
    command = [sys.executable, "-m", "iceberg_maint", "run", "--config", str(place(root).config)]
    return subprocess.run(command, check=False).returncode


def losses(rows: Mapping[str, int], before: Answers, after: Answers) -> list[str]:
    """Who read a table before, and does not read the same rows after."""
    return [
        f"LOST: {engine} read {rows[name]} rows of {name}, and now: {after[name][engine]}"
        for name in rows
        for engine, (was, answer) in words(rows[name], before[name], after[name]).items()
        if was == "yes" and answer != "yes"
    ]


def page(rows: Mapping[str, int], before: Answers, after: Answers) -> str:
    """A line per table: who reads it before, and after. The error of who reads it not even after."""
    lines = []
    for name, count in rows.items():
        both = words(count, before[name], after[name])
        lines.append(
            f"{name} ({count} rows): {', '.join(f'{e}: {was} → {now}' for e, (was, now) in both.items())}"
        )
        lines += [f"    {e}: {answer.error}" for e, answer in after[name].items() if answer.error]
    return "\n".join(lines)


def record(versions: Mapping[str, str], rows: Mapping[str, int], before: Answers, after: Answers) -> str:
    """The JSON document that README and the table of readers follow from: of each table, one a line, what each engine reads
    before and after."""
    separator = ",\n"
    lines = [f'"{name}": {json.dumps(words(rows[name], before[name], after[name]))}' for name in rows]
    return f'{{"engines": {json.dumps(versions)},\n"tables": {{\n{separator.join(lines)}\n}}}}\n'


def words(rows: int, before: Mapping[str, Answer], after: Mapping[str, Answer]) -> dict[str, tuple[str, str]]:
    """What each engine reads of a table: `yes` for as many rows as Iceberg's own reader has; else `no`, `dies`, or what
    differs. If values change, those are right that an engine whose answer stays reads, too."""
    stay = {after[e].digest for e, answer in before.items() if answer == after[e]}
    result = {}
    for engine, answer in before.items():
        was, now = _word(answer, rows), _word(after[engine], rows)
        if was == now == "yes" and answer != after[engine]:
            was, now = ("other values", "yes") if after[engine].digest in stay else ("yes", "other values")
        result[engine] = (was, now)
    return result


def _word(answer: Answer, rows: int) -> str:
    if answer.error:
        return "dies" if answer.error.startswith(DIED) else "no"
    return "yes" if answer.rows == rows else f"{answer.rows} rows"


if __name__ == "__main__":
    raise SystemExit(main())
