"""The parent of the Python workers of a local master. Spark starts it in place of `pyspark.daemon`.

It imports once what each worker needs, then forks workers as PySpark's daemon does. Spark puts PySpark's zip file in front
of the path. A zip file has no compiled modules, so an import from it takes 0.5 s of CPU more than from the installed
PySpark, and Arrow and this package take each worker another 0.25 s.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

_ARCHIVES = ("pyspark.zip", "py4j-")


def installed(path: Sequence[str]) -> list[str]:
    """Returns a path of modules without the archives that an installed PySpark has in its own folder."""
    others = [p for p in path if not Path(p).name.startswith(_ARCHIVES)]
    found = PathFinder.find_spec("pyspark", others)
    if found is None or found.origin is None or PathFinder.find_spec("py4j", others) is None:
        return list(path)
    archives = Path(found.origin).parent / "python" / "lib"
    return [p for p in path if not (Path(p).name.startswith(_ARCHIVES) and Path(p).parent == archives)]


def main() -> None:
    """Imports, then forks a worker for each connection until Spark ends it."""
    sys.path[:] = installed(sys.path)
    from pyspark.daemon import manager

    # Without Arrow, the task says so.
    with suppress(ImportError):
        import iceberg_maint.columnar.deleted_positions
        import iceberg_maint.columnar.rewrite
        import iceberg_maint.engines.spark.rewrite.columnar.job
        import iceberg_maint.engines.spark.rewrite.columnar.worker  # noqa: F401
    # Workers share the pages of objects that are not looked at.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
