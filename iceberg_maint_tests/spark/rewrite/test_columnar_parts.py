"""Parts of the columnar strategy that need no Spark: which files make an output, which tasks share a Spark task."""

from __future__ import annotations

import gc
import subprocess
import sys
import zipimport
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.columnar.storage import digest_of
from iceberg_maint.columnar.task import RewriteResult, RewriteTask
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.planning.work import FileGroup, InputFile
from iceberg_maint.engines.spark.rewrite.columnar import job
from iceberg_maint.engines.spark.rewrite.columnar.job import (
    LEAST_SPARK_TASK_BYTES,
    SPARK_TASK_BYTES,
    Runner,
    _import_engine,
    _shipped_package,
    bins,
    package_zip,
    worker_python,
)
from iceberg_maint.engines.spark.rewrite.columnar.strategy import fingerprint
from iceberg_maint.engines.spark.rewrite.columnar.tasks import divided, identity_constants, metrics_modes
from iceberg_maint.engines.spark.rewrite.columnar.worker import TaskResult, of_attempt, rewrite_task

SIZES = st.lists(st.integers(1, 100), min_size=1, max_size=30)


def group(sizes: list[int], outputs: int) -> FileGroup:
    files = tuple(InputFile(f"f{i}", size, 1, 1) for i, size in enumerate(sizes))
    return FileGroup("p=a", 0, 0, files, outputs)


@given(SIZES, st.integers(1, 10))
def test_divided_keeps_every_file_in_order_and_makes_no_more_outputs_than_expected(
    sizes: list[int], outputs: int
) -> None:
    of = group(sizes, outputs)
    parts = divided(of)
    assert [f for part in parts for f in part] == list(of.files)
    assert all(parts)
    assert len(parts) <= outputs


def test_divided_equal_files_makes_equal_outputs() -> None:
    assert [len(part) for part in divided(group([10] * 12, 3))] == [4, 4, 4]
    assert [len(part) for part in divided(group([90, 1, 1, 90], 2))] == [2, 2]
    assert [len(part) for part in divided(group([0, 0], 2))] == [2]


def test_constants_of_a_file_are_its_identity_partition_values() -> None:
    spec = PartitionSpec(
        1,
        (
            PartitionField(1000, 3, "day", "identity", "int"),
            PartitionField(1001, 4, "id_bucket", "bucket[4]", "int"),
        ),
    )
    assert identity_constants(spec, {"partition": [7, 1]}) == {3: 7}
    assert identity_constants(spec, {}) == {}


def test_metrics_modes_are_those_of_the_columns_that_hold_values() -> None:
    names = {1: "id", 3: "s.a", 5: "l.element"}
    config = SimpleNamespace(columnMode=lambda name: SimpleNamespace(toString=lambda: f"{name}: full"))
    java = SimpleNamespace(schema=lambda: SimpleNamespace(findColumnName=names.__getitem__))
    bridge: Any = SimpleNamespace(
        iceberg=SimpleNamespace(MetricsConfig=SimpleNamespace(forTable=lambda _table: config))
    )
    types = {1: "int", 2: "struct<3: a: optional int>", 3: "int", 4: "list<string>", 5: "string"}
    table: Any = SimpleNamespace(java=java, types=types, lineage=())
    modes = {1: "id: full", 3: "s.a: full", 5: "l.element: full"}
    assert metrics_modes(bridge, table, {"write.metadata.metrics.default": "full"}) == modes
    assert metrics_modes(bridge, table, {}) == {}


@given(st.lists(st.integers(0, 3 * SPARK_TASK_BYTES), max_size=40), st.integers(1, 8))
def test_bins_hold_every_task_once_and_the_largest_comes_first(sizes: list[int], parallelism: int) -> None:
    found = bins(sizes, parallelism)
    assert sorted(i for members in found for i in members) == list(range(len(sizes)))
    loads = [sum(sizes[i] for i in members) for members in found]
    assert loads == sorted(loads, reverse=True)
    assert all(found)


