"""Bulk tables with equality deletes, as an upsert stream leaves them; each is made once.

A base load, then commits of a delete file and a data file: every commit deletes keys, of which a share is
live, and adds new versions of some of them. Files are written by pyarrow with Iceberg's field ids and
registered through Java. Rows are made from a seed, and what must be left of them is known from the making.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.stock_session import PROJECT, stock_session

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

DATA = PROJECT / "bench" / ".data" / "equality_deletes"
TABLE = "lake.bench.events"
_VERSION = "1"
_COLUMNS = (
    ("id", "bigint"), ("region", "int"), ("version", "int"), ("customer", "bigint"), ("status", "string"),
    ("amount", "bigint"), ("price", "double"), ("updated_at", "timestamp"), ("city", "string"), ("note", "string"),
)  # fmt: skip
_STATUS = ("cancelled", "delivered", "open", "paid", "returned")
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table looks like. Keys are `id`, of a partitioned table (`region`, `id`).

    `commits` upsert commits share `keys` delete keys and `upserts` new rows evenly, each in files of as many
    `writers`; `hits` is the share of the keys that are live when they are deleted. `regions` above 1 partition the table by region.
    """

    name: str
    base_rows: int
    base_files: int
    commits: int
    keys: int
    upserts: int
    hits: float
    writers: int = 1
    regions: int = 1
    version: int = 2
    seed: int = 1

    @property
    def rows(self) -> int:
        """Rows written, before deletes."""
        return self.base_rows + self.upserts


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("quick", 600_000, 3, 8, 300_000, 200_000, 0.5),
        # An hour of commits, one a minute.
        Shape("upsert", 6_000_000, 6, 60, 3_000_000, 2_000_040, 0.5),
        Shape("upsert_v3", 6_000_000, 6, 60, 3_000_000, 2_000_040, 0.5, version=3),
        Shape("partitioned", 6_000_000, 1, 30, 3_000_000, 2_000_010, 0.5, regions=8),
        Shape("partitioned_200", 6_000_000, 1, 10, 3_000_000, 2_000_000, 0.5, regions=200),
        Shape("heavy", 4_000_000, 1, 1, 30_000_000, 900_000, 0.05, writers=6),
        # `bench.cold`: small files and deletes of twenty commits in eight partitions.
        Shape("cold", 1_500_000, 1, 20, 500_000, 400_000, 0.7, regions=8),
        Shape("beyond", 6_000_000, 6, 20, 52_000_000, 2_000_000, 0.08),
    )
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What a reader must find, and what the table holds."""

    rows: int
    id_sum: int
    amount_sum: int
    open_rows: int
    open_amount: int
    data_files: int
    data_bytes: int
    delete_files: int
    delete_bytes: int


def table(shape: Shape) -> tuple[Path, Expected]:
    """The folder with `catalog.db` and `warehouse`, made on first use; and what is in it."""
    folder = DATA / shape.name
    stamp = json.dumps([_VERSION, asdict(shape)])
    complete = folder / "complete"
    if not complete.is_file() or complete.read_text() != stamp:
        shutil.rmtree(folder, ignore_errors=True)
        make(shape, folder)
        complete.write_text(stamp)
    return folder, Expected(**json.loads((folder / "expected.json").read_text()))


def make(shape: Shape, folder: Path) -> None:
    """Makes the table in a process of its own."""
    (folder / "warehouse").mkdir(parents=True)
    command = [sys.executable, "-m", "bench.deletes.tables", shape.name, str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True)


def forget_runs(folder: Path) -> None:
    """Removes the files that runs on copies of the table's catalog left behind."""
    made = set(json.loads((folder / "files.json").read_text()))
    for path in (folder / "warehouse").rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in made:
            path.unlink()


# in a process of its own


