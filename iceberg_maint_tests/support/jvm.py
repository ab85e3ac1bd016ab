"""How the JVMs of the tests start, those of the programs that tests start as well.

    python -m iceberg_maint_tests.support.jvm

writes the archive of classes that they share: half of what a small Spark does is to load and verify
the same ten thousand classes again. Without it they start as well, later.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parents[2] / ".cache" / "tests" / "classes.jsa"

# Small work on two cores: compiling it well costs more than running it. Thousands of steps are not small.
_IS_LONG = "ICEBERG_MAINT_TEST_STEPS" in os.environ
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java reserves 48 MiB for the code of one compiler. When they are full, Spark's listeners fail and the context stops."""
_OPTIONS = "-XX:+UseSerialGC" if _IS_LONG else f"{_FIRST_COMPILER} -XX:+UseSerialGC"
# Another Java than the one that wrote the archive leaves it alone, and need not say so.
_QUIET = "-Xlog:cds*=off -Xlog:class+path=off"


def options(archive: Path = ARCHIVE) -> str:
    """What every JVM gets; with the archive where there is one."""
    return f"{_OPTIONS} -XX:SharedArchiveFile={archive} {_QUIET}" if archive.exists() else _OPTIONS


def environment() -> dict[str, str]:
    """What is set for every process that starts a Spark, those of the programs that tests start as well."""
    # No job may need a Python beside ours, which on other machines is missing or of another version.
    return {"SPARK_SUBMIT_OPTS": options(), "PYSPARK_PYTHON": "no-python-on-executors"}


def main() -> None:
    """Starts Spark as the tests do, lets it do some of everything, and keeps the classes it has loaded."""
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as name:
        made = Path(name) / ARCHIVE.name
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_OPTIONS} -XX:ArchiveClassesAtExit={made} {_QUIET}"
        _work(Path(name))
        if not made.exists():
            print("this Java writes no archive of classes; tests start their JVMs without", file=sys.stderr)
            return
        made.replace(ARCHIVE)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")


def _work(folder: Path) -> None:
    """Ends the JVM, which then writes."""
    from iceberg_maint.engines.spark.session.session import exit_jvm
    from iceberg_maint.loop.maintain import Request, maintain
    from iceberg_maint.wiring.adapters import load
    from iceberg_maint_tests.support.e2e.lake import make_lake, make_table

    config = make_lake(folder)
    make_table(folder, "db.t", 6)
    context = load(config)
    maintain(context.catalogs.find("db.t"), Request("archive"), context)
    spark = context.engine.spark.session()
    for version in (2, 3):
        name = f"lake.db.v{version}"
        modes = "'write.delete.mode'='merge-on-read','write.update.mode'='merge-on-read'"
        spark.sql(
            f"CREATE TABLE {name} (id bigint, p string) USING iceberg PARTITIONED BY (p) "
            f"TBLPROPERTIES ('format-version'='{version}',{modes})"
        )
        spark.sql(f"INSERT INTO {name} SELECT id, cast(id % 3 AS string) FROM range(100)")
        spark.sql(f"UPDATE {name} SET id = id + 1 WHERE id % 7 = 0")
        spark.sql(f"DELETE FROM {name} WHERE id % 5 = 0")
        rows = spark.table(name)
        rows.join(rows.selectExpr("id + 1 AS id"), "id", "left_anti").groupBy("p").count().collect()
    exit_jvm()


if __name__ == "__main__":
    main()
