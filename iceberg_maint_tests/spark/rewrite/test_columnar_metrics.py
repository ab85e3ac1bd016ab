"""The metrics of the columnar engine, field by field, against those of Iceberg's Java writer for the same rows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.columnar.read.leaves import leaves_of
from iceberg_maint.columnar.read.schema import table_schema
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.task import OutputMetrics
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.support.columnar.tables import (
    ALL_TYPES,
    all_types_row,
    field,
    schema_of,
    task_of,
    write_file,
)

pytestmark = pytest.mark.spark

EDGES = json.dumps(
    {
        **json.loads(ALL_TYPES),
        "fields": [
            *json.loads(ALL_TYPES)["fields"],
            *(
                field(70 + i, f"edge{i}", kind)
                for i, kind in enumerate(
                    [
                        "string",
                        "string",
                        "string",
                        "binary",
                        "binary",
                        "float",
                        "double",
                        "float",
                        "double",
                        "string",
                    ]
                )
            ),
        ],
    }
)
NULLS = schema_of(
    field(1, "s", "string"), field(2, "d", "double"), field(3, "i", "int"), field(4, "x", "decimal(20, 2)")
)
_numbers = itertools.count()
COUNTS = ("value-counts", "null-value-counts", "nan-value-counts", "lower-bounds", "upper-bounds")


def edge_row(n: int) -> dict[str, Any]:
    inf = float("inf")
    edges = [
        "ab" * 8 + ("\U0010ffff" * 2 if n == 2 else "\U0001f600") * n,
        "\ud7ff" * 17 if n else "a",
        "\U0010ffff" * 17,
        b"\xff" * 20 if n == 1 else b"\x00" * 3,
        b"a" * 15 + b"\xff" * 5,
        -0.0 if n % 2 else 0.0,
        [-0.0, float("nan")][n % 2],
        [-inf, inf, 1.5][n % 3],
        float("nan"),
        "long" * 2000 + str(n),
    ]
    return {**all_types_row(n), **{f"edge{i}": v for i, v in enumerate(edges)}}


@pytest.fixture(scope="module")
def bridge(spark: SparkSession) -> Bridge:
    spark.sql("create namespace if not exists lake.metrics")
    return Bridge(spark)


def java_metrics(bridge: Bridge, name: str, schema: str, rows: list[dict[str, Any]], folder: Path) -> Any:
    """Creates a table with the rows as a file that Arrow wrote. Returns the file, and a function that has Iceberg read
    and write the rows and gives the metrics of its writer as content-file JSON."""
    iceberg = bridge.iceberg
    catalog = iceberg.spark.Spark3Util.loadIcebergCatalog(bridge.session, "lake")
    identifier = iceberg.catalog.TableIdentifier.parse(f"metrics.{name}")
    unpartitioned = iceberg.PartitionSpec.unpartitioned()
    made = iceberg.SchemaParser.fromJson(schema)
    table = catalog.createTable(identifier, made, unpartitioned, bridge.map([("format-version", "3")]))
    text = str(iceberg.SchemaParser.toJson(table.schema()))
    file = write_file(folder, f"{name}.parquet", text, rows)
    added = (
        iceberg.DataFiles.builder(unpartitioned)
        .withPath(f"file:{file.path}")
        .withFormat("parquet")
        .withFileSizeInBytes(file.size_bytes)
        .withRecordCount(file.record_count)
        .build()
    )
    table.newAppend().appendFile(added).commit()

    def written(properties: Mapping[str, str]) -> dict[str, Any]:
        update = table.updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        update.commit()
        factory = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(table).build()
        outputs = iceberg.io.OutputFileFactory.builderFor(table, 1, next(_numbers)).build()
        writer = factory.newDataWriter(outputs.newOutputFile(), unpartitioned, None)
        for record in bridge.iterate(iceberg.data.IcebergGenerics.read(table).build()):
            writer.write(record)
        writer.close()
        data_file = writer.toDataFile()
        return json.loads(str(iceberg.ContentFileParser.toJson(data_file, unpartitioned)))

    return text, file, written


def by_field(content: Mapping[str, Any], key: str) -> dict[int, Any]:
    stated = content.get(key) or {"keys": [], "values": []}
    return dict(zip(stated["keys"], stated["values"], strict=True))


def as_json(metrics: OutputMetrics, key: str) -> dict[int, Any]:
    found = getattr(metrics, key.replace("-", "_"))
    return {k: v.hex().upper() if isinstance(v, bytes) else v for k, v in found.items()}


@pytest.fixture(scope="module")
def edges(bridge: Bridge, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("edges")
    return folder, *java_metrics(bridge, "edges", EDGES, [edge_row(n) for n in range(40)], folder)


@pytest.mark.parametrize("mode", ["truncate(16)", "truncate(3)", "full", "counts", "none"])
def test_metrics_of_every_type_equal_those_of_icebergs_writer(edges: Any, mode: str) -> None:
    folder, schema, file, written = edges
    theirs = written({"write.metadata.metrics.default": mode})
    modes = {leaf.column.field_id: mode for leaf in leaves_of(table_schema(schema, lineage=False))}
    task = task_of(folder, schema, [file], metrics_modes=modes)
    result = rewrite(replace(task, output_path=str(folder / f"ours-{mode}.parquet")))
    assert result.proof.difference == ""
    for key in COUNTS:
        assert as_json(result.metrics, key) == by_field(theirs, key), key
    assert result.metrics.column_sizes.keys() == by_field(theirs, "column-sizes").keys()
    assert list(result.metrics.split_offsets) == theirs["split-offsets"]


def test_metrics_of_columns_of_nulls_equal_those_of_icebergs_writer(bridge: Bridge, tmp_path: Path) -> None:
    schema, file, written = java_metrics(bridge, "nulls", NULLS, [{}, {}], tmp_path)
    theirs = written({})
    result = rewrite(task_of(tmp_path, schema, [file]))
    for key in COUNTS:
        assert as_json(result.metrics, key) == by_field(theirs, key), key
