"""One action on a table with equality deletes, in a process and a heap of its own; prints one line of JSON.

    python -m bench.deletes.run FOLDER ACTION HEAP

FOLDER holds `catalog.db`, a copy of the table's. Actions: `stock` is Iceberg's `rewrite_data_files`
through SparkActions in a session with Spark's and Iceberg's own defaults: every file that a delete applies to
(`delete-file-threshold=1`) and every small one, then `remove-dangling-deletes`; `stock-cached` also lets
executors keep delete files (`cache-delete-files`). `auto` is `iceberg-maint run` of the
operations on data with nothing said about the route, until nothing is due, `convert` and `rewrite` are the one operation by that `equality_deletes.route`, from the survey to the
record in the ledger. `read` only reads. Time starts when
the session has started; rows are read and held to what they must be when it has stopped.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bench.deletes.tables import TABLE
from bench.stock_session import STOCK_OPTIONS, stock_session
from bench.used import tree_cpu_seconds
from iceberg_maint.core.model.ids import DATA_OPERATIONS

OPERATIONS = {
    "auto": tuple(o.value for o in DATA_OPERATIONS),
    "convert": ("convert_equality_deletes",),
    "rewrite": ("rewrite_data_files",),
}


Run = Callable[[Any, Path, str], dict[str, Any]]


def main() -> int:
    """Exits 0 with the figures, else with the error on stderr."""
    folder, action, heap = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    if action.startswith("stock") or action == "read":
        spark = stock_session(folder / "catalog.db", folder / "warehouse", heap, folder / "spark")
        run: Run = {"stock": _stock, "stock-cached": _stock, "read": _read}[action]
    else:
        spark = _our_session(folder, action, heap)
        run = _ours
    cpu, start = tree_cpu_seconds(), time.monotonic()
    found = run(spark, folder, action)
    found |= {
        "wall_seconds": round(time.monotonic() - start, 2),
        "cpu_seconds": round(tree_cpu_seconds() - cpu, 2),
        "heap_bytes": int(spark._jvm.java.lang.Runtime.getRuntime().maxMemory()),
        **_peak_bytes(),
    }
    if action != "read":
        found |= _read(spark, folder, action)
    print(json.dumps(found))
    spark.stop()
    return 0


def _stock(spark: Any, _folder: Path, action: str) -> dict[str, Any]:
    from iceberg_maint.engines.spark.jvm.bridge import Bridge

    bridge = Bridge(spark)
    rewrite = bridge.iceberg.spark.actions.SparkActions.get(bridge.session).rewriteDataFiles(
        bridge.load_table(TABLE)
    )
    options = STOCK_OPTIONS | ({"cache-delete-files": "true"} if action == "stock-cached" else {})
    for key, value in options.items():
        rewrite = rewrite.option(key, value)
    result = rewrite.binPack().execute()
    return {
        "rewritten_bytes": int(result.rewrittenBytesCount()),
        "rewritten_files": int(result.rewrittenDataFilesCount()),
        "added_files": int(result.addedDataFilesCount()),
        "failed_files": int(result.failedDataFilesCount()),
        "removed_delete_files": int(result.removedDeleteFilesCount()),
    }


def _ours(_spark: Any, folder: Path, action: str) -> dict[str, Any]:
    """The command line's own way, so that the gate, the proof and the ledger are part of it."""
    from iceberg_maint.cli import iceberg_maint
    from iceberg_maint.wiring.adapters import load

    config = folder / "iceberg_maint.yaml"
    only = [argument for operation in OPERATIONS[action] for argument in ("--operation", operation)]
    arguments = ["--config", str(config), "--json", "run", TABLE, *only]
    batches: list[dict[str, Any]] = []
    while True:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = iceberg_maint.main(arguments, standalone_mode=False)
        assert not code, out.getvalue()
        of_run = [
            {"operation": o["operation"], **{k: b[k] for k in ("outcome", "input_files", "output_files", "input_bytes",
                "output_bytes", "delete_files_removed", "seconds")}}
            for t in json.loads(out.getvalue())["tables"] for o in t["operations"] for b in o["batches"]
        ]  # fmt: skip
        assert {b["outcome"] for b in of_run} <= {"IMPROVED"}, out.getvalue()
        if not of_run:
            break
        # A run handles as many partitions as its windows hold.
        batches += of_run
    assert batches, out.getvalue()
    records = load(config).ledger.records.newest(TABLE, 100)
    memory = [
        {"estimated_bytes": m.estimated_bytes, "peak_bytes": m.peak_bytes, "partitions": m.partitions, "passes": m.passes}
        for r in records for b in r.outcome.batches for m in (b.memory,) if m is not None
    ]  # fmt: skip
    return {"batches": batches, "memory": memory}


def _read(spark: Any, _folder: Path, _action: str) -> dict[str, Any]:
    """Reads the table twice over: everything counted, and an aggregate behind a filter."""
    start = time.monotonic()
    row = spark.sql(f"select count(*), sum(id), sum(amount) from {TABLE}").first()
    counted = time.monotonic()
    some = spark.sql(f"select count(*), sum(amount) from {TABLE} where status = 'open'").first()
    return {
        "read_rows": list(row) + list(some),
        "count_seconds": round(counted - start, 2),
        "filter_seconds": round(time.monotonic() - counted, 2),
    }


def _our_session(folder: Path, route: str, heap: str) -> Any:
    """The session of the configuration that `iceberg-maint` is given, started before time starts."""
    from iceberg_maint.wiring.adapters import load

    config = folder / "iceberg_maint.yaml"
    config.write_text(
        json.dumps(
            {
                "ledger": f"sqlite:///{folder / 'ledger.db'}",
                "catalogs": {
                    "lake": {
                        "type": "jdbc",
                        "uri": f"sqlite:///{folder / 'catalog.db'}",
                        "warehouse": f"file://{folder / 'warehouse'}",
                    }
                },
                "spark": {"master": "local[2]", "conf": {"spark.driver.memory": heap}},
                "defaults": {
                    "rewrite_data_files": {"equality_delete_max_age_seconds": 0},
                    "equality_deletes": {"route": route},
                },
            }
        )
    )
    return load(config).engine.spark.session()


def _processes() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *(p for p in own.children(recursive=True) if "java" in p.name())]


def _peak_bytes() -> dict[str, int]:
    """Highest resident memory so far, of Python and of the JVM."""
    [*_, java] = _processes()
    lines = Path(f"/proc/{java.pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return {"peak_bytes": peak + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


if __name__ == "__main__":
    raise SystemExit(main())
