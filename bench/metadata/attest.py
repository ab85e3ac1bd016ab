"""CPU seconds to judge from metadata a commit that replaces 1,000 data files.

    python -m bench.metadata.attest [--rounds N]

The table has 10,000 other files and 20 columns with bounds. The first commit replaces 1,000 files by 10 with as many rows, the
second by 10 with fewer: metadata leaves the first open and refutes the second. Counted is the CPU of this process from the
two manifest lists to the verdict, medians. Exits 1 above 2 CPU seconds for either.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from bench.record import publish
from iceberg_maint.catalog.manifests.entries import read_entries
from iceberg_maint.catalog.manifests.reader import read_manifest_list
from iceberg_maint.core.commits.attestation import Judgement, MetadataVerdict, Side, judge_metadata

COLUMNS, OTHERS, REPLACED, ROWS = 20, 10_000, 1_000, 100
LIMIT_SECONDS = 2.0


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.metadata.attest")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        table = _table(Path(folder))
        sources = [_file(f"s{n}", ROWS) for n in range(REPLACED)]
        _commit(table, (), [_file(f"o{n}", ROWS) for n in range(OTHERS)])
        _commit(table, (), sources)
        seconds: dict[str, float] = {}
        for name, rows, expected in (
            ("open", ROWS, Judgement.OPEN),
            ("refuted", ROWS - 1, Judgement.REFUTED),
        ):
            outputs = [_file(f"{name}{n}", rows * REPLACED // 10) for n in range(10)]
            _commit(table, sources, outputs)
            seconds[name] = _measured(table, expected, rounds)
            _commit(table, outputs, sources)
    figures = {f"{name}_cpu_seconds": value for name, value in seconds.items()}
    for name, value in figures.items():
        sys.stdout.write(f"{name}: {value:.3f}\n")
    publish("attest", figures)
    return int(max(seconds.values()) > LIMIT_SECONDS)


def _table(folder: Path) -> Table:
    (folder / "warehouse").mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("db")
    fields = (NestedField(i, f"c{i}", LongType()) for i in range(1, COLUMNS + 1))
    return catalog.create_table("db.t", Schema(*fields))


def _file(name: str, rows: int) -> DataFile:
    columns = range(1, COLUMNS + 1)
    low, high = (to_bytes(LongType(), value) for value in (0, 1_000_000))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file:///nowhere/{name}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=1_000_000,
        column_sizes=dict.fromkeys(columns, 50_000),
        value_counts=dict.fromkeys(columns, rows),
        null_value_counts=dict.fromkeys(columns, 0),
        nan_value_counts={},
        lower_bounds=dict.fromkeys(columns, low),
        upper_bounds=dict.fromkeys(columns, high),
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = 0
    return file


def _commit(table: Table, removed: Iterable[DataFile], added: Iterable[DataFile]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
        for file in removed:
            change.delete_data_file(file)
        for file in added:
            change.append_data_file(file)


def _measured(table: Table, expected: Judgement, rounds: int) -> float:
    """The median CPU seconds to judge the newest commit."""
    io = PyArrowFileIO()
    after = table.current_snapshot()
    assert after is not None
    assert after.parent_snapshot_id is not None
    before = table.snapshot_by_id(after.parent_snapshot_id)
    assert before is not None
    types = dict.fromkeys(range(1, COLUMNS + 1), "long")

    def judge() -> MetadataVerdict:
        base, new = (
            Side(read_manifest_list(io, s.manifest_list), s.sequence_number or 0) for s in (before, after)
        )
        return judge_metadata(base, new, frozenset({0}), types, lambda manifest: read_entries(io, manifest))

    spent = []
    for _ in range(rounds):
        start = time.process_time()
        verdict = judge()
        spent.append(time.process_time() - start)
        assert verdict.judgement is expected, verdict
    return statistics.median(spent)


if __name__ == "__main__":
    raise SystemExit(main())