def test_bins_large_tasks_are_alone_and_small_ones_share() -> None:
    large = 2 * SPARK_TASK_BYTES
    assert sorted(bins([large] * 5, 2)) == [[0], [1], [2], [3], [4]]
    assert [len(members) for members in bins([LEAST_SPARK_TASK_BYTES // 10] * 100, 2)] == [25] * 4


def test_bins_of_less_than_a_megabyte_are_one_spark_task() -> None:
    assert bins([1000] * 100, 2) == [list(range(100))]
    half = LEAST_SPARK_TASK_BYTES // 2
    assert len(bins([half] * 2, 2)) == 1
    assert len(bins([half] * 3, 2)) == 2


def test_bins_of_tasks_without_bytes_are_not_empty() -> None:
    assert bins([0, 0, 0], 2) == [[0, 1, 2]]


def test_spark_task_leaves_no_importer_of_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark lets each importer read its zip file again before the next Spark task."""
    archive = str(package_zip(tmp_path))
    monkeypatch.setitem(sys.path_importer_cache, archive, zipimport.zipimporter(archive))
    assert list(Runner(lambda task, _: task.upper())([[(0, "a"), (1, "b")]])) == [(0, "A"), (1, "B")]
    assert not [p for p, i in sys.path_importer_cache.items() if isinstance(i, zipimport.zipimporter)]


def test_python_looks_for_garbage_less_often_during_a_task() -> None:
    def worker(_task: str, _attempt: int) -> str:
        return str(gc.get_threshold()[0])

    before = gc.get_threshold()
    assert list(Runner(worker)([[(0, "")]])) == [(0, "20000")]
    assert gc.get_threshold() == before


def test_worker_imports_nothing_that_plans() -> None:
    program = """
import sys, iceberg_maint.engines.spark.rewrite.columnar.worker
print([m for m in sys.modules if m.startswith(("iceberg_maint.core.p", "iceberg_maint.core.decisions", "pyspark"))])
"""
    result = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert result.stdout == "[]\n"


def test_spark_task_freezes_modules_that_it_imported_and_nothing_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark collects garbage after each Spark task, over everything that is not frozen."""
    monkeypatch.setattr(job, "_frozen", {})
    run = Runner(lambda task, _: task)
    try:
        list(run([[(0, "a")]]))
        frozen = gc.get_freeze_count()
        kept = [[n] for n in range(1000)]
        list(run([[(0, "a")]]))
        # A frozen object that nothing refers to any more leaves the count.
        assert (frozen > 10_000, gc.get_freeze_count() <= frozen, len(kept)) == (True, True, 1000)
    finally:
        gc.unfreeze()


def test_rows_that_arrow_cannot_rewrite_are_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(_task: RewriteTask, _most_decoded_bytes: int | None) -> RewriteResult:
        raise pa.ArrowNotImplementedError("no kernel")

    monkeypatch.setattr("iceberg_maint.columnar.rewrite.rewrite", unable)
    text = RewriteTask((), f"{tmp_path}/00000-0-x-00001.parquet", "{}", 2).to_json()
    assert TaskResult.of_text(rewrite_task(text, 0)).unsupported == "Arrow cannot rewrite the rows: no kernel"


def test_attempts_of_a_task_write_different_files() -> None:
    first = "file:/lake/t/data/p=-0-/00003-0-c0ffee-00001.parquet"
    assert of_attempt(first, 0) == first
    assert of_attempt(first, 2) == "file:/lake/t/data/p=-0-/00003-2-c0ffee-00001.parquet"


def test_fingerprint_of_bytes_adds_up_and_sees_one_byte() -> None:
    first, second, other = (digest_of([text]) for text in (b"a", b"b", b"c"))
    whole = fingerprint([(1, first), (2, second)])
    assert fingerprint([(1, first)]) + fingerprint([(2, second)]) == whole
    assert (whole.rows, whole.algorithm) == (3, "sha256-files-1")
    assert fingerprint([(1, first), (2, other)]) != whole


def test_package_in_a_zip_file_runs_the_engine_without_the_checkout(tmp_path: Path) -> None:
    """A worker of a cluster has the packages that the engine imports, but not this one."""
    archive = package_zip(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); "
        "import iceberg_maint.engines.spark.rewrite.columnar.worker as w; print(w.__file__)"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert (run.stderr, run.stdout.strip()) == (
        "",
        f"{archive}/iceberg_maint/engines/spark/rewrite/columnar/worker.py",
    )


@pytest.mark.parametrize("package", ["pyarrow", "numpy", "pyroaring"])
def test_worker_without_a_package_of_the_engine_names_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task imports it late: a check that imports less lets every batch fail instead of writing it by Spark."""
    for name in [m for m in sys.modules if m.startswith("iceberg_maint.columnar.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert _import_engine("", 0) == f"the Python of the executors cannot import {package}"


def test_worker_with_all_packages_can_run_tasks() -> None:
    assert _import_engine("", 0) == ""


@pytest.mark.parametrize(
    ("configured", "python"), [("./python/bin/python", "./python/bin/python"), (None, "python3")]
)
def test_workers_of_a_cluster_run_the_configured_interpreter(configured: str | None, python: str) -> None:
    assert worker_python(configured, default="python3") == python


def test_package_that_is_shipped_is_one_file_for_all_engines_of_a_process() -> None:
    """Spark refuses to register two files of one name."""
    assert _shipped_package() == _shipped_package()
