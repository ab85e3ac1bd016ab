"""Odd tables, each with one thing that not every engine reads, and all due for maintenance."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from iceberg_maint_tests.support.spark.writers import Row, Writers

FILES, ROWS = 6, 4
MERGE_ON_READ = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
Build = Callable[[Writers, str, Path], None]


def _plain(properties: Mapping[str, str], version: int = 2) -> Build:
    """Files of a table with these properties, and no deletes."""

    def build(writers: Writers, name: str, folder: Path) -> None:
        _filled(writers, name, version, properties)

    return build


def _positions(kind: str) -> Build:
    """A position delete file of this format for each data file."""

    def build(writers: Writers, name: str, folder: Path) -> None:
        table, paths = _filled(writers, name, 2, {"write.delete.format.default": kind})
        for path in paths:
            writers.delete_at(table, {path: [1]})

    return build


def _equality(version: int, kind: str = "parquet") -> Build:
    """Equality delete files of this format for rows of half of the data files."""

    def build(writers: Writers, name: str, folder: Path) -> None:
        table, _ = _filled(writers, name, version, {"write.delete.format.default": kind})
        for n in range(FILES // 2):
            writers.delete_where(table, [{"id": n * ROWS + 2}])

    return build


def _formats(*kinds: str) -> Build:
    """Data files of these formats. The table writes the last one."""

    def build(writers: Writers, name: str, folder: Path) -> None:
        table = writers.create(name, "id bigint, v string")
        for n in range(FILES):
            table.updateProperties().set("write.format.default", kinds[n * len(kinds) // FILES]).commit()
            writers.append(table, _rows(n))

    return build


def _typed(version: int, **columns: tuple[str, Sequence[str]]) -> Build:
    """Columns of these types with these values, as literals of Spark."""

    def build(writers: Writers, name: str, folder: Path) -> None:
        _created(writers, name, version, {"id": "long", **{c: kind for c, (kind, _) in columns.items()}})
        for n in range(FILES):
            rows = [
                ", ".join([str(n * ROWS + i), *(of[(n + i) % len(of)] for _, of in columns.values())])
                for i in range(ROWS)
            ]
            writers.sql(f"insert into {name} values ({'), ('.join(rows)})")

    return build


def _unread_by_spark(version: int, kind: str, java_class: str, text: str) -> Build:
    """A column whose values are parsed by a class of Java, "" for a column without a value."""

    def build(writers: Writers, name: str, folder: Path) -> None:
        table = _created(writers, name, version, {"id": "long", "at": kind})
        values = {"at": getattr(writers.bridge.jvm.java.time, java_class).parse(text)} if text else {}
        for n in range(FILES):
            writers.append(table, [{"id": n * ROWS, **values}, {"id": n * ROWS + 1}])

    return build


def _vectors(writers: Writers, name: str, folder: Path) -> None:
    _filled(writers, name, 3, MERGE_ON_READ)
    writers.sql(f"delete from {name} where id % {ROWS} = 0")


def _upgraded(writers: Writers, name: str, folder: Path) -> None:
    """Position delete files of format v2 in a table of v3."""
    _positions("parquet")(writers, name, folder)
    writers.sql(f"alter table {name} set tblproperties ('format-version'='3')")


def _evolved(writers: Writers, name: str, folder: Path) -> None:
    """Columns that were renamed, promoted, dropped and added again under an old name."""
    writers.create(name, "id int, v string, x float, gone int")
    writers.sql(f"insert into {name} values (1, 'a', 1.5, 7), (2, null, null, 8)")
    writers.sql(f"alter table {name} rename column v to w")
    writers.sql(f"insert into {name} values (3, 'b', 2.5, 9)")
    for change in ("alter column id type bigint", "alter column x type double", "drop column gone"):
        writers.sql(f"alter table {name} {change}")
    writers.sql(f"alter table {name} add column gone string")
    for n in range(4, 4 + FILES):
        writers.sql(f"insert into {name} values ({n}, 'c', 3.5, 'new')")


def _defaults(writers: Writers, name: str, folder: Path) -> None:
    """A column of format v3 whose default stands for values that older files lack."""
    table, _ = _filled(writers, name, 3, {})
    java = writers.iceberg
    seven = java.expressions.Literal.of(writers.bridge.jvm.java.lang.Integer.valueOf(7))
    table.updateSchema().addColumn("seven", java.types.Types.IntegerType.get(), seven).commit()
    writers.append(table, [{"id": 100, "v": "z", "seven": 8}])


def _nested(writers: Writers, name: str, folder: Path) -> None:
    writers.create(name, "id int, s struct<a:int, b:array<string>>, m map<string, struct<x:double>>")
    for n in range(FILES):
        writers.sql(
            f"insert into {name} values ({n}, named_struct('a', {n}, 'b', array('x', null)), map('k', named_struct('x', 1.5))), "
            f"({n}, null, map()), ({n}, named_struct('a', null, 'b', array()), null)"
        )
        if n == FILES // 2:
            writers.sql(f"alter table {name} add column s.c string")
            writers.sql(f"alter table {name} drop column s.c")


def _specs(writers: Writers, name: str, folder: Path) -> None:
    """Partitions of three specs, of which one has lost a field."""
    writers.create(name, "id bigint, v string, d date", partitioned_by="v")
    changes = ["add partition field bucket(4, id)", "drop partition field v", "add partition field months(d)"]
    for change in [*changes, ""]:
        for n in range(FILES):
            writers.sql(f"insert into {name} values ({n}, 'a', date'2024-01-31'), ({n}, null, null)")
        if change:
            writers.sql(f"alter table {name} {change}")


def _names(writers: Writers, name: str, folder: Path) -> None:
    columns = (
        "`a.b` int, `with space` string, `it''s` int, `größe` double, `select` int, `the \"quote\"` string"
    )
    writers.create(name, columns)
    for n in range(FILES):
        writers.sql(f"insert into {name} values ({n}, 'x', {n}, 1.5, null, 'y')")


def _imported(writers: Writers, name: str, folder: Path) -> None:
    """Files of another writer, without field ids."""
    writers.create(name, "id bigint, v string")
    source = folder / name
    source.mkdir(parents=True)
    for n in range(FILES):
        pyarrow.parquet.write_table(pa.Table.from_pylist(list(_rows(n))), source / f"{n}.parquet")
    catalog, _, rest = name.partition(".")
    writers.sql(f"call {catalog}.system.add_files(table => '{rest}', source_table => '`parquet`.`{source}`')")


def _first_version(writers: Writers, name: str, folder: Path) -> None:
    writers.create(name, "id bigint, v string", version=1, partitioned_by="v")
    for n in range(FILES):
        writers.sql(f"insert into {name} values ({n}, 'a'), ({n}, null)")


def _variant(writers: Writers, name: str, folder: Path) -> None:
    writers.create(name, "id int, v variant", version=3)
    for n in range(FILES):
        writers.sql(f"insert into {name} select {n}, parse_json('{{\"a\": [1, null]}}')")


_CODECS = {
    f"codec {codec}": _plain({"write.parquet.compression-codec": codec})
    for codec in ("zstd", "gzip", "snappy", "lz4", "uncompressed")
}
FEATURES: Mapping[str, Build] = {
    "data parquet": _plain({}),
    "data avro": _formats("avro"),
    "data orc": _formats("orc"),
    "equality deletes": _equality(2),
    "position deletes parquet": _positions("parquet"),
    "position deletes avro": _positions("avro"),
    "position deletes orc": _positions("orc"),
    "deletion vectors": _vectors,
    **_CODECS,
}
"""Tables with one feature each: who reads it with the right rows can read the feature."""

TABLES: Mapping[str, Build] = {
    **FEATURES,
    "format v1": _first_version,
    "data parquet and orc": _formats("orc", "parquet"),
    "data orc and parquet": _formats("parquet", "orc"),
    "data avro and parquet": _formats("avro", "parquet"),
    "equality deletes v3": _equality(3),
    "equality deletes avro": _equality(2, "avro"),
    "equality deletes orc": _equality(2, "orc"),
    "position deletes in v3": _upgraded,
    "row lineage": _plain({}, version=3),
    "data pages v2": _plain({"write.parquet.page-version": "v2"}),
    "bloom filter": _plain({"write.parquet.bloom-filter-enabled.column.id": "true"}),
    "no dictionary": _plain({"write.parquet.dict-encoding-enabled.column.v": "false"}),
    "columns evolved": _evolved,
    "default values": _defaults,
    "nested columns": _nested,
    "specs evolved": _specs,
    "odd names": _names,
    "imported files": _imported,
    "numbers": _typed(
        2,
        f=("float", ["1.5f", "-0.0f", "null"]),
        d=("double", ["1e300", "0.1d", "null"]),
        small=("decimal(9, 2)", ["1.25", "-7.00", "null"]),
        large=("decimal(38, 10)", ["12345678901234567890.0123456789", "null"]),
        flag=("boolean", ["true", "false", "null"]),
    ),
    "times": _typed(
        2,
        day=("date", ["date'2024-02-29'", "date'1969-12-31'", "null"]),
        ts=("timestamp", ["timestamp_ntz'2024-02-29 23:59:59.999999'", "null"]),
        tz=(
            "timestamptz",
            ["timestamp'2024-02-29 23:59:59.999999Z'", "timestamp'1900-01-01 00:00:00Z'", "null"],
        ),
    ),
    "time of day": _unread_by_spark(2, "time", "LocalTime", "23:59:59.999999"),
    "uuid": _typed(2, u=("uuid", ["'f79c3e09-677c-4bbd-a479-3f349cb785e7'", "null"])),
    "binary": _typed(2, b=("binary", ["x'00ff'", "x''", "null"]), fx=("fixed[4]", ["x'00010203'", "null"])),
    "nanoseconds": _unread_by_spark(3, "timestamp_ns", "LocalDateTime", "2024-02-29T23:59:59.999999999"),
    "unknown": _unread_by_spark(3, "unknown", "", ""),
    "variant": _variant,
}


def build(writers: Writers, namespace: str, folder: Path) -> None:
    """Writes every table into the namespace `catalog.namespace`."""
    for title, write in TABLES.items():
        write(writers, f"{namespace}.{table_name(title)}", folder)


def table_name(title: str) -> str:
    """The name of the table with this title."""
    return title.replace(" ", "_")


def _filled(
    writers: Writers, name: str, version: int, properties: Mapping[str, str]
) -> tuple[Any, list[str]]:
    table = writers.create(name, "id bigint, v string", version=version, properties=properties)
    return table, [writers.append(table, _rows(n)).location() for n in range(FILES)]


def _rows(n: int) -> list[Row]:
    return [{"id": n * ROWS + i, "v": f"{n}-{i}"} for i in range(ROWS)]


def _created(writers: Writers, name: str, version: int, columns: Mapping[str, str]) -> Any:
    """A table with columns of Iceberg's types, of which Spark's SQL lacks some."""
    bridge = writers.bridge
    catalog, *names = name.split(".")
    fields = [
        {"id": n, "name": column, "required": False, "type": kind}
        for n, (column, kind) in enumerate(columns.items(), start=1)
    ]
    schema = bridge.iceberg.SchemaParser.fromJson(
        json.dumps({"type": "struct", "schema-id": 0, "fields": fields})
    )
    identifier = bridge.iceberg.catalog.TableIdentifier.of(bridge.array(bridge.jvm.java.lang.String, names))
    java_catalog = bridge.iceberg.spark.Spark3Util.loadIcebergCatalog(bridge.session, catalog)
    unpartitioned = bridge.iceberg.PartitionSpec.unpartitioned()
    properties = bridge.map([("format-version", str(version))])
    return java_catalog.createTable(identifier, schema, unpartitioned, properties)
