"""Generated files, rewritten with encoded columns, copied pages and kept row groups: the rows are those of a model, with
their lineage, and no filter of DuckDB loses one of them where bounds were made anew."""

from __future__ import annotations

import math
import struct
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
    "x": ("double", lambda n: FLOATS[n] if n < len(FLOATS) else n / 8),
}
FLOATS = [-0.0, 0.0, float("nan"), float("inf"), float("-inf")]
FILTERS = {"=": lambda a, b: a == b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b}
SCHEMA = schema_of(*(field(k, name, kind) for k, (name, (kind, _)) in enumerate(VALUES.items(), 1)))
CODEC = Encoding(codec="zstd", level=3)


def sql_order(value: Any) -> Any:
    """A value as DuckDB and Spark order it: NaN is above all numbers."""
    return (math.isnan(value), 0 if math.isnan(value) else value) if isinstance(value, float) else value


def signed(number: float) -> tuple[float, float]:
    """A number as Java orders it: -0.0 is below 0.0."""
    return number, math.copysign(1, number)


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
    import duckdb  # not in the environment of the fast tests, which import this module

    counts: Counter[str] = Counter()

    @settings(max_examples=examples(300), deadline=None)
    @given(
        files=drawn_files(),
        memory_bytes=st.sampled_from([1 << 30, 1 << 30, 10_000]),
        group_bytes=st.sampled_from([1 << 27, 1 << 27, 3_000]),
        name=st.sampled_from([*VALUES, "x", "x"]),
        number=st.integers(0, 9),
    )
    def compare(files: list[DrawnFile], memory_bytes: int, group_bytes: int, name: str, number: int) -> None:
        expected = [row for f in files for row in f.expected(lineage=lineage)]
        values, probe = [row[name] for row in expected if row[name] is not None], VALUES[name][1](number)
        with tempfile.TemporaryDirectory() as place, splices(mode, counts):
            folder = Path(place)
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
            # The inputs, which PyArrow wrote, state bounds beside NaN, and copies keep them.
            has_bounds_of_inputs = name == "x" and 8 in result.spliced and any(map(math.isnan, values))
            for sign, holds in () if has_bounds_of_inputs else FILTERS.items():
                query = f"select count(*) from '{result.path}' where {name} {sign} ?"
                [found] = duckdb.execute(query, [probe]).fetchall()
                assert found == (sum(holds(sql_order(v), sql_order(probe)) for v in values),)
        # NaN is not equal to itself, and 0.0 is to -0.0.
        assert [{**row, "x": repr(row["x"])} for row in rows] == [
            {**row, "x": repr(row["x"])} for row in expected
        ]
        lower, upper = (
            signed(*struct.unpack("<d", bounds[8])) if 8 in bounds else None
            for bounds in (result.metrics.lower_bounds, result.metrics.upper_bounds)
        )
        floats = [signed(v) for row in expected if (v := row["x"]) is not None and not math.isnan(v)]
        assert (lower, upper) == ((min(floats), max(floats)) if floats else (None, None))

    compare()
    assert (counts["tasks spliced"] > 0) is (mode != NONE)
    assert counts["tasks streamed"] > 0 or mode != NONE
