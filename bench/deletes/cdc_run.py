"""One process of `bench.deletes.cdc`: a table under upserts, and its maintenance by one variant.

    python -m bench.deletes.cdc_run FOLDER VARIANT SHAPE

SHAPE is the JSON of a `Shape`. Reads a step per line, `upserts N`, `maintain`, `mark N` or `read N`, and answers each with one line of
JSON. The session lives from the first step to the last.
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.deletes.tables import _COLUMNS, TABLE, Shape, _schema, _Stream
from bench.stock_session import STOCK_OPTIONS, stock_session
from bench.used import tree_cpu_seconds
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation

OPERATIONS = (*DATA_OPERATIONS, Operation.REWRITE_MANIFESTS)
QUERIES = {
    "all columns": "select count(*), sum(id), sum(amount), max(note), max(updated_at), max(status), max(city) from {table}",
    "filter": "select count(*), sum(amount) from {table} where status = 'open'",
    "point": "select count(*), max(amount) from {table} where id = {id}",
}
DUCKDB_READS = 9


def main() -> None:
    """Answers steps until the input ends."""
    folder, variant, shape = Path(sys.argv[1]), sys.argv[2], Shape(**json.loads(sys.argv[3]))
    run = _Run(folder, variant, shape)
    steps: dict[str, Callable[..., dict[str, Any]]] = {
        "upserts": run.upserts, "maintain": run.maintain, "mark": run.mark, "read": run.read,
    }  # fmt: skip
    for line in sys.stdin:
        name, *arguments = line.split()
        print("answer " + json.dumps(steps[name](*map(int, arguments))), flush=True)
    run.spark.stop()


class _Run:
    def __init__(self, folder: Path, variant: str, shape: Shape) -> None:
        from iceberg_maint.engines.spark.jvm.bridge import Bridge

        self.folder, self.variant, self.shape = folder, variant, shape
        (folder / "wh").mkdir(parents=True)
        self.spark = self._session()
        self.bridge = Bridge(self.spark)
        self.stream = _Stream(shape)
        self.commits = 0
        self._make()

    def _session(self) -> Any:
        if self.variant == "stock":
            return stock_session(self.folder / "catalog.db", self.folder / "wh", "2g", self.folder / "spark")
        from iceberg_maint.wiring.adapters import load

        config = {
            "ledger": f"sqlite:///{self.folder / 'ledger.db'}",
            "catalogs": {
                "lake": {
                    "type": "jdbc",
                    "uri": f"sqlite:///{self.folder / 'catalog.db'}",
                    "warehouse": f"file://{self.folder / 'wh'}",
                }
            },
            "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "2g"}},
            # The commits of a round are seconds old.
            "defaults": {"rewrite_data_files": {"equality_delete_max_age_seconds": 0}},
        }
        (self.folder / "iceberg_maint.yaml").write_text(json.dumps(config))
        return load(self.folder / "iceberg_maint.yaml").engine.spark.session()

    # the writer

    def _make(self) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)
        self.spark.sql("create namespace lake.bench")
        self.spark.sql(
            f"create table {TABLE} ({columns}) using iceberg partitioned by (region) "
            f"tblproperties ('format-version'='{self.shape.version}')"
        )
        self.place = self.folder / "wh" / "bench" / "events" / "data"
        self.place.mkdir(parents=True)
        self.table = self.bridge.load_table(TABLE)
        self.metrics = self.bridge.iceberg.MetricsConfig.forTable(self.table)
        append, sizes = self.table.newAppend(), []
        for number in range(self.shape.base_files):
            for region, ids in self.stream.split(self.stream.base(number)):
                rows = self.stream.table_of(ids, 0)
                file = self._file(rows, f"base-{number:03d}-{region}", region, deletes=False)
                append.appendFile(file)
                sizes.append(int(file.fileSizeInBytes()))
        append.commit()
        # The base files are of the target size.
        target = str(min(sizes))
        self.table.updateProperties().set("write.target-file-size-bytes", target).commit()

    def _file(self, rows: Any, name: str, region: int, *, deletes: bool) -> Any:
        import pyarrow.parquet as pq

        iceberg, path = self.bridge.iceberg, self.place / f"{name}.parquet"
        pq.write_table(rows, path, compression="zstd")
        found = iceberg.parquet.ParquetUtil.fileMetrics(self.table.io().newInputFile(str(path)), self.metrics)
        spec = self.table.spec()
        if deletes:
            ids = self.bridge.ints([1, 2])
            builder = iceberg.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(ids)
        else:
            builder = iceberg.DataFiles.builder(spec)
        partition = iceberg.PartitionData(spec.partitionType())
        partition.set(0, region)
        builder = builder.withPartition(partition).withPath(path.as_uri())
        builder = builder.withFormat(iceberg.FileFormat.PARQUET).withFileSizeInBytes(path.stat().st_size)
        return builder.withMetrics(found).build()

    def upserts(self, commits: int) -> dict[str, Any]:
        """Commits upserts: in each partition a file of equality deletes and a data file, as Flink writes them."""
        self.table.refresh()
        names = ["id", "region"]
        import pyarrow as pa

        key_schema = pa.schema([_schema().field(name) for name in names])
        for _ in range(commits):
            self.commits += 1
            keys, added = self.stream.upsert(self.commits)
            delta = self.table.newRowDelta()
            for name, region, ids in self.stream.files_of(keys):
                rows = self.stream.table_of(ids, self.commits).select(names).cast(key_schema)
                delta.addDeletes(self._file(rows, f"eq-{self.commits:04d}-{name}", region, deletes=True))
            for name, region, ids in self.stream.files_of(added):
                rows = self.stream.table_of(ids, self.commits)
                delta.addRows(self._file(rows, f"data-{self.commits:04d}-{name}", region, deletes=False))
            delta.commit()
        return asdict(self.stream.expected(0, 0, 0, 0))

    # maintenance

    def maintain(self) -> dict[str, Any]:
        """Maintains the table once. Returns CPU and wall seconds, the commits, and the bytes that they wrote."""
        self.table.refresh()
        before = int(self.table.currentSnapshot().sequenceNumber())
        cpu, start = tree_cpu_seconds(), time.monotonic()
        (self._stock if self.variant == "stock" else self._ours)()
        wall, used = time.monotonic() - start, tree_cpu_seconds() - cpu
        self.table.refresh()
        commits = [
            dict(s.summary())
            for s in self.bridge.iterate(self.table.snapshots())
            if int(s.sequenceNumber()) > before
        ]
        head = dict(self.table.currentSnapshot().summary())
        return {
            "cpu_seconds": round(used, 2),
            "wall_seconds": round(wall, 2),
            "commits": len(commits),
            "written_bytes": sum(int(c.get("added-files-size", 0)) for c in commits),
            "data_files": int(head["total-data-files"]),
            "delete_files": int(head["total-delete-files"]),
        }

    def _stock(self) -> None:
        iceberg = self.bridge.iceberg
        actions = iceberg.spark.actions.SparkActions.get(self.bridge.session)
        rewrite = actions.rewriteDataFiles(self.bridge.load_table(TABLE))
        for key, value in STOCK_OPTIONS.items():
            rewrite = rewrite.option(key, value)
        rewrite.binPack().execute()
        actions.rewritePositionDeletes(self.bridge.load_table(TABLE)).execute()
        actions.rewriteManifests(self.bridge.load_table(TABLE)).execute()

    def _ours(self) -> None:
        from iceberg_maint.cli import iceberg_maint

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            only = [word for operation in OPERATIONS for word in ("--operation", operation.value)]
            arguments = ["--config", str(self.folder / "iceberg_maint.yaml"), "--json", "run", TABLE, *only]
            code = iceberg_maint.main(arguments, standalone_mode=False)
        assert not code, out.getvalue()
        outcomes = {
            b["outcome"]
            for t in json.loads(out.getvalue())["tables"]
            for o in t["operations"]
            for b in o["batches"]
        }
        assert outcomes == {"IMPROVED"}, out.getvalue()

    # reads

    def mark(self, permille: int) -> dict[str, Any]:
        """Deletes so many thousandths of the rows of every data file by position, in place of those of the last call."""
        import numpy as np
        from pyroaring import BitMap64

        from iceberg_maint.engines.spark.scan import positions

        self.table.refresh()
        tasks = list(self.bridge.iterate(self.table.newScan().planFiles()))
        files = {str(t.file().location()): t.file() for t in tasks}
        draw = np.random.default_rng(permille)
        marked = {
            path: BitMap64(draw.choice(rows, rows * permille // 1000, replace=False).astype(np.uint64))
            for path, file in files.items()
            if (rows := int(file.recordCount())) * permille >= 1000
        }
        write = (
            positions.write_deletion_vectors if self.shape.version > 2 else positions.write_position_deletes
        )
        # By default every vector that was ever added is a conflict.
        delta = self.table.newRowDelta().validateFromSnapshot(self.table.currentSnapshot().snapshotId())
        for task in tasks:
            for delete in self.bridge.iterate(task.deletes()):
                delta.removeDeletes(delete)
        for delete in write(self.bridge, self.table, marked, files):
            delta.addDeletes(delete)
        delta.commit()
        return {"positions": positions.count(marked)}

    def read(self, spark_reads: int) -> dict[str, Any]:
        """Reads the table by Spark, so many times, and by DuckDB. Returns the rows, and median CPU seconds of each query."""
        from iceberg_maint.demo.duckdb_reader import DuckDBReader, scan

        self.table.refresh()
        location = str(self.table.operations().current().metadataFileLocation())
        key = int(self.stream.base(0)[0])
        duck = DuckDBReader()
        engines: dict[str, Callable[[str], list[Any]]] = {
            "Spark": lambda text: list(self.spark.sql(text.format(table=TABLE, id=key)).first()),
            "DuckDB": lambda text: list(
                duck._db.execute(text.format(table=scan(location), id=key)).fetchone()
            ),
        }
        times = {"Spark": spark_reads, "DuckDB": DUCKDB_READS}
        self.spark.catalog.refreshTable(TABLE)
        seconds: dict[str, float] = {}
        rows: dict[str, list[Any]] = {}
        for engine, read in engines.items():
            for query, text in QUERIES.items():
                rows[f"{engine}, {query}"] = [str(value) for value in read(text)]
                each = []
                for _ in range(times[engine]):
                    cpu = tree_cpu_seconds()
                    read(text)
                    each.append(tree_cpu_seconds() - cpu)
                seconds[f"{engine}, {query}"] = round(statistics.median(each), 3)
        duck.close()
        return {"rows": rows, "cpu_seconds": seconds}


if __name__ == "__main__":
    main()
