"""The Python workers of a session: whether they can rewrite files, and what a cluster's workers get for it."""

from __future__ import annotations

import threading
import zipfile
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import iceberg_maint
from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge, one_line
from iceberg_maint.spark.rewrite.columnar.job import run_tasks


class Workers:
    """Whether the Python workers of a session can rewrite files: they import this package and what it needs."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._lock = threading.Lock()
        self._problem: str | None = None

    def problem(self) -> str:
        """Returns why the workers cannot run tasks, "" if they can. The first call on a cluster ships the package
        and runs a job."""
        with self._lock:
            if self._problem is None:
                self._problem = self._check()
            return self._problem

    def _check(self) -> str:
        context = self._bridge.spark.sparkContext
        if str(context.master).startswith("local"):
            return ""
        try:
            context.addPyFile(str(_shipped_package()))
            [answer] = run_tasks(self._bridge, _import_engine, [""], [0])
        except JVM_ERRORS as why:
            return f"the executors run no Python worker: {one_line(why)}"
        return answer


@cache
def _shipped_package() -> Path:
    """The package as a zip file, the same one for every engine of this process: Spark refuses another file of the name."""
    return package_zip(Path(mkdtemp(prefix="iceberg-maint-")))


def _import_engine(_task: str, _attempt: int) -> str:
    """Imports all that a task may import, some of it late: returns "", or which package is missing."""
    try:
        import pyarrow as pa  # noqa: F401
        import pyroaring  # noqa: F401

        import iceberg_maint.columnar.rewrite
        import iceberg_maint.columnar.storage  # noqa: F401
    except ImportError as why:
        return f"the Python of the executors cannot import {why.name}"
    return ""


def package_zip(folder: Path) -> Path:
    """Writes this package as a zip file that Python imports from. Returns its path."""
    source = Path(iceberg_maint.__file__).parent
    path = folder / "iceberg_maint.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(source.rglob("*.py")):
            archive.write(file, Path("iceberg_maint") / file.relative_to(source))
    return path
