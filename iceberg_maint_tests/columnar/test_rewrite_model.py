"""Generated files, rewritten with encoded columns, copied pages and kept row groups: the rows are those of a model, with
their lineage."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.task import Encoding, InputFile
from iceberg_maint_tests.support.columnar.splicing import NONE, PAGES, ROW_GROUPS, splices
from iceberg_maint_tests.support.columnar.tables import field, schema_of, task_of, write_file
from iceberg_maint_tests.support.examples import examples

pytestmark = pytest.mark.seconds

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
VALUES: Mapping[str, tuple[str, Any]] = {
    "l": ("long", lambda n: n * 10**12),
    "i": ("int", lambda n: n - 3),
    "s": ("string", lambda n: f"{n:05}é"),
    "dec": ("decimal(18, 2)", lambda n: Decimal(n) / 4),
    "day": ("date", lambda n: date(2024, 1, 1) + timedelta(n)),
    "ts": ("timestamp", lambda n: datetime(2024, 1, 1) + timedelta(minutes=n)),  # noqa: DTZ001
    "flag": ("boolean", lambda n: n % 3 == 0),
    "x": ("double", lambda n: n / 8),
}
SCHEMA = schema_of(*(field(k, name, kind) for k, (name, (kind, _)) in enumerate(VALUES.items(), 1)))
CODEC = Encoding(codec="zstd", level=3)

numbers = st.one_of(st.none(), st.integers(0, 9), st.integers(0, 500))


@dataclass(frozen=True)
class DrawnFile:
    """A file to write. `lineage`: the row ids and sequence numbers of its rows, None without the columns."""

    rows: Sequence[Mapping[str, Any]]
    lineage: Sequence[tuple[int | None, int | None]] | None
    first_row_id: int
    sequence_number: int
    lacks: frozenset[str]
    options: Mapping[str, Any]

    def write(self, folder: Path, name: str) -> InputFile:
        kept = [f for k, f in enumerate(VALUES, 1) if f not in self.lacks]
        fields = [field(k, n, VALUES[n][0]) for k, n in enumerate(VALUES, 1) if n in kept]
        rows = [{n: row[n] for n in kept} for row in self.rows]
        if self.lineage is not None:
            pairs = zip(rows, self.lineage, strict=True)
            rows = [{**row, ROW_ID: i, LAST_UPDATED: s} for row, (i, s) in pairs]
        found = write_file(
            folder, name, schema_of(*fields), rows, lineage=self.lineage is not None, **self.options
        )
        return replace(found, first_row_id=self.first_row_id, data_sequence_number=self.sequence_number)

    def expected(self, *, lineage: bool) -> list[dict[str, Any]]:
        """The rows as readers have them (spec: "Row Lineage")."""
        rows = [{n: None if n in self.lacks else row[n] for n in VALUES} for row in self.rows]
        if not lineage:
            return rows
        stored = self.lineage or [(None, None)] * len(rows)
        return [
            {
                **row,
                ROW_ID: self.first_row_id + k if i is None else i,
                LAST_UPDATED: self.sequence_number if s is None else s,
            }
            for k, (row, (i, s)) in enumerate(zip(rows, stored, strict=True))
        ]


@st.composite
def drawn_files(draw: st.DrawFn) -> list[DrawnFile]:
    dictionaries = draw(st.lists(st.sampled_from([*VALUES, ROW_ID, LAST_UPDATED]), unique=True))
    lacks = draw(st.sets(st.sampled_from(["i", "s", "flag"]), max_size=1))
    files = []
    for k in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 12))
        rows = [
            {name: None if n is None else value(n) for name, (_, value) in VALUES.items()}
            for n in draw(st.lists(numbers, min_size=count, max_size=count))
        ]
        pair = st.tuples(
            st.one_of(st.none(), st.integers(90_000, 90_009)), st.one_of(st.none(), st.integers(1, 3))
        )
        lineage = draw(st.one_of(st.none(), st.lists(pair, min_size=count, max_size=count)))
        options = {
            "compression": "zstd",
            "write_page_index": True,
            "use_dictionary": dictionaries or False,
            "max_rows_per_page": draw(st.integers(1, 12)),
            "data_page_version": draw(st.sampled_from(["1.0", "1.0", "2.0"])),
        }
        files.append(
            DrawnFile(
                rows, lineage, 1000 * k, draw(st.integers(4, 9)), frozenset(lacks if k % 2 else ()), options
            )
        )
    return files


@pytest.mark.drawn(2)
@pytest.mark.parametrize("mode", [NONE, PAGES, ROW_GROUPS], ids=["encoded", "pages", "row groups"])
@pytest.mark.parametrize("lineage", [True, False], ids=["v3", "v2"])
def test_rows_of_a_rewrite_and_their_lineage_are_those_of_its_inputs(mode: int, lineage: bool) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=examples(300), deadline=None)
    @given(
        files=drawn_files(),
        memory_bytes=st.sampled_from([1 << 30, 1 << 30, 10_000]),
        group_bytes=st.sampled_from([1 << 27, 1 << 27, 3_000]),
    )
    def compare(files: list[DrawnFile], memory_bytes: int, group_bytes: int) -> None:
        with tempfile.TemporaryDirectory() as name, splices(mode, counts):
            folder = Path(name)
            task = task_of(
                folder,
                SCHEMA,
                [f.write(folder, f"{k}.parquet") for k, f in enumerate(files)],
                splice=mode != NONE,
                encoding=replace(CODEC, row_group_bytes=group_bytes),
                memory_limit_bytes=memory_bytes,
                keep_row_lineage=lineage,
                format_version=3 if lineage else 2,
            )
            result = rewrite(task)
            assert result.proof.difference == ""
            counts["tasks streamed"] += result.streamed
            rows = pq.ParquetFile(result.path).read().to_pylist()
        assert rows == [row for f in files for row in f.expected(lineage=lineage)]

    compare()
    assert (counts["tasks spliced"] > 0) is (mode != NONE)
    assert counts["tasks streamed"] > 0 or mode != NONE
