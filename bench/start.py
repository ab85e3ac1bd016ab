"""What starting costs: importing the core, `iceberg-maint --help` and `why`, 1,000 tables' definitions, a search for changes.

    python -m bench.start

Each figure is the median of fresh processes, in CPU seconds, so that a busy machine does not change it; the
processes take turns. Exits 1 when a target is missed.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROUNDS = 5
TABLES = 1000
PROJECT = Path(__file__).resolve().parent.parent

PREAMBLE = """
import json, os, resource, warnings
warnings.simplefilter("ignore")

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
"""

CORE = """
import pkgutil
start = cpu()
import iceberg_maint.core
for module in pkgutil.iter_modules(iceberg_maint.core.__path__, "iceberg_maint.core."):
    __import__(module.name)
print(json.dumps(cpu() - start))
"""

DEFINITIONS = f"""
import dagster, dagster_pyspark
start = cpu()
from iceberg_maint.definitions import defs
repository = defs.get_repository_def()
assert len(repository.assets_defs_by_key) == {2 * TABLES + 1}  # the report of the fleet, too
print(json.dumps(cpu() - start))
"""

CHANGES = f"""
from iceberg_maint.wiring import adapters
from iceberg_maint.config import load_config
from iceberg_maint.loop.fleet.known_tables import read_known_pointers
context = adapters.build(load_config(None, os.environ))
tables = context.catalogs["lake"].tables()
assert len(tables) == {TABLES}
start = cpu()
pointers, errors = read_known_pointers(tables, context)
assert (len(pointers), len(errors)) == ({TABLES}, 0)
print(json.dumps(cpu() - start))
"""


@dataclass(frozen=True, slots=True)
class Target:
    """One figure with its limit in CPU seconds."""

    name: str
    command: tuple[str, ...]
    limit_seconds: float
    whole_process: bool = False


TARGETS = (
    Target("import iceberg_maint.core (all modules)", (sys.executable, "-c", PREAMBLE + CORE), 0.1),
    Target(
        "iceberg-maint --help (whole process)",
        (str(Path(sys.executable).parent / "iceberg-maint"), "--help"),
        1.0,
        whole_process=True,
    ),
    Target(
        "iceberg-maint why TABLE (whole process)",
        (
            str(Path(sys.executable).parent / "iceberg-maint"),
            "why",
            "db.t",
            "--config",
            "one/iceberg_maint.yaml",
        ),
        1.0,
        whole_process=True,
    ),
    Target(
        f"definitions of {TABLES:,} tables (without dagster's import)",
        (sys.executable, "-c", PREAMBLE + DEFINITIONS),
        4.0,
    ),
    Target(f"pointers of {TABLES:,} tables", (sys.executable, "-c", PREAMBLE + CHANGES), 1.0),
)


def main() -> int:
    """Prints a table and one line of JSON."""
    figures: dict[str, list[float]] = {t.name: [] for t in TARGETS}
    with tempfile.TemporaryDirectory(prefix="bench-start-") as folder:
        environ = {**os.environ, "ICEBERG_MAINT_HOME": folder, "PYTHONPATH": str(PROJECT)}
        environ.pop("ICEBERG_MAINT_CONFIG", None)
        # An installed package is compiled: importing it compiles nothing.
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        compile_dir(PROJECT / "iceberg_maint", quiet=1)
        _make_lake(Path(folder))
        _make_table(Path(folder) / "one")
        for _ in range(ROUNDS):
            for target in TARGETS:
                figures[target.name].append(_cpu_seconds(target, environ))
    table = Table("figure", "median CPU s", "limit", "spread")
    result, missed = {}, False
    for target in TARGETS:
        values = figures[target.name]
        median = statistics.median(values)
        missed = missed or median > target.limit_seconds
        verdict = "" if median <= target.limit_seconds else " MISSED"
        spread = f"{min(values):.3f} to {max(values):.3f}"
        table.add_row(target.name, f"{median:.3f}{verdict}", f"{target.limit_seconds:g}", spread)
        result[target.name] = {"cpu_seconds": round(median, 4), "limit": target.limit_seconds}
    Console().print(table)
    print(json.dumps(result))
    return 1 if missed else 0


def _cpu_seconds(target: Target, environ: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        target.command,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        cwd=environ["ICEBERG_MAINT_HOME"],
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if target.whole_process:
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(json.loads(run.stdout.splitlines()[-1]))


def _make_lake(home: Path) -> None:
    """A catalog of many tables on SQLite, their health in the ledger, and the table list."""
    import sqlalchemy as sa
    from pyiceberg.catalog.sql import SqlCatalog

    from iceberg_maint.core.health.metrics import Measured, PartitionHealth, TableHealth
    from iceberg_maint.core.model.ids import UNPARTITIONED_KEY, TableId
    from iceberg_maint.defs.code_location import write_table_list
    from iceberg_maint.ledger.ledger import sql_ledger

    tables = [TableId("lake", ("db",), f"t{i:04d}") for i in range(TABLES)]
    catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=home.as_uri())
    rows = [
        {
            "catalog_name": "lake",
            "table_namespace": "db",
            "table_name": t.name,
            "metadata_location": f"file:///{t}/v1.metadata.json",
            "iceberg_type": "TABLE",
        }
        for t in tables
    ]
    with catalog.engine.begin() as connection:
        columns = {c["name"] for c in sa.inspect(connection).get_columns("iceberg_tables")}
        names = [n for n in rows[0] if n in columns]
        values = ", ".join(f":{n}" for n in names)
        connection.execute(
            sa.text(f"INSERT INTO iceberg_tables ({', '.join(names)}) VALUES ({values})"),
            [{n: r[n] for n in names} for r in rows],
        )
    catalog.close()
    ledger = sql_ledger(f"sqlite:///{home}/ledger.db")
    for table, row in zip(tables, rows, strict=True):
        ledger.health.put(
            Measured(
                table=table,
                table_uuid=str(table),
                snapshot_id=1,
                sequence_number=1,
                metadata_location=row["metadata_location"],
                table_health=TableHealth(partitions=1),
                partitions={UNPARTITIONED_KEY: PartitionHealth(data_files=1)},
                target_file_size_bytes=1024,
            )
        )
    write_table_list(home / "tables.json", tables)


def _make_table(home: Path) -> None:
    """A lake of one table, as `init` writes it."""
    from click.testing import CliRunner
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema

    from iceberg_maint.cli import iceberg_maint

    CliRunner().invoke(iceberg_maint, ["init", str(home)], catch_exceptions=False)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=f"{home.as_uri()}/warehouse")
    catalog.create_namespace("db")
    catalog.create_table("db.t", Schema())
    catalog.close()


if __name__ == "__main__":
    sys.exit(main())
