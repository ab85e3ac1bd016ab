"""A twin of columns of every kind, which also knows what each of its snapshots and branches holds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from iceberg_maint_tests.qualification.program.kinds import KINDS, days, of_json, sql_literal
from iceberg_maint_tests.qualification.program.witness import Witness, by_field
from iceberg_maint_tests.support.spark.equality.model import Model, ModelRow, Scope, Values
from iceberg_maint_tests.support.spark.equality.reference import (
    TAG,
    Add,
    Column,
    Reading,
    Twin,
    same_rows,
    values_of,
)
from iceberg_maint_tests.support.spark.writers import Row, Writers

_TIMES = {
    "date": ("LocalDate", "parse"),
    "timestamp": ("LocalDateTime", "parse"),
    "timestamptz": ("OffsetDateTime", "parse"),
}


class WideWriters(Writers):
    """Takes values of every kind; Iceberg's own JSON has them in another form than its generic writers."""

    def equality_deletes(
        self,
        table: Any,
        keys: Iterable[Row],
        spec: Any = None,
        partition: Sequence[Any] = (),
        *,
        by: Sequence[str] | None = None,
    ) -> Any:
        """A key `st` of None is that of rows without the struct, among keys by `st.x`."""
        ordered = sorted(keys, key=lambda key: "st" in key)
        if "st" in ordered[0]:
            by = [c if c != "st" else "st.x" for c in ordered[0]]
        return super().equality_deletes(table, ordered, spec, partition, by=by)

    def _records(self, schema: Any, rows: Iterable[Row]) -> list[Any]:
        kinds = {f["name"]: f["type"] for f in self.fields(schema)}
        # What JSON has no number for is written without quotes.
        features = self.bridge.once(_allow_nan)
        assert features is not None
        records = []
        for row in rows:
            plain = {
                c: _number(kinds.get(c), v) for c, v in row.items() if not self._is_java(kinds.get(c), v)
            }
            (record,) = super()._records(schema, [plain])
            for column, value in row.items():
                if self._is_java(kinds.get(column), value):
                    record.setField(column, self._java(kinds[column], value))
            records.append(record)
        return records

    def fields(self, schema: Any) -> list[Mapping[str, Any]]:
        """The columns of a schema as Iceberg's JSON has them."""
        return json.loads(self.iceberg.SchemaParser.toJson(schema))["fields"]

    def type_of(self, kind: str) -> Any:
        """The Java type of a kind."""
        column = {"id": 1000, "name": "c", "required": False, "type": KINDS[kind].type}
        schema = {"type": "struct", "schema-id": 0, "fields": [column]}
        return self.iceberg.SchemaParser.fromJson(json.dumps(schema)).findType("c")

    def _is_java(self, kind: Any, value: Any) -> bool:
        return value is not None and isinstance(kind, str) and (kind in _TIMES or kind.startswith("fixed"))

    def _java(self, kind: str, value: str) -> Any:
        if kind not in _TIMES:
            return bytes.fromhex(value)
        name, method = _TIMES[kind]
        return getattr(getattr(self.bridge.jvm.java.time, name), method)(value)


def _number(kind: Any, value: Any) -> Any:
    return float(value) if kind in ("float", "double") and value is not None else value


def _allow_nan(bridge: Any) -> Any:
    """Iceberg's JSON reader takes NaN from now on."""
    core = bridge.iceberg.shaded.com.fasterxml.jackson.core
    feature = getattr(core, "JsonParser$Feature").valueOf("ALLOW_NON_NUMERIC_NUMBERS")
    return bridge.iceberg.util.JsonUtil.mapper().configure(feature, True)


