"""Five engines, each in a process of its own: an engine that dies takes no other one with it.

    python -m iceberg_maint_tests.qualification.readers.engines ENGINE

Prints the version of the engine. Then reads lines with the location of a metadata file, and answers each with a JSON line:
the number of rows and the digest of all rows, or the error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTIONS = {
    "pyiceberg": "pyiceberg",
    "polars": "polars",
    "daft": "daft",
    "duckdb": "duckdb",
    "clickhouse": "chdb-core",
}
"""The engines, and the packages that have them."""
ENGINES = tuple(DISTRIBUTIONS)
INSTALLED_APART = ("polars", "daft", "clickhouse")
DIED = "the process died"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine reads of one table: rows with their digest, or the error that it ends with."""

    rows: int = 0
    digest: str = ""
    error: str = ""


class Engine:
    """The process of one engine. It starts at the first question, and again after it has died."""

    def __init__(self, name: str, apart: Path | None) -> None:
        """`apart` is the folder of the engines that the environment does not have."""
        self.name, self.version = name, ""
        self._environment = dict(os.environ)
        if apart is not None and name in INSTALLED_APART:
            self._environment["PYTHONPATH"] = str(apart.absolute())
        self._process: subprocess.Popen[str] | None = None

    def read(self, metadata_location: str) -> Answer:
        """Reads all rows of a table."""
        process = self._process or self._start()
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(metadata_location + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return Answer(**json.loads(line)) if line else Answer(error=f"{DIED}: {self.close()}")

    def close(self) -> int:
        """Ends the process. Returns its exit code, 0 without a process."""
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        return process.wait()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            text=True,
        )
        assert process.stdout is not None
        self.version = process.stdout.readline().strip()
        return process


def digest(table: Any) -> str:
    """The digest of the rows of an Arrow table, in any order of rows and columns."""
    import pyarrow as pa

    names = sorted(table.column_names)
    rows = pa.Table.from_arrays([table[name] for name in names], names=names).to_pylist()
    total = sum(int.from_bytes(sha256(repr(_value(row)).encode()).digest()) for row in rows)
    return f"{total % (1 << 256):064x}"[:16]


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, _value(inner)) for key, inner in value.items()]
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return [_value(inner) for inner in value] if isinstance(value, list) else value


def _pyiceberg(location: str) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(location).scan().to_arrow()


def _polars(location: str) -> Any:
    import polars as pl

    return pl.scan_iceberg(location, reader_override="native").collect().to_arrow()


def _daft(location: str) -> Any:
    import daft
    from pyiceberg.table import StaticTable

    return daft.read_iceberg(StaticTable.from_metadata(location)).to_arrow()


def _duckdb(location: str) -> Any:
    from iceberg_maint.demo.duckdb_reader import scan

    return _duckdb_connection().execute(f"SELECT * FROM {scan(location)}").to_arrow_table()


@cache
def _duckdb_connection() -> Any:
    from iceberg_maint.demo.duckdb_reader import DuckDBReader

    return DuckDBReader()._db


def _clickhouse(location: str) -> Any:
    import chdb
    import pyarrow as pa

    os.chdir("/")  # ClickHouse reads only files below the working directory.
    metadata = Path(unquote(urlsplit(location).path))
    table = metadata.parent.parent
    source = f"icebergLocal('{table}', SETTINGS iceberg_metadata_file_path = 'metadata/{metadata.name}')"
    # Its strings are bytes, and may be no text.
    query = f"SELECT * FROM {source} SETTINGS output_format_arrow_string_as_string = 0"
    answer = chdb.query(query, "ArrowStream").bytes()
    return pa.ipc.open_stream(answer).read_all() if answer else pa.table({})


READERS: dict[str, Callable[[str], Any]] = {
    "pyiceberg": _pyiceberg,
    "polars": _polars,
    "daft": _daft,
    "duckdb": _duckdb,
    "clickhouse": _clickhouse,
}


def main(engine: str) -> None:
    """Answers until the input ends. What an engine prints itself goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(version(DISTRIBUTIONS[engine]), file=answers, flush=True)
    for line in sys.stdin:
        try:
            table = READERS[engine](line.strip())
            answer = {"rows": table.num_rows, "digest": digest(table)}
        except BaseException as error:  # noqa: BLE001 - the answer names it
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
