"""How the JVMs of the tests start, those of the programs that tests start as well.

    python -m iceberg_maint_tests.support.jvm

writes the list of the classes that the product's archive of classes holds: those of a JVM without a Spark context.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

from iceberg_maint.engines.spark.session.class_archive import CLASSES

# Small work on two cores: compiling it well costs more than running it. Thousands of steps are not small.
_IS_LONG = "ICEBERG_MAINT_TEST_STEPS" in os.environ
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java reserves 48 MiB for the code of one compiler. When they are full, Spark's listeners fail and the context stops."""
_OPTIONS = "-XX:+UseSerialGC" if _IS_LONG else f"{_FIRST_COMPILER} -XX:+UseSerialGC"


_OF_JAVA = ("java/", "javax/", "jdk/", "sun/", "com/sun/")


def environment() -> dict[str, str]:
    """What is set for every process that starts a Spark, those of the programs that tests start as well."""
    # No job may need a Python beside ours, which on other machines is missing or of another version.
    return {"SPARK_SUBMIT_OPTS": _OPTIONS, "PYSPARK_PYTHON": "no-python-on-executors"}


def main() -> None:
    """Starts the JVM, lets it do all operations, and keeps the names of the classes that it has loaded."""
    with tempfile.TemporaryDirectory() as name:
        listed = Path(name) / "classes.txt"
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_OPTIONS} -XX:DumpLoadedClassList={listed}"
        _work(Path(name))
        names = sorted(filter(None, map(_name, listed.read_text("utf-8").splitlines())))
    CLASSES.write_bytes(gzip.compress("\n".join(names).encode(), 9, mtime=0))
    print(f"{CLASSES}: {len(names)} classes, {CLASSES.stat().st_size:,} bytes")


def _name(line: str) -> str:
    """The name of a class that an archive of ours has: Java's own are in its own, hidden ones and other loaders' in none."""
    if line.startswith(("@", "#", *_OF_JAVA)) or "source:" in line or "$$Lambda" in line:
        return ""
    return line.split(maxsplit=1)[0].replace("/", ".")


def _work(folder: Path) -> None:
    """Ends the JVM, which has then listed its classes."""
    from iceberg_maint.core.model.ids import ALL_OPERATIONS
    from iceberg_maint.engines.spark.session.driver_jvm import exit_jvm
    from iceberg_maint.loop.maintain import Request, maintain
    from iceberg_maint.wiring.adapters import load
    from iceberg_maint_tests.support.e2e.lake import make_lake, make_table

    config = make_lake(folder)
    make_table(folder, "db.t", 12)
    context = load(config)
    maintain(context.catalogs.find("db.t"), Request("classes", None, None, True, ALL_OPERATIONS), context)
    exit_jvm()


if __name__ == "__main__":
    main()