@dataclass
class Wide(Twin):
    """Also holds its branches, its staged rows and what every snapshot had when it was committed. `forwarded` are the rows of
    staged snapshots that main was fast-forwarded to."""

    writers: WideWriters
    branches: dict[str, Model] = field(default_factory=dict)
    staged: dict[int, list[ModelRow]] = field(default_factory=dict)
    forwarded: dict[int, list[ModelRow]] = field(default_factory=dict)
    history: dict[int, tuple[ModelRow, ...]] = field(default_factory=dict)
    witness: Witness = field(default_factory=Witness)
    nested: bool = False
    """Equality deletes go by a required field of an optional struct: stock readers do not apply all of them."""
    _tags: dict[str, frozenset[int]] = field(default_factory=dict)

    def model_of(self, branch: str) -> Model:
        """What a branch holds."""
        return self.model if branch == "main" else self.branches[branch]

    # what was committed

    def remember(self) -> None:
        """What the heads of all branches hold now."""
        table = self.table
        for name in ("main", *self.branches):
            head = table.snapshot(name)
            if head is not None:
                self.history[int(head.snapshotId())] = tuple(self.model_of(name).rows)

    def inherit(self) -> None:
        """Every snapshot that no writer made holds what its parent does: maintenance changes no row."""
        for snapshot in sorted(self.metadata()["snapshots"], key=lambda s: s.get("sequence-number", 0)):
            if snapshot["snapshot-id"] not in self.history:
                self.history[snapshot["snapshot-id"]] = self.history[snapshot["parent-snapshot-id"]]

    def metadata(self) -> Mapping[str, Any]:
        """The table's metadata file, as it is on storage."""
        with open(self.location().removeprefix("file:"), encoding="utf-8") as file:  # noqa: PTH123
            return json.load(file)

    def location(self) -> str:
        """That of the metadata file."""
        return str(self.table.operations().current().metadataFileLocation())

    # files

    def live_files(self) -> dict[str, Any]:
        """Live data files of main, as Java objects."""
        tasks = self.table.newScan().includeColumnStats().planFiles()
        files = (task.file() for task in self.writers.bridge.iterate(tasks))
        return {str(file.location()): file for file in files}

    def tags_in(self, path: str) -> frozenset[int]:
        """The tags of all rows that a Parquet file holds, deleted or not."""
        if path not in self._tags:
            column = pq.read_table(path.removeprefix("file:"), columns=[TAG], partitioning=None)[TAG]
            self._tags[path] = frozenset(column.to_pylist())
        return self._tags[path]

    def is_stored(self, path: str) -> bool:
        """Whether the file is at its place."""
        return os.path.exists(path.removeprefix("file:"))  # noqa: PTH110

    def scope_of(self, file: Any) -> Scope:
        """The place of a Java file."""
        anything = self.writers.bridge.java_class("java.lang.Object")
        spec, partition = self.table.specs().get(file.specId()), file.partition()
        return self.scope(spec, tuple(partition.get(i, anything) for i in range(partition.size())))

    def learn_rows(self, files: Mapping[str, Any]) -> None:
        """The model gets the rows of files that were registered by the last commit: nothing is deleted in them yet."""
        tag, ids = self.field_id(TAG), [i for _, i, _ in self.columns(self.table)]
        shown = {row[tag]: row for row in self.read().rows}
        for path, file in files.items():
            scope = self.scope_of(file)
            for number in self.tags_in(path):
                self.model.rows.append(ModelRow({**dict.fromkeys(ids), **shown[number]}, scope))
                # A registered file has row ids of its own.
                self.lineage.pop(number, None)

    # writing

    def ancestors(self) -> list[int]:
        """The snapshots of main, newest first, as far back as they are kept."""
        metadata = self.metadata()
        parents = {s["snapshot-id"]: s.get("parent-snapshot-id") for s in metadata["snapshots"]}
        chain, at = [], metadata["current-snapshot-id"]
        while at in parents:
            chain.append(at)
            at = parents[at]
        return chain

    def roll_back(self, target: int) -> None:
        """Main is at an older snapshot again."""
        self.table.manageSnapshots().rollbackTo(target).commit()
        self.model.rows[:] = self.history[target]
        # In a snapshot of format v2 rows have no ids; after the next commit they have new ones.
        self.lineage.clear()
        self.follow_moved_rows()
        # A staged snapshot that main was fast-forwarded to is unpublished again: nothing else says that it was published.
        on_main = self.ancestors()
        kept = {s["snapshot-id"] for s in self.metadata()["snapshots"]}
        for staged in [i for i in self.forwarded if i not in on_main and i in kept]:
            self.staged[staged] = self.forwarded.pop(staged)

    def stage(self, wap_id: str, *rows: Row) -> int:
        """Rows of a snapshot that no branch shows yet; its id."""
        table = self.table
        before = {int(s.snapshotId()) for s in self.writers.bridge.iterate(table.snapshots())}
        prepared = self.prepare(table, [Add(self.tagged(rows))])
        append = table.newAppend().stageOnly().set("wap.id", wap_id)
        for file in prepared.data:
            append.appendFile(file)
        append.commit()
        after = {int(s.snapshotId()) for s in self.writers.bridge.iterate(self.table.snapshots())}
        (staged,) = after - before
        self.staged[staged] = prepared.model_rows
        self.history[staged] = (*self.model.rows, *prepared.model_rows)
        return staged

    def publish(self, staged: int) -> None:
        """The staged rows come to main."""
        self.table.manageSnapshots().cherrypick(staged).commit()
        rows = self.staged.pop(staged)
        self.model.rows.extend(rows)
        if int(self.table.currentSnapshot().snapshotId()) == staged:
            self.forwarded[staged] = rows

    def replace_partition(self, *rows: Row) -> int:
        """As a dynamic overwrite does it: the rows of each partition that is written to go. How many."""
        table = self.table
        prepared = self.prepare(table, [Add(self.tagged(rows))])
        replace = table.newReplacePartitions()
        for file in prepared.data:
            replace.addFile(file)
        replace.commit()
        places = {(row.scope.spec_id, row.scope.partition) for row in prepared.model_rows}
        kept = [r for r in self.model.rows if (r.scope.spec_id, r.scope.partition) not in places]
        gone = len(self.model.rows) - len(kept)
        self.model.rows[:] = [*kept, *prepared.model_rows]
        return gone

    def insert(self, rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> None:
        """Rows by Spark. `kinds` are those of the columns, by name."""
        columns = [TAG, *kinds]
        tagged = self.tagged(rows)
        shown = ", ".join(
            "("
            + ", ".join([str(row[TAG]), *(sql_literal(KINDS[k], nested(row, c)) for c, k in kinds.items())])
            + ")"
            for row in tagged
        )
        names = ", ".join(f"`{c}`" for c in columns)
        self.writers.sql(f"insert into {self.name} ({names}) values {shown}")
        table = self.table
        spec = table.spec()
        ids = {path: i for path, i, _ in self.columns(table)}
        nulls = dict.fromkeys(ids.values())
        for partition, found in self.by_partition(table, spec, tagged).items():
            scope = self.scope(spec, partition)
            self.model.rows += [ModelRow({**nulls, **values_of(ids, row)}, scope) for row in found]

    def update(self, column: str, kind: str, value: Any, tags: Sequence[int]) -> None:
        """Sets a column of these rows by Spark, which writes them again in the current spec."""
        literal = sql_literal(KINDS[kind], value)
        listed = ", ".join(map(str, tags))
        self.writers.sql(f"update {self.name} set `{column}` = {literal} where {TAG} in ({listed})")
        tag, changed = self.field_id(TAG), self.field_id(column)
        self.model.rows[:] = [
            ModelRow({**row.values, changed: value}, row.scope) if row.values[tag] in tags else row
            for row in self.model.rows
        ]
        for number in tags:
            self.lineage.pop(number, None)

    def delete_positions(self, tags: Sequence[int]) -> int:
        """Deletes rows by position delete files of format v2, one for each partition; how many files."""
        listed = ", ".join(map(str, tags))
        frame = self.writers.bridge.spark.sql(
            f"select _file, _pos from {self.name} where {TAG} in ({listed})"
        )
        marked: dict[str, list[int]] = {}
        for path, position in frame.collect():
            marked.setdefault(path, []).append(int(position))
        table = self.table
        anything = self.writers.bridge.java_class("java.lang.Object")
        places: dict[tuple[int, tuple[Any, ...]], dict[str, list[int]]] = {}
        for task in self.writers.tasks(table):
            file = task.file()
            path, partition = str(file.location()), file.partition()
            if path in marked:
                values = tuple(partition.get(i, anything) for i in range(partition.size()))
                places.setdefault((int(file.specId()), values), {})[path] = marked[path]
        delta = table.newRowDelta()
        for (spec_id, values), positions in places.items():
            delta.addDeletes(
                self.writers.position_deletes(table, positions, table.specs().get(spec_id), values)
            )
        delta.commit()
        self.model.remove(self.field_id(TAG), tags)
        return len(places)

    def add_kind(self, name: str, kind: str, default: int | None) -> None:
        """A new column of a kind; the default is what rows written before read (format v3)."""
        if default is not None:
            self.add_column(name, KINDS[kind].type, default)
            return
        self.table.updateSchema().addColumn(name, self.writers.type_of(kind)).commit()

    def scope(self, spec: Any, partition: tuple[Any, ...]) -> Scope:
        """The place of a partition of a spec."""
        return Scope(int(spec.specId()), partition, bool(spec.isUnpartitioned()))

    # reading

    def columns(self, table: Any) -> list[Column]:
        return list(_columns(self.writers.fields(table.schema())))

    def check(self) -> None:
        """Not while equality deletes are live that stock readers may omit."""
        if self.is_comparable():
            super().check()

    def is_comparable(self) -> bool:
        """Whether stock readers apply all deletes of the head."""
        return self._applies_all_deletes(self.table.currentSnapshot().summary())

    def _applies_all_deletes(self, summary: Mapping[str, str]) -> bool:
        return not self.nested or summary["total-equality-deletes"] == "0"

    def follow_moved_rows(self) -> None:
        if not self.nested:
            super().follow_moved_rows()
            return
        # Spark omits some deletes too: of the rows that it shows, those of the model count.
        scopes = {}
        for path, file in self.live_files().items():
            scopes |= dict.fromkeys(self.tags_in(path), self.scope_of(file))
        self.model.move(scopes, self.field_id(TAG))

    def expected(self) -> list[Values]:
        return self.model.read(i for _, i, _ in self.columns(self.table))

    def read(self, snapshot_id: int | None = None) -> Reading:
        table, bridge, iceberg = self.table, self.writers.bridge, self.writers.iceberg
        lineage_columns = iceberg.MetadataColumns
        asked = [lineage_columns.ROW_ID, lineage_columns.LAST_UPDATED_SEQUENCE_NUMBER]
        has_lineage = int(table.operations().current().formatVersion()) > 2
        more = iceberg.Schema(bridge.list(asked if has_lineage else []))
        own = table.schema()
        if snapshot_id is not None:
            own = iceberg.util.SnapshotUtil.schemaFor(table, snapshot_id)
        schema = iceberg.types.TypeUtil.join(own, more)
        scan = iceberg.data.IcebergGenerics.read(table).project(schema)
        if snapshot_id is not None:
            scan = scan.useSnapshot(snapshot_id)
        struct = schema.asStruct()
        wrapper = iceberg.data.InternalRecordWrapper(struct)
        # A record also has columns that the reader needed for itself, behind those asked for.
        projection = iceberg.util.StructProjection.create(schema, schema)
        fields = {str(f["id"]): f for f in self.writers.fields(schema)}
        to_json = iceberg.SingleValueParser.toJson
        records = [
            dict(_by_id(json.loads(to_json(struct, projection.wrap(wrapper.wrap(record)))), fields))
            for record in bridge.iterate(scan.build())
        ]
        row_id, updated = (int(c.fieldId()) for c in asked)
        tag = self.field_id(TAG)
        lineage = {r[tag]: (r.pop(row_id, None), r.pop(updated, None)) for r in records}
        assert len(lineage) == len(records), "a tag is there twice"
        return Reading(tuple(records), lineage)

    def check_snapshot(self, snapshot_id: int, reader: str) -> None:
        """A snapshot, read as it was by its own schema, holds what it did when it was committed."""
        metadata, location = self.metadata(), self.location()
        (snapshot,) = (s for s in metadata["snapshots"] if s["snapshot-id"] == snapshot_id)
        schema_id = snapshot.get("schema-id", metadata["current-schema-id"])
        fields = _fields_of(metadata, schema_id)
        if not self._applies_all_deletes(snapshot["summary"]):
            return
        if reader == "generic":
            found = list(self.read(snapshot_id).rows)
        else:
            found = _shown(self.witness.read(reader, location, snapshot_id), fields)
        self._compare(found, fields, self.history[snapshot_id])

    def check_head(self, reader: str) -> None:
        """The current rows by a second reader and the current schema."""
        metadata = self.metadata()
        fields = _fields_of(metadata, metadata["current-schema-id"])
        self._compare(_shown(self.witness.read(reader, self.location()), fields), fields, self.model.rows)

    def _compare(
        self, found: list[Values], fields: list[Mapping[str, Any]], rows: Iterable[ModelRow]
    ) -> None:
        expected = Model(list(rows), self.model.defaults).read(i for _, i, _ in _columns(fields))
        same_rows(found, expected)

    def by_partition(self, table: Any, spec: Any, rows: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
        schema = table.schema()
        fields = []
        for f in self.writers.bridge.iterate(spec.fields()):
            kind = schema.findType(f.sourceId())
            is_date = str(kind.toString()) == "date"
            fields.append((str(schema.findColumnName(f.sourceId())), f.transform().bind(kind), is_date))
        placed: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            partition = tuple(
                transform.apply(days(row.get(column)) if is_date else row.get(column))
                for column, transform, is_date in fields
            )
            placed.setdefault(partition, []).append(row)
        return placed


def _fields_of(metadata: Mapping[str, Any], schema_id: int) -> list[Mapping[str, Any]]:
    (schema,) = (s for s in metadata["schemas"] if s["schema-id"] == schema_id)
    return schema["fields"]


def _shown(rows: Iterable[Mapping[str, Any]], fields: list[Mapping[str, Any]]) -> list[Values]:
    """Rows by name as the model shows them."""
    by_name = {f["name"]: f for f in fields}
    return [{i: v for i, v in by_field(row, by_name) if v is not None} for row in rows]


def nested(row: Row, column: str) -> Any:
    """A column's value; that of a struct from its paths."""
    if column in row:
        return row[column]
    inner = {p.removeprefix(f"{column}."): v for p, v in row.items() if p.startswith(f"{column}.")}
    return inner or None


def _columns(fields: Iterable[Mapping[str, Any]], prefix: str = "") -> Iterator[Column]:
    """The columns of a struct in Iceberg's JSON, those of structs after their struct."""
    for column in fields:
        path, kind = f"{prefix}{column['name']}", column["type"]
        yield path, int(column["id"]), kind if isinstance(kind, str) else kind["type"]
        if isinstance(kind, Mapping) and kind["type"] == "struct":
            yield from _columns(kind["fields"], f"{path}.")


def _by_id(record: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[int, Any]]:
    """Values by field id of a record in Iceberg's JSON, as the model has them."""
    for key, value in record.items():
        kind = fields[key]["type"]
        if isinstance(kind, Mapping) and kind["type"] == "struct":
            yield int(key), True
            yield from _by_id(value, {str(f["id"]): f for f in kind["fields"]})
        elif value is not None:
            yield int(key), of_json(kind, value)
