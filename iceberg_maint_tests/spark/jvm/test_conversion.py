"""Files as content-file JSON and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.engines.spark.jvm import conversion
from iceberg_maint.engines.spark.jvm.conversion import (
    content_file_from_json,
    content_files_from_json,
    content_json,
    content_jsons,
)
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def file_in(shop: Workshop, table: Any, *values: Any) -> Any:
    """A data file that is not on disk, in this partition."""
    builder = shop.bridge.iceberg.DataFiles.builder(table.spec()).withPath("f.parquet").withFormat("parquet")
    builder = builder.withFileSizeInBytes(100).withRecordCount(1)
    partition = shop.writers.partition(table.spec(), values)
    return (builder if partition is None else builder.withPartition(partition)).build()


def test_partition_that_is_not_finite_is_read_as_a_number_and_a_text_of_that_name_as_text(
    shop: Workshop,
) -> None:
    table = shop.writers.create(
        shop.new_name("conversion"), "id int, f double, v string", partitioned_by="f, v"
    )
    nan, infinite = float("nan"), float("inf")
    places = [(nan, "a"), (nan, "NaN"), (-infinite, None), (None, "Infinity"), (1.5, "b")]
    files = [file_in(shop, table, *values) for values in places]
    texts = content_jsons(shop.bridge, table, files)
    assert texts == [content_json(shop.bridge, table, file) for file in files]
    many = content_files_from_json(shop.bridge, table, texts)
    for number, file in enumerate(files):
        assert content_file_from_json(shop.bridge, table, texts[number]).partition().equals(file.partition())
        assert many.get(number).partition().equals(file.partition())


def test_files_of_a_spec_with_void_fields_only_are_read_as_they_are(shop: Workshop) -> None:
    table = shop.writers.create(shop.new_name("conversion"), version=1, partitioned_by="v")
    shop.writers.append(table, [{"id": 1, "v": "a"}], None, ("a",))
    table.updateSpec().removeField("v").commit()
    shop.writers.append(table, [{"id": 2, "v": "b"}], None, (None,))
    files = shop.writers.files(shop.writers.load(table.name()))
    texts = content_jsons(shop.bridge, table, files)
    assert texts == [content_json(shop.bridge, table, file) for file in files]
    many = content_files_from_json(shop.bridge, table, texts)
    assert [many.get(n).partition().size() for n in range(2)] == [1, 1]


@pytest.mark.parametrize("partitioned_by", ["", "v"])
def test_texts_of_many_files_cross_in_one_call_without_specs_of_void_fields_only(
    shop: Workshop, partitioned_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shop.writers.create(shop.new_name("conversion"), partitioned_by=partitioned_by)
    files = [file_in(shop, table, *(("a",) if partitioned_by else ())) for _ in range(2)]
    expected = [content_json(shop.bridge, table, file) for file in files]
    monkeypatch.setattr(conversion, "content_json", lambda *_: "of one file")
    assert content_jsons(shop.bridge, table, files) == expected
