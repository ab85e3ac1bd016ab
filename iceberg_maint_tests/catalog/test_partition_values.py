"""Files of a partition by its key on real tables: exactly those whose rows belong to it, for hostile values of
every type and transform. What belongs where is computed from the rows, by PyIceberg's transforms."""

from __future__ import annotations

import itertools
import math
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.partition_key import decode_partition
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint_tests.security.hostile import PAYLOADS

pytestmark = pytest.mark.seconds

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
DECIMALS = tuple(
    Decimal(v).scaleb(-18, Context(prec=60)) for v in (0, 11 * 10**17, -(11 * 10**17), 1, -1, 10**38 - 1)
)
BYTES = (b"", b"\0", b"a/b", b"\xff\xfe", bytes(range(30)))
FLOATS = (0.0, -0.0, 1.5, -1.5, 2.0**-149, 2.0**127, -(2.0**127), math.inf, -math.inf, math.nan)
DOUBLES = (*FLOATS, 5e-324, 0.1, 1.7976931348623157e308, 2.0**53)
UUIDS = tuple(UUID(int=n) for n in (0, 1, 2**64, 2**127, 2**128 - 1, 0x2F2E2E2F << 96, 0x2527222F))
FIXED = (b"\0" * 4, b"\xff" * 4, b"a/b=", b"%2F.", b"null", b"\n\r\t ")


@dataclass(frozen=True)
class Case:
    kind: IcebergType
    arrow: pa.DataType | None
    transform: Transform[Any, Any]
    values: tuple[Any, ...]
    by_hand: bool = False
    """Whether its files are added one by one: what PyIceberg cannot write itself."""

    @property
    def name(self) -> str:
        way = "-by-hand" if self.by_hand else ""
        return f"{self.kind}-{self.transform}{way}".translate(str.maketrans("[](), ", "______"))


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
    *(Case(DECIMAL, pa.decimal128(38, 18), t, DECIMALS) for t in (IdentityTransform(), BucketTransform(5))),
    *(Case(BinaryType(), pa.large_binary(), t, BYTES) for t in (IdentityTransform(), BucketTransform(4))),
    *(
        Case(kind, None, t, values, by_hand=True)
        for kind, values, transforms in (
            (STRING, PAYLOADS, (IdentityTransform(), TruncateTransform(2), BucketTransform(31), VoidTransform())),
            (LONG, (*INTS, 2**63 - 1), (TruncateTransform(7), VoidTransform())),
            (DATE, DAYS, (VoidTransform(),)),
            (TimestampType(), MOMENTS, (BucketTransform(3),)),
            (TimestamptzType(), tuple(m.replace(tzinfo=UTC) for m in MOMENTS), (YearTransform(), MonthTransform())),
            (DECIMAL, DECIMALS, (TruncateTransform(50), VoidTransform())),
            (BinaryType(), BYTES, (TruncateTransform(1),)),
            (FloatType(), FLOATS, (IdentityTransform(), VoidTransform())),
            (DoubleType(), DOUBLES, (IdentityTransform(),)),
            (UUIDType(), UUIDS, (IdentityTransform(), BucketTransform(5))),
            (FixedType(4), FIXED, (IdentityTransform(), BucketTransform(5))),
        )
        for t in transforms
    ),
]  # fmt: skip


def test_values_types_and_transforms_are_enough() -> None:
    assert sum(len((None, *case.values)) for case in CASES) >= 1000
    assert len({str(case.kind) for case in CASES}) >= 12
    assert len({type(case.transform) for case in CASES}) == 8


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


@pytest.mark.drawn(12, always=("double-identity-by-hand",))
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
    to_partition = case.transform.transform(case.kind)
    partitions = [to_partition(internal(value)) for value in values]
    if case.by_hand:
        append_by_hand(table, partitions)
    else:
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, case.arrow)}))

    expected: dict[Any, set[int]] = defaultdict(set)
    for row_id, value in zip(ids, partitions, strict=True):
        expected[told_apart(value)].add(row_id)

    state = catalog.pin(TableId.parse(f"lake.db.{case.name}"))
    keys = catalog.measure(state, RewriteDataFilesPolicy()).partitions
    found: dict[Any, set[int]] = {}
    for key in keys:
        _, (value,) = decode_partition(key, state.specs, state.first_spec_id)
        files = catalog.live_files(state, [key])
        assert files
        assert {f.partition for f in files} == {key}
        found[told_apart(internal(value))] = set(
            itertools.chain.from_iterable(
                pq.read_table(f.path.removeprefix("file://"), columns=["id"])["id"].to_pylist() for f in files
            )
        )
    assert found == dict(expected)
    assert len(keys) == len(expected)


def append_by_hand(table: Table, partitions: list[Any]) -> None:
    """One file per row, in the partition that is given; only `id` is in it."""
    folder = Path(table.location().removeprefix("file://"))
    folder.mkdir(exist_ok=True)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for row_id, value in enumerate(partitions):
            path = folder / f"{row_id}.parquet"
            pq.write_table(pa.table({"id": pa.array([row_id], pa.int64())}), path)
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=path.as_uri(),
                file_format=FileFormat.PARQUET,
                partition=Record(value),
                record_count=1,
                file_size_in_bytes=path.stat().st_size,
            )
            file.spec_id = 0
            append.append_data_file(file)


def told_apart(value: Any) -> Any:
    """Floats by their bits: 0.0 is not -0.0, and NaN is itself."""
    return struct.pack(">d", value) if isinstance(value, float) else value


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
