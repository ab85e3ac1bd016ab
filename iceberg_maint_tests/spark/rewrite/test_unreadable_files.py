"""Files that Iceberg's readers cannot read by the table's schema: refused with a code, by both strategies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from iceberg_maint.columnar.parquet.parquet_metadata import get
from iceberg_maint.columnar.parquet.thrift import Struct
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint.engines.spark import write_failures
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS
from iceberg_maint.engines.spark.scan.scan import load_table_info
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.columnar.test_splice import edited
from iceberg_maint_tests.support.spark.entries import stating
from iceberg_maint_tests.support.spark.equality_deletes import rows_of
from iceberg_maint_tests.support.spark.unhealthy_tables import sick_table, workshop
from iceberg_maint_tests.support.spark.versions import IS_SPARK_3
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop

pytestmark = pytest.mark.spark
STRATEGIES = [RewriteStrategy.AUTO, RewriteStrategy.NATIVE]
RESERVED = "Table column names conflict with names reserved for Iceberg metadata columns: [{}]"
LINEAGE = RESERVED if IS_SPARK_3 else "with name `{}` cannot be resolved"
"""Iceberg for Spark 3.5 reserves the names of row lineage in every table. With Spark 4.1, Spark does not resolve them."""


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


def refusal(shop: Workshop, table: str, strategy: RewriteStrategy) -> str:
    before = shop.writers.load(table).currentSnapshot().snapshotId()
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    with pytest.raises(RefusedError) as refused:
        shop.engine.write(shop.batch(table, strategy=strategy), policy)
    assert shop.writers.load(table).currentSnapshot().snapshotId() == before
    return str(refused.value)


def in_plan_order(shop: Workshop, table: str) -> list[str]:
    """The data files as a plan has them."""
    batch = shop.batch(table, strategy=RewriteStrategy.NATIVE)
    return [f.path for g in batch.groups for f in g.files]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_orc_files_without_a_column_that_has_a_default_are_refused(
    shop: Workshop, strategy: RewriteStrategy
) -> None:
    table = shop.new_name("native")
    shop.writers.create(table, version=3, properties={"write.format.default": "orc"})
    for value in ("a", "b"):
        shop.sql(f"insert into {table} values (1, '{value}')")
    default = shop.bridge.iceberg.expressions.Expressions.lit("other")
    string = shop.bridge.iceberg.types.Types.StringType.get()
    shop.writers.load(table).updateSchema().addColumn("d", string, None, default).commit()
    # No reader reads either file, and Iceberg plans them in any order.
    assert refusal(shop, table, strategy) in [
        f"ICM-135 {table}: Iceberg's reader cannot read {path}: UnsupportedOperationException: ORC cannot read "
        "default value for field d (string): other. Fix: rewrite the files with an engine that reads them."
        for path in in_plan_order(shop, table)
    ]


@pytest.mark.variant
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("more", ["", ", struct(id) as s"])
def test_added_files_with_a_column_that_was_added_again_with_another_type_are_refused(
    shop: Workshop, tmp_path: Path, more: str, strategy: RewriteStrategy
) -> None:
    table = shop.new_name("native")
    frame: Any = shop.sql(f"select cast(id as int) as id, cast(id as int) as c {more} from range(3)")
    shop.sql(f"create table {table} (id int, c int {', s struct<id: bigint>' if more else ''}) using iceberg")
    for name in ("a", "b"):
        folder = tmp_path / name
        frame.coalesce(1).write.parquet(str(folder))
        shop.sql(
            f"call lake.system.add_files(table => '{table.removeprefix('lake.')}',"
            f" source_table => '`parquet`.`{folder}`', parallelism => 1)"
        )
    shop.sql(f"alter table {table} drop column c")
    shop.sql(f"alter table {table} add column c string")
    message = refusal(shop, table, strategy)
    assert message.startswith(f"ICM-135 {table}: Iceberg's reader cannot read file:{tmp_path}/")
    assert message.endswith(
        "Fix: correct the property schema.name-mapping.default of the table: it gives a column of the file to one of "
        "another type."
    )


@pytest.mark.variant
@pytest.mark.parametrize(
    ("kind", "values", "cause"),
    [
        ("uuid", pa.array([b"12345678"], pa.binary(8)), "IllegalArgumentException: UUID require 16 bytes"),
        ("uuid", pa.array(["x"]), "IllegalArgumentException: Invalid UUID string: x"),
        (
            "string",
            pa.array([None], pa.null()),
            "UnsupportedOperationException: Unsupported logical type: null",
        ),
        ("string", pa.array([[1]]), "IllegalArgumentException: Not a list type: string"),
        ("int", pa.array([{"x": 1}]), "IllegalArgumentException: Not a struct type: int"),
    ],
)
def test_added_files_whose_column_has_a_type_that_no_reader_takes_for_the_tables_are_refused(
    shop: Workshop, tmp_path: Path, kind: str, values: pa.Array, cause: str
) -> None:
    for number in range(2):
        pq.write_table(pa.table({"c": values}), tmp_path / f"{number}.parquet")
    table = shop.new_name("native")
    shop.sql(f"create table {table} (id int) using iceberg")
    types = shop.bridge.iceberg.types.Types
    shop.writers.load(table).updateSchema().addColumn("c", types.fromPrimitiveString(kind)).commit()
    shop.sql(
        f"call lake.system.add_files(table => '{table.removeprefix('lake.')}',"
        f" source_table => '`parquet`.`{tmp_path}`', parallelism => 1)"
    )
    message = refusal(shop, table, RewriteStrategy.NATIVE)
    # Spark reads such a text and cannot write it, so no file is found.
    place = "a data file: " if "UUID string" in cause else f"file:{tmp_path}/"
    assert message.startswith(f"ICM-135 {table}: Iceberg's reader cannot read {place}")
    assert f": {cause}" in message


def test_file_whose_row_group_lacks_a_column_of_its_schema_is_named(shop: Workshop) -> None:
    table = shop.new_name("native")
    shop.sql(f"create table {table} (id int, v string) using iceberg")
    for number in range(3):
        shop.sql(f"insert into {table} values ({number}, 'x')")
    path = in_plan_order(shop, table)[1]
    file = Path(path.removeprefix("file:"))
    contents = edited(file.read_bytes(), lambda footer: get(get(footer, 4)[1][0], 1)[1].pop())
    footer = int.from_bytes(contents[-8:-4], "little") + 8
    file.write_bytes(contents[:-footer].ljust(file.stat().st_size - footer, b"\0") + contents[-footer:])
    (file.parent / f".{file.name}.crc").unlink()
    assert refusal(shop, table, RewriteStrategy.NATIVE) == (
        f"ICM-135 {table}: Iceberg's reader cannot read {path}: IllegalArgumentException: [v] required binary v (STRING) = 2 is "
        "not in the store: [[id] required int32 id = 1] 1; each row group of a Parquet file must have every column of the "
        "file's schema. Fix: rewrite the files with an engine that reads them."
    )


def set_field(fields: Struct, number: int, more: int) -> None:
    fields[number] = (fields[number][0], get(fields, number) + more)


def first_chunk(footer: Struct) -> Struct:
    return get(get(get(footer, 4)[1][0], 1)[1][0], 3)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("edit", "cause"),
    [
        (
            lambda footer: set_field(get(footer, 4)[1][0], 3, -2),
            "IllegalStateException: Number of values read, 10, does not equal expected, 8.",
        ),
        (lambda footer: set_field(first_chunk(footer), 5, -2), "IOException: Expected 8 values in column"),
        (
            lambda footer: set_field(first_chunk(footer), 5, 2),
            "TTransportException: Socket is closed by peer.",
        ),
    ],
)
def test_file_whose_footer_has_other_counts_than_its_pages_is_named(
    shop: Workshop, edit: Callable[[Struct], object], cause: str
) -> None:
    table = shop.new_name("native")
    java = shop.writers.create(table)
    files = [shop.writers.data(java, rows_of(range(start, start + 10))) for start in (0, 10)]
    path = str(files[1].location())
    file = Path(path.removeprefix("file:"))
    file.write_bytes(edited(file.read_bytes(), edit))
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    append = java.newAppend().appendFile(files[0])
    append.appendFile(stating(shop.bridge, java, files[1], file_size_in_bytes=file.stat().st_size)).commit()
    message = refusal(shop, table, RewriteStrategy.NATIVE)
    assert message.startswith(f"ICM-101 {table}: {path}: {cause}")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("text", ["No space left on device", "Too many open files", "Java heap space"])
def test_search_that_the_machine_ends_names_no_file(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    table = sick_table(shop, 2)
    error = "java.lang.OutOfMemoryError: Java heap space" if "heap" in text else text
    frame = shop.spark.sql(f"select raise_error('{error}')")
    batch = shop.batch(table, strategy=RewriteStrategy.NATIVE)
    info = load_table_info(shop.bridge, shop.writers.load(table), table, batch.snapshot_id)
    assert write_failures.unreadable_file(shop.bridge, info, batch) == ""
    monkeypatch.setattr(write_failures, "read_staged", lambda *_: frame)
    with pytest.raises(JVM_ERRORS, match=text):
        write_failures.unreadable_file(shop.bridge, info, batch)


@pytest.mark.parametrize(
    ("column", "cause"),
    [
        ("V", "[AMBIGUOUS_REFERENCE] Reference `v` is ambiguous"),
        ("_pos", RESERVED.format("_pos")),
        ("_row_id", LINEAGE.format("_row_id")),
        ("_last_updated_sequence_number", LINEAGE.format("_last_updated_sequence_number")),
    ],
)
def test_columns_that_spark_cannot_tell_apart_are_refused(shop: Workshop, column: str, cause: str) -> None:
    table = shop.new_name("native")
    shop.sql(f"create table {table} (id int, v string) using iceberg")
    for value in ("a", "b"):
        shop.sql(f"insert into {table} values (1, '{value}')")
    string = shop.bridge.iceberg.types.Types.StringType.get()
    shop.writers.load(table).updateSchema().addColumn(column, string).commit()
    message = refusal(shop, table, RewriteStrategy.NATIVE)
    assert message.startswith(f"ICM-135 {table}: Spark cannot read the columns of the table by their names: ")
    assert cause in message
    assert message.endswith("Fix: rename the column that the message names.")
