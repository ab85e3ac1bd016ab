"""Files of a partition by its key on real tables: exactly those whose rows belong to it, for hostile values of
every type and transform. What belongs where is computed from the rows, by PyIceberg's transforms."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from iceberg_maint.catalog.pyiceberg_catalog import PyIcebergCatalog
from iceberg_maint.core.ids import TableId
from iceberg_maint.core.partition import decode_partition
from iceberg_maint.core.policy import RewriteDataFilesPolicy

HOSTILE = (
    "",
    " ",
    "null",
    "NULL",
    "__HIVE_DEFAULT_PARTITION__",
    "__all__",
    "spec=1/v=x",
    "a=b",
    "a/b",
    "../../etc",
    "..",
    ".",
    "a...b",
    "%2F",
    "100%",
    "a|b,c[d]",
    "' OR 1=1 --",
    '"; DROP TABLE t; --',
    "`x`",
    "back\\slash",
    "new\nline",
    "tab\t",
    "\x01",
    "\u202eRTL",
    "é",
    "e\u0301",
    "日本語",
    "🧊",
    "${jndi:ldap://x}",
    "true",
    "1",
    "x" * 120,
)
EPOCH = date(1970, 1, 1)
DAYS = tuple(
    EPOCH + timedelta(days=d)
    for d in (-719_162, -400_000, -141_428, -141_427, -366, -365, -1, 0, 1, 365, 19_723, 100_000, 2_932_896)
)
MOMENTS = tuple(
    datetime(1970, 1, 1) + timedelta(days=d, microseconds=us)  # noqa: DTZ001 - a timestamp without zone
    for d in (-30_000, -366, -1, 0, 1, 19_723, 40_000)
    for us in (0, 1, 3_599_999_999, 3_600_000_000, 86_399_999_999)
)
STRING, INT, LONG, DATE, DECIMAL = StringType(), IntegerType(), LongType(), DateType(), DecimalType(38, 18)
INTS = tuple(sorted({s * v for s in (1, -1) for v in (0, 1, 9, 10, 11, 127, 128, 1000, 2**31 - 8)}))
LONGS = (*INTS, 2**63 - 1, -(2**63), 2**53 + 1)


@dataclass(frozen=True)
class Case:
    kind: IcebergType
    arrow: pa.DataType
    transform: Transform[Any, Any]
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.transform}".translate(str.maketrans("[](), ", "______"))


CASES = [
    *(Case(STRING, pa.large_string(), t, HOSTILE) for t in (IdentityTransform(), TruncateTransform(3), BucketTransform(16))),
    *(Case(INT, pa.int32(), t, INTS) for t in (IdentityTransform(), TruncateTransform(10), BucketTransform(16))),
    *(Case(LONG, pa.int64(), t, LONGS) for t in (IdentityTransform(), BucketTransform(1000))),
    Case(BooleanType(), pa.bool_(), IdentityTransform(), (True, False)),
    *(
        Case(DATE, pa.date32(), t, DAYS)
        for t in (IdentityTransform(), YearTransform(), MonthTransform(), DayTransform(), BucketTransform(7))
    ),
    *(
        Case(TimestampType(), pa.timestamp("us"), t, MOMENTS)
        for t in (IdentityTransform(), YearTransform(), MonthTransform(), DayTransform(), HourTransform())
    ),
    *(
        Case(TimestamptzType(), pa.timestamp("us", "UTC"), t, tuple(m.replace(tzinfo=UTC) for m in MOMENTS))
        for t in (IdentityTransform(), DayTransform(), HourTransform(), BucketTransform(9))
    ),
    Case(TimeType(), pa.time64("us"), IdentityTransform(), (time(0), time(23, 59, 59, 999_999), time(12, 0, 0, 1))),
    *(
        Case(
            DECIMAL,
            pa.decimal128(38, 18),
            t,
            tuple(
                Decimal(v).scaleb(-18, Context(prec=60)) for v in (0, 11 * 10**17, -(11 * 10**17), 1, -1, 10**38 - 1)
            ),
        )
        for t in (IdentityTransform(), BucketTransform(5))
    ),
    *(
        Case(BinaryType(), pa.large_binary(), t, (b"", b"\0", b"a/b", b"\xff\xfe", bytes(range(30))))
        for t in (IdentityTransform(), BucketTransform(4))
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("values")


@pytest.fixture(scope="module")
def writer(folder: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    yield catalog
    catalog.engine.dispose()


@pytest.fixture(scope="module")
def catalog(folder: Path) -> PyIcebergCatalog:
    return PyIcebergCatalog(
        "lake", {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": folder.as_uri()}
    )


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_files_of_a_key_hold_exactly_the_rows_of_its_partition(
    case: Case, writer: SqlCatalog, catalog: PyIcebergCatalog
) -> None:
    values = [None, *case.values]
    ids = range(len(values))
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "v", case.kind, required=False)
    )
    spec = PartitionSpec(PartitionField(2, 1000, case.transform, "part"), spec_id=0)
    table = writer.create_table(f"db.{case.name}", schema, partition_spec=spec)
    rows = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, case.arrow)})
    table.append(rows)

    expected: dict[Any, set[int]] = defaultdict(set)
    to_partition = case.transform.transform(case.kind)
    for row_id, value in zip(ids, values, strict=True):
        expected[to_partition(internal(value))].add(row_id)

    state = catalog.pin(TableId.parse(f"lake.db.{case.name}"))
    keys = catalog.measure(state, RewriteDataFilesPolicy()).partitions
    found: dict[Any, set[int]] = {}
    for key in keys:
        _, (value,) = decode_partition(key, state.specs, state.first_spec_id)
        files = catalog.live_files(state, [key])
        assert files
        assert {f.partition for f in files} == {key}
        found[internal(value)] = set(
            itertools.chain.from_iterable(
                pq.read_table(f.path.removeprefix("file://"), columns=["id"])["id"].to_pylist() for f in files
            )
        )
    assert found == dict(expected)
    assert len(keys) == len(expected)


def internal(value: Any) -> Any:
    """As manifests store it: dates in days, times in microseconds."""
    if isinstance(value, datetime):
        naive = value.replace(tzinfo=None) - datetime(1970, 1, 1)  # noqa: DTZ001
        return naive // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - EPOCH).days
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value
