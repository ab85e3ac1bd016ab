"""The parent of the Python workers has imported what they need, from the installed PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from iceberg_maint.engines.spark.rewrite.columnar.daemon import installed
from iceberg_maint.engines.spark.session.settings import SparkSettings, spark_conf
from iceberg_maint_tests.support.spark.versions import not_on_spark_3

SPARK = Path(pyspark.__file__).parent
ARCHIVES = sorted(map(str, (SPARK / "python" / "lib").glob("*.zip")))
MODULE = "iceberg_maint.engines.spark.rewrite.columnar.daemon"


def test_archives_of_the_installed_pyspark_are_left_out() -> None:
    assert len(ARCHIVES) == 2
    path = ["/here", *ARCHIVES, *sys.path]
    assert installed(path) == ["/here", *sys.path]


def test_archives_of_another_pyspark_stay(tmp_path: Path) -> None:
    """The PySpark of `SPARK_HOME` may be of another version."""
    archives = [str(tmp_path / "python" / "lib" / Path(a).name) for a in ARCHIVES]
    path = [*archives, *sys.path]
    assert installed(path) == path


def test_archives_stay_where_no_pyspark_is_installed(tmp_path: Path) -> None:
    assert installed([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES, str(tmp_path)]


@not_on_spark_3("its PySpark is on the PYTHONPATH that the test replaces")
def test_workers_are_forked_with_arrow_and_without_pandas() -> None:
    """The daemon ends when Spark closes its input."""
    state = "sys.modules['pyspark'].__file__, [m in sys.modules for m in ('pyarrow', 'pandas')]"
    code = f"import atexit, sys; from {MODULE} import main; atexit.register(lambda: print({state}, file=sys.stderr)); main()"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(ARCHIVES)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,  # PySpark's daemon ends with status 1
    )
    assert found.stderr.decode() == f"{pyspark.__file__} [True, False]\n"
    assert len(found.stdout) == 4  # the port


@pytest.mark.parametrize(("master", "has"), [("local[2]", True), ("spark://h:7077", False)])
def test_session_of_a_local_master_has_the_daemon_and_that_of_a_cluster_pyspark_s(
    master: str, has: bool
) -> None:
    conf = spark_conf(SparkSettings(master, (), {}, {}))
    assert conf.get("spark.python.daemon.module") == (MODULE if has else None)


def test_daemon_that_the_settings_name_is_kept() -> None:
    given = {"spark.python.daemon.module": "pyspark.daemon"}
    assert spark_conf(SparkSettings("local[2]", (), {}, given)).items() >= given.items()


def test_worker_of_a_session_has_the_modules_of_its_parent(spark: Any) -> None:
    def modules(_: int) -> tuple[str, bool]:
        import sys

        return str(sys.modules["pyspark"].__file__), "iceberg_maint.columnar.rewrite" in sys.modules

    assert spark.sparkContext.parallelize([0], 1).map(modules).collect() == [(pyspark.__file__, True)]
