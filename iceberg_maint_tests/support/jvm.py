"""How the JVMs of the tests start, those of the programs that tests start as well.

    python -m iceberg_maint_tests.support.jvm

writes the archive of classes that they share: it has Spark's classes too, which the product's archive leaves out.

    python -m iceberg_maint_tests.support.jvm list

writes the list of the classes that the product's archive of classes holds: those of a JVM without a Spark context.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from iceberg_maint.engines.spark.session.class_archive import CLASSES, QUIET

if TYPE_CHECKING:
    from iceberg_maint.loop.context import Context

ARCHIVE = Path(__file__).resolve().parents[2] / ".cache" / "tests" / "classes.jsa"

# Small work on two cores: compiling it well costs more than running it. Thousands of steps are not small.
_IS_LONG = "ICEBERG_MAINT_TEST_STEPS" in os.environ
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java reserves 48 MiB for the code of one compiler. When they are full, Spark's listeners fail and the context stops."""
_OPTIONS = "-XX:+UseSerialGC" if _IS_LONG else f"{_FIRST_COMPILER} -XX:+UseSerialGC"
# Another Java than the one that wrote the archive leaves it alone, and need not say so.
_OPTIONS_OF_ARCHIVE = f"-XX:SharedArchiveFile={ARCHIVE} {' '.join(QUIET)}"

_OF_JAVA = ("java/", "javax/", "jdk/", "sun/", "com/sun/")


def environment() -> dict[str, str]:
    """What is set for every process that starts a JVM, those of the programs that tests start as well."""
    options = f"{_OPTIONS} {_OPTIONS_OF_ARCHIVE}" if ARCHIVE.exists() else _OPTIONS
    # No job may need a Python beside ours, which on other machines is missing or of another version.
    return {"SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": "no-python-on-executors"}


def write_archive() -> None:
    """Starts Spark as the tests do, lets it do some of everything, and keeps the classes that it has loaded."""
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as name:
        made = Path(name) / ARCHIVE.name
        _work(Path(name), f"-XX:ArchiveClassesAtExit={made} {' '.join(QUIET)}", _statements)
        if made.exists():
            made.replace(ARCHIVE)
            print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")
        else:
            print("this Java writes no archive of classes; tests start their JVMs without", file=sys.stderr)


def write_list() -> None:
    """Starts the JVM, lets it do all operations, and keeps the names of the classes that it has loaded."""
    with tempfile.TemporaryDirectory() as name:
        listed = Path(name) / "classes.txt"
        _work(Path(name), f"-XX:DumpLoadedClassList={listed}", lambda _: None)
        names = sorted(filter(None, map(_name, listed.read_text("utf-8").splitlines())))
    CLASSES.write_bytes(gzip.compress("\n".join(names).encode(), 9, mtime=0))
    print(f"{CLASSES}: {len(names)} classes, {CLASSES.stat().st_size:,} bytes")


def _name(line: str) -> str:
    """The name of a class that an archive of ours has: Java's own are in its own, hidden ones and other loaders' in none."""
    if line.startswith(("@", "#", *_OF_JAVA)) or "source:" in line or "$$Lambda" in line:
        return ""
    return line.split(maxsplit=1)[0].replace("/", ".")


def _work(folder: Path, options: str, more: Callable[[Context], None]) -> None:
    """Maintains a table in a JVM with these options, then does more in it. Ends the JVM, which has then written."""
    from iceberg_maint.core.model.ids import ALL_OPERATIONS
    from iceberg_maint.engines.spark.session.driver_jvm import exit_jvm
    from iceberg_maint.loop.maintain import Request, maintain
    from iceberg_maint.wiring.adapters import load
    from iceberg_maint_tests.support.e2e.lake import make_lake, make_table

    os.environ["SPARK_SUBMIT_OPTS"] = f"{_OPTIONS} {options}"
    config = make_lake(folder)
    make_table(folder, "db.t", 12)
    context = load(config)
    maintain(context.catalogs.find("db.t"), Request("classes", None, None, True, ALL_OPERATIONS), context)
    more(context)
    exit_jvm()


def _statements(context: Context) -> None:
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


if __name__ == "__main__":
    write_list() if sys.argv[1:] == ["list"] else write_archive()