def main() -> None:
    """Makes the table of a name in a folder: the arguments."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from iceberg_maint.engines.spark.jvm.bridge import Bridge

    shape = SHAPES[sys.argv[1]]
    folder = Path(sys.argv[2])
    spark = stock_session(folder / "catalog.db", folder / "warehouse", "2g", folder / "spark")
    bridge = Bridge(spark)
    spark.sql("create namespace lake.bench")
    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)
    by = "partitioned by (region)" if shape.regions > 1 else ""
    spark.sql(
        f"create table {TABLE} ({columns}) using iceberg {by} tblproperties ('format-version'='{shape.version}')"
    )
    table = bridge.load_table(TABLE)
    place = folder / "warehouse" / "bench" / "events" / "data"
    place.mkdir(parents=True)
    ids = bridge.ints([1, 2] if shape.regions > 1 else [1])
    key_schema = pa.schema(
        [_schema().field(name) for name in (["id", "region"] if shape.regions > 1 else ["id"])]
    )
    metrics = bridge.iceberg.MetricsConfig.forTable(table)

    def register(rows: pa.Table, name: str, region: int, *, deletes: bool) -> Any:
        path = place / f"{name}.parquet"
        pq.write_table(rows, path, compression="zstd")
        found = bridge.iceberg.parquet.ParquetUtil.fileMetrics(table.io().newInputFile(str(path)), metrics)
        if deletes:
            builder = bridge.iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids)
        else:
            builder = bridge.iceberg.DataFiles.builder(table.spec())
        if shape.regions > 1:
            partition = bridge.iceberg.PartitionData(table.spec().partitionType())
            partition.set(0, region)
            builder = builder.withPartition(partition)
        return (
            builder.withPath(path.as_uri()).withFormat(bridge.iceberg.FileFormat.PARQUET)
            .withFileSizeInBytes(path.stat().st_size).withMetrics(found).build()
        )  # fmt: skip

    stream = _Stream(shape)
    base_bytes = 0
    append = table.newAppend()
    for number in range(shape.base_files):
        for region, chosen in stream.split(stream.base(number)):
            file = register(stream.table_of(chosen, 0), f"base-{number:03d}-{region}", region, deletes=False)
            append.appendFile(file)
            base_bytes += file.fileSizeInBytes()
    append.commit()
    for commit in range(1, shape.commits + 1):
        delta = table.newRowDelta()
        keys, added = stream.upsert(commit)
        for name, region, chosen in stream.files_of(keys):
            rows = stream.table_of(chosen, commit).select(key_schema.names).cast(key_schema)
            delta.addDeletes(register(rows, f"eq-{commit:03d}-{name}", region, deletes=True))
        for name, region, chosen in stream.files_of(added):
            rows = stream.table_of(chosen, commit)
            delta.addRows(register(rows, f"data-{commit:03d}-{name}", region, deletes=False))
        delta.commit()
    # The base files are of the target size, so that they are healthy but for the deletes.
    target = str(base_bytes // (shape.base_files * shape.regions))
    table.updateProperties().set("write.target-file-size-bytes", target).commit()
    spark.stop()
    shutil.rmtree(folder / "spark", ignore_errors=True)
    sizes = {kind: [p.stat().st_size for p in place.glob(f"{kind}*")] for kind in ("base", "data", "eq")}
    data = sizes["base"] + sizes["data"]
    expected = stream.expected(len(data), sum(data), len(sizes["eq"]), sum(sizes["eq"]))
    (folder / "expected.json").write_text(json.dumps(asdict(expected)))
    files = [str(p.relative_to(folder)) for p in (folder / "warehouse").rglob("*") if p.is_file()]
    (folder / "files.json").write_text(json.dumps(files))
    print(shape.name, expected, file=sys.stderr)


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {
        "bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "double": pa.float64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    return pa.schema(
        [
            pa.field(name, kinds[kind], metadata={"PARQUET:field_id": str(number)})
            for number, (name, kind) in enumerate(_COLUMNS, 1)
        ]
    )


class _Stream:
    """The upsert stream as arrays of ids; keeps which version of each id is live."""

    def __init__(self, shape: Shape) -> None:
        import numpy as np

        self.shape = shape
        self.rng = np.random.default_rng(shape.seed)
        missed = shape.keys - int(shape.keys * shape.hits)
        # Ids in the order of their first use, scattered over their range.
        universe = shape.base_rows + missed + shape.commits
        self.fresh = self.rng.permutation(universe).astype("int32")
        self.used = shape.base_rows
        self.live = np.full(universe, -1, dtype="int16")
        self.live[self.fresh[: shape.base_rows]] = 0

    def base(self, number: int) -> np.ndarray:
        """Ids of one base file."""
        each = self.shape.base_rows // self.shape.base_files
        return self.fresh[
            number * each : (number + 1) * each
            if number + 1 < self.shape.base_files
            else self.shape.base_rows
        ]

    def upsert(self, commit: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys deleted by a commit, and the ids it adds, some of those it deleted."""
        import numpy as np

        keys, hits = (
            self.shape.keys // self.shape.commits,
            int(self.shape.keys * self.shape.hits) // self.shape.commits,
        )
        alive = np.flatnonzero(self.live >= 0).astype("int32")
        hit = self.rng.choice(alive, hits, replace=False)
        missed = self.fresh[self.used : self.used + keys - hits]
        self.used += keys - hits
        deleted = self.rng.permutation(np.concatenate([hit, missed]))
        added = deleted[: self.shape.upserts // self.shape.commits]
        self.live[deleted] = -1
        self.live[added] = commit
        return deleted, added

    def files_of(self, ids: np.ndarray) -> list[tuple[str, int, np.ndarray]]:
        """What the writers of one commit write: name, region and ids of each file."""
        import numpy as np

        parts = np.array_split(ids, self.shape.writers)
        return [
            (f"{n}-{region}", region, own) for n, part in enumerate(parts) for region, own in self.split(part)
        ]

    def split(self, ids: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """By region, empty ones left out."""
        if self.shape.regions == 1:
            return [(0, ids)]
        parts = ((region, ids[ids % self.shape.regions == region]) for region in range(self.shape.regions))
        return [(region, part) for region, part in parts if len(part)]

    def table_of(self, ids: np.ndarray, commit: int) -> pa.Table:
        """The rows of these ids as a commit writes them."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        wide = ids.astype("int64")
        noise = np.random.default_rng([self.shape.seed, commit, len(ids)])
        status = pa.DictionaryArray.from_arrays(
            pa.array(self._status(wide, commit), pa.int8()), pa.array(_STATUS)
        )
        city = pa.DictionaryArray.from_arrays(
            pa.array((wide * 7919 % 1000).astype("int16")), pa.array([f"city {n:03d}" for n in range(1000)])
        )
        note = pc.binary_join_element_wise(
            city.cast(pa.string()), pa.array(noise.integers(0, 1 << 62, len(ids))).cast(pa.string()), " "
        )
        return pa.table(
            [
                pa.array(wide), pa.array((wide % self.shape.regions).astype("int32")),
                pa.array(np.full(len(ids), commit, "int32")), pa.array(wide * 31 % 250_007), status.cast(pa.string()),
                pa.array(self._amount(wide, commit)), pa.array(noise.random(len(ids))),
                pa.array(1_760_000_000_000_000 + commit * _DAY_US + noise.integers(0, _DAY_US, len(ids))).cast(
                    pa.timestamp("us", tz="UTC")
                ),
                city.cast(pa.string()), note,
            ],
            schema=_schema(),
        )  # fmt: skip

    def _status(self, ids: Any, commit: Any) -> Any:
        return ((ids * 131 + commit) % len(_STATUS)).astype("int8")

    def _amount(self, ids: Any, commit: Any) -> Any:
        return (ids * 7 + commit * 1009) % 100_003

    def expected(self, data_files: int, data_bytes: int, delete_files: int, delete_bytes: int) -> Expected:
        """What is left after the last commit."""
        import numpy as np

        ids = np.flatnonzero(self.live >= 0).astype("int64")
        commits = self.live[ids].astype("int64")
        amounts = self._amount(ids, commits)
        is_open = self._status(ids, commits) == _STATUS.index("open")
        return Expected(
            len(ids), int(ids.sum()), int(amounts.sum()), int(is_open.sum()), int(amounts[is_open].sum()),
            data_files, data_bytes, delete_files, delete_bytes,
        )  # fmt: skip


if __name__ == "__main__":
    main()
