"""A real table and its model, written side by side, one commit at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint_tests.support.spark.equality.model import Model, ModelDelete, ModelRow, Scope, Values
from iceberg_maint_tests.support.spark.writers import Row, Writers

Column = tuple[str, int, str]
"""Path, field id and type of a column."""

TAG = "tag"
"""The column that names a row: never a key, never twice."""


@dataclass(frozen=True, slots=True)
class Add:
    """Rows to write in a commit: one file in each partition of this spec (None: the current one)."""

    rows: Sequence[Row]
    spec_id: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Keys to delete in a commit: one equality delete file at this place, by values in order of the
    spec's fields."""

    keys: Sequence[Row]
    spec_id: int | None = None
    partition: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """Files of a commit, as Java objects, and what they are to the model."""

    data: list[Any]
    deletes: list[Any]
    model_rows: list[ModelRow]
    model_deletes: list[ModelDelete]


@dataclass(frozen=True, slots=True)
class Reading:
    """What Iceberg's generic reader sees: rows by field id, and each row's lineage by tag."""

    rows: tuple[Values, ...]
    lineage: Mapping[int, tuple[int | None, int | None]]


@dataclass
class Twin:
    """A table whose writers are all here, except for maintenance."""

    writers: Writers
    name: str
    model: Model = field(default_factory=Model)
    lineage: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    next_tag: int = 1

    @property
    def table(self) -> Any:
        """The Java table, fresh."""
        return self.writers.load(self.name)

    # writing

    def commit(self, *parts: Add | Delete, branch: str = "main") -> int:
        """All parts in one commit; the number of rows deleted."""
        table = self.table
        prepared = self.prepare(table, parts)
        delta = table.newRowDelta().toBranch(branch)
        for file in prepared.deletes:
            delta = delta.addDeletes(file)
        for file in prepared.data:
            delta = delta.addRows(file)
        delta.commit()
        return self.model_of(branch).commit(prepared.model_rows, prepared.model_deletes)

    def model_of(self, branch: str) -> Model:
        """What a branch holds: only `main` is kept."""
        return self.model if branch == "main" else Model()

    def prepare(self, table: Any, parts: Iterable[Add | Delete]) -> Prepared:
        """Writes the files of a commit, and says what they are to the model."""
        prepared = Prepared([], [], [], [])
        ids = {path: i for path, i, _ in self.columns(table)}
        for part in parts:
            spec = table.spec() if part.spec_id is None else table.specs().get(part.spec_id)
            if isinstance(part, Delete):
                prepared.deletes.append(self.writers.equality_deletes(table, part.keys, spec, part.partition))
                scope = Scope(int(spec.specId()), part.partition, bool(spec.isUnpartitioned()))
                keys = [values_of(ids, key) for key in part.keys]
                prepared.model_deletes.append(ModelDelete(keys, scope))
                continue
            for partition, found in self.by_partition(table, spec, part.rows).items():
                prepared.data.append(self.writers.data(table, found, spec, partition))
                scope = Scope(int(spec.specId()), partition, bool(spec.isUnpartitioned()))
                nulls = dict.fromkeys(ids.values())
                prepared.model_rows.extend(ModelRow({**nulls, **values_of(ids, row)}, scope) for row in found)
        return prepared

    def append(self, *rows: Row, spec_id: int | None = None) -> None:
        """One commit of rows."""
        self.commit(Add(self.tagged(rows), spec_id))

    def delete(self, *keys: Row, spec_id: int | None = None, partition: tuple[Any, ...] = ()) -> int:
        """One commit of one equality delete file; the number of rows deleted."""
        return self.commit(Delete(keys, spec_id, partition))

    def upsert(self, columns: Sequence[str], *rows: Row) -> None:
        """As Flink writes an upsert: per partition the delete of the old rows with the new ones'
        keys and the new rows, in one commit."""
        table = self.table
        spec = table.spec()
        tagged = self.tagged(rows)
        deletes = [
            Delete([{c: row.get(c) for c in columns} for row in found], int(spec.specId()), partition)
            for partition, found in self.by_partition(table, spec, tagged).items()
        ]
        self.commit(*deletes, Add(tagged))

    def delete_rows(self, *tags: int) -> None:
        """Deletes these rows by Spark: position deletes on v2, deletion vectors on v3."""
        self.writers.sql(f"delete from {self.name} where {TAG} in ({', '.join(map(str, tags))})")
        self.model.remove(self.field_id(TAG), tags)

    def add_column(self, name: str, kind: str, default: int | None = None) -> None:
        """A new column; the default is what rows written before read (format v3)."""
        update = self.table.updateSchema()
        types = self.writers.iceberg.types.Types
        if default is None:
            update.addColumn(name, types.fromPrimitiveString(kind)).commit()
            return
        literal = self.writers.iceberg.expressions.Expressions.lit(default)
        update.addColumn(name, types.fromPrimitiveString(kind), None, literal).commit()
        self.model.defaults[self.field_id(name)] = default

    def rename_column(self, old: str, new: str) -> None:
        """The same column under another name."""
        self.table.updateSchema().renameColumn(old, new).commit()

    def promote_column(self, name: str, kind: str) -> None:
        """The same column with a wider type."""
        wider = self.writers.iceberg.types.Types.fromPrimitiveString(kind)
        self.table.updateSchema().updateColumn(name, wider).commit()

    def drop_column(self, name: str) -> None:
        """The column goes from the schema, not from the files."""
        self.table.updateSchema().deleteColumn(name).commit()

    def partition_by(self, *columns: str) -> int:
        """A new spec that adds these columns as they are; its id."""
        update = self.table.updateSpec()
        for column in columns:
            update = update.addField(column)
        update.commit()
        return int(self.table.spec().specId())

    def follow_moved_rows(self) -> None:
        """Maintenance may move rows to the current spec, where later deletes of its partitions reach
        them: the model learns where they are now."""
        table, places = self.table, {}
        anything = self.writers.bridge.java_class("java.lang.Object")
        for task in self.writers.tasks(table):
            file = task.file()
            spec, partition = table.specs().get(file.specId()), file.partition()
            values = tuple(partition.get(i, anything) for i in range(partition.size()))
            places[str(file.location())] = Scope(int(file.specId()), values, bool(spec.isUnpartitioned()))
        frame = self.writers.bridge.spark.sql(f"select {TAG}, _file from {self.name}")
        scopes = {row[0]: places[row[1]] for row in frame.collect()}
        self.model.move(scopes, self.field_id(TAG))

    def upgrade(self, version: int) -> None:
        """The table's format version from now on."""
        self.table.updateProperties().set("format-version", str(version)).commit()

    def tagged(self, rows: Iterable[Row]) -> list[Row]:
        """The rows, each with a tag of its own."""
        named = []
        for row in rows:
            named.append({TAG: self.next_tag, **row})
            self.next_tag += 1
        return named

    # reading

    def read(self, snapshot_id: int | None = None) -> Reading:
        """All rows and their lineage by Iceberg's generic reader, which neither writes nor maintains."""
        table = self.table
        iceberg, bridge = self.writers.iceberg, self.writers.bridge
        columns = iceberg.MetadataColumns
        has_lineage = int(table.operations().current().formatVersion()) > 2
        lineage_columns = [columns.ROW_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER] if has_lineage else []
        more = iceberg.Schema(bridge.list(lineage_columns))
        schema = iceberg.types.TypeUtil.join(table.schema(), more)
        scan = iceberg.data.IcebergGenerics.read(table).project(schema)
        if snapshot_id is not None:
            scan = scan.useSnapshot(snapshot_id)
        # A record also has columns that the reader needed for itself, behind those asked for.
        names = [path for path, _, _ in _shown(self.columns(table)) if "." not in path]
        shown = schema.select(bridge.list([*names, *(c.name() for c in lineage_columns)]))
        projection = iceberg.util.StructProjection.create(schema, shown)
        struct = shown.asStruct()
        records = [
            dict(_flat(json.loads(iceberg.SingleValueParser.toJson(struct, projection.wrap(record)))))
            for record in bridge.iterate(scan.build())
        ]
        row_id, updated = (int(c.fieldId()) for c in (columns.ROW_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER))
        tag = self.field_id(TAG)
        lineage = {r[tag]: (r.pop(row_id, None), r.pop(updated, None)) for r in records}
        return Reading(tuple(records), lineage)

    def tags(self) -> list[int]:
        """Names of the rows the generic reader sees."""
        return sorted(self.read().lineage)

    def expected(self) -> list[Values]:
        """The rows the model holds, as the current schema shows them."""
        return self.model.read(i for _, i, _ in _shown(self.columns(self.table)))

    def check(self) -> None:
        """The table holds the model's rows, and every row the lineage it has always had."""
        reading = self.read()
        same_rows(reading.rows, self.expected())
        for tag, found in reading.lineage.items():
            # A row of a v2 table has no lineage until the first commit after the upgrade, which may be a rewrite. Iceberg's
            # reader of Avro shows the sequence number of its file before.
            known = self.lineage.get(tag, found)
            assert known in (found, (None, None)) or (known[0] is None and self._writes_avro()), (
                f"row {tag}: lineage was {known}, is {found}"
            )
            self.lineage[tag] = found

    def _writes_avro(self) -> bool:
        return str(self.table.properties().get("write.format.default")) == "avro"

    def live_equality_deletes(self, branch: str = "main") -> dict[str, int]:
        """Live equality delete files of a branch, with their number of rows."""
        table = self.table
        snapshot = table.snapshot(branch)
        iceberg, bridge = self.writers.iceberg, self.writers.bridge
        found: dict[str, int] = {}
        for manifest in bridge.iterate(snapshot.deleteManifests(table.io())):
            reader = iceberg.ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
            for file in bridge.iterate(reader):
                if file.content().toString() == "EQUALITY_DELETES":
                    found[str(file.location())] = int(file.recordCount())
        return found

    def applied_equality_deletes(self) -> set[str]:
        """Equality delete files that a reader of `main` still has to apply to a data file."""
        return {
            str(delete.location())
            for task in self.writers.tasks(self.table)
            for delete in self.writers.bridge.iterate(task.deletes())
            if delete.content().toString() == "EQUALITY_DELETES"
        }

    def data_files(self) -> set[str]:
        """Live data files of `main`."""
        return {str(task.file().location()) for task in self.writers.tasks(self.table)}

    def count_of_data_files(self) -> int:
        """How many these are, as the snapshot's summary says."""
        return int(self.table.currentSnapshot().summary()["total-data-files"])

    # parts

    def partition_of(self, spec_id: int, row: Row) -> tuple[Any, ...]:
        """The partition of this spec a row belongs to."""
        table = self.table
        (partition,) = self.by_partition(table, table.specs().get(spec_id), [row])
        return partition

    def columns(self, table: Any) -> list[Column]:
        """Every column of the table's current schema."""
        schema = json.loads(self.writers.iceberg.SchemaParser.toJson(table.schema()))
        return list(_columns(schema["fields"]))

    def field_id(self, path: str) -> int:
        """The id of a column of the current schema."""
        return {p: i for p, i, _ in self.columns(self.table)}[path]

    def by_partition(self, table: Any, spec: Any, rows: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
        """Rows by the partition of this spec they belong to."""
        schema = table.schema()
        fields = [
            (schema.findColumnName(f.sourceId()), f.transform().bind(schema.findType(f.sourceId())))
            for f in self.writers.bridge.iterate(spec.fields())
        ]
        placed: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            partition = tuple(transform.apply(row.get(column)) for column, transform in fields)
            placed.setdefault(partition, []).append(row)
        return placed


def same_rows(found: Iterable[Values], expected: Iterable[Values]) -> None:
    """Raises AssertionError that tells the rows of either side that the other has not."""
    shown, wanted = (Counter(map(repr, in_order(rows))) for rows in (found, expected))
    missing, unexpected = wanted - shown, shown - wanted
    assert not missing + unexpected, f"missing {list(missing)}, unexpected {list(unexpected)}"


def in_order(rows: Iterable[Values]) -> list[tuple[tuple[int, Any], ...]]:
    """Rows as sorted values, so that two readings of the same rows are equal."""
    return sorted((tuple(sorted(row.items())) for row in rows), key=repr)


def _columns(fields: Iterable[Mapping[str, Any]], prefix: str = "") -> Iterator[Column]:
    """The columns of a struct in Iceberg's JSON, those of structs after their struct."""
    for column in fields:
        path, kind = f"{prefix}{column['name']}", column["type"]
        if isinstance(kind, dict):
            yield path, int(column["id"]), kind["type"]
            yield from _columns(kind["fields"], f"{path}.")
        else:
            yield path, int(column["id"]), kind


def _shown(columns: Iterable[Column]) -> list[Column]:
    """Columns that are compared: all but dates and times, which the reader gives as Java objects and
    Iceberg's JSON takes as numbers."""
    return [c for c in columns if c[2] not in ("date", "time", "timestamp", "timestamptz")]


def values_of(ids: Mapping[str, int], row: Row) -> dict[int, Any]:
    """A row's values by field id. A struct's own value is whether it is there, since a NULL struct is
    no struct of NULLs."""
    values: dict[int, Any] = {}
    for path, value in row.items():
        parts = path.split(".")
        for depth in range(1, len(parts)):
            values[ids[".".join(parts[:depth])]] = True
        values[ids[path]] = value
    return values


def _flat(record: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    """Values by field id of a record in Iceberg's JSON."""
    for key, value in record.items():
        if isinstance(value, dict):
            yield int(key), True
            yield from _flat(value)
        else:
            yield int(key), value
