"""Writers of test data straight through Iceberg's Java API, and a reader that is not Spark.

Row values are JSON's by column name, those of a struct by path (`s.x`); Java objects pass as they are
(a `java.time.LocalDate` for a date). Files are of the table's own formats, `write.format.default`
and `write.delete.format.default`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from py4j.java_gateway import JavaObject

from iceberg_maint.engines.spark.jvm.bridge import Bridge

Row = Mapping[str, Any]


class Writers:
    """Files of any partition and spec, equality and position deletes included, one commit each or none.

    Everywhere `spec` is a Java PartitionSpec (None: the table's current one) and `partition` its values in
    order (left out for an unpartitioned spec).
    """

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.iceberg = bridge.iceberg

    # tables

    def create(
        self,
        name: str,
        columns: str = "id int, v string",
        *,
        version: int = 2,
        partitioned_by: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> Any:
        """A new table `catalog.namespace.table` of this format version."""
        namespace = name.rpartition(".")[0]
        self.bridge.spark.sql(f"create namespace if not exists {namespace}")
        settings = {"format-version": str(version), **(properties or {})}
        listed = ", ".join(f"'{key}'='{value}'" for key, value in settings.items())
        by = f"partitioned by ({partitioned_by})" if partitioned_by else ""
        self.bridge.spark.sql(f"create table {name} ({columns}) using iceberg {by} tblproperties ({listed})")
        return self.load(name)

    def load(self, name: str) -> Any:
        """The Java table, fresh."""
        return self.bridge.load_table(name)

    def sql(self, statement: str) -> None:
        """Runs one statement of Spark's."""
        self.bridge.spark.sql(statement)

    # files, not committed

    def data(self, table: Any, rows: Iterable[Row], spec: Any = None, partition: Sequence[Any] = ()) -> Any:
        """A data file with these rows, as a Java DataFile."""
        spec, place = self._place(table, spec, partition)
        writer = self._factory(table).build().newDataWriter(self._output(table, spec, place), spec, place)
        for record in self._records(table.schema(), rows):
            writer.write(record)
        writer.close()
        return writer.toDataFile()

    def equality_deletes(
        self,
        table: Any,
        keys: Iterable[Row],
        spec: Any = None,
        partition: Sequence[Any] = (),
        *,
        by: Sequence[str] | None = None,
    ) -> Any:
        """A delete file for rows equal to one of `keys`; all have the same columns, a nested one by
        its path (`s.x`). Keys are the columns `by`, all of them by default; the others are only told."""
        keys = list(keys)
        spec, place = self._place(table, spec, partition)
        columns = list(keys[0])
        schema = table.schema().select(self.bridge.list(columns))
        ids = self.bridge.ints(table.schema().findField(c).fieldId() for c in by or columns)
        writer = (
            self._factory(table)
            .equalityFieldIds(ids)
            .equalityDeleteRowSchema(schema)
            .build()
            .newEqualityDeleteWriter(self._output(table, spec, place, deletes=True), spec, place)
        )
        for record in self._records(schema, keys):
            writer.write(record)
        writer.close()
        return writer.toDeleteFile()

    def position_deletes(
        self,
        table: Any,
        positions: Mapping[str, Iterable[int]],
        spec: Any = None,
        partition: Sequence[Any] = (),
    ) -> Any:
        """A v2 position delete file for these positions by data file path; of one path only it is
        scoped to that file, of several to the partition."""
        spec, place = self._place(table, spec, partition)
        writer = (
            self._factory(table)
            .build()
            .newPositionDeleteWriter(self._output(table, spec, place, deletes=True), spec, place)
        )
        for path in sorted(positions):
            for position in sorted(positions[path]):
                delete = self.iceberg.deletes.PositionDelete.create()
                delete.set(path, position)
                writer.write(delete)
        writer.close()
        return writer.toDeleteFile()

    # commits

    def append(self, table: Any, rows: Iterable[Row], spec: Any = None, partition: Sequence[Any] = ()) -> Any:
        """Writes and appends one data file; returns it."""
        file = self.data(table, rows, spec, partition)
        table.newAppend().appendFile(file).commit()
        return file

    def delete_where(
        self, table: Any, keys: Iterable[Row], spec: Any = None, partition: Sequence[Any] = ()
    ) -> Any:
        """Writes and commits one equality delete file; returns it."""
        return self.add_deletes(table, self.equality_deletes(table, keys, spec, partition))

    def delete_at(
        self,
        table: Any,
        positions: Mapping[str, Iterable[int]],
        spec: Any = None,
        partition: Sequence[Any] = (),
    ) -> Any:
        """Writes and commits one position delete file; returns it."""
        return self.add_deletes(table, self.position_deletes(table, positions, spec, partition))

    def add_deletes(self, table: Any, file: Any) -> Any:
        """Commits a delete file as a row delta; returns it."""
        table.newRowDelta().addDeletes(file).commit()
        return file

    # reading

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """All rows, sorted, read by Iceberg's generic reader: a second reader beside Spark's."""
        table = self.load(name)
        width = table.schema().columns().size()
        scan = self.iceberg.data.IcebergGenerics.read(table).build()
        rows = [tuple(r.get(i) for i in range(width)) for r in self.bridge.iterate(scan)]
        return sorted(rows, key=repr)

    def tasks(self, table: Any, snapshot_id: int | None = None) -> list[Any]:
        """The scan tasks (data files with their deletes) of a snapshot, the current one by default."""
        scan = table.newScan().ignoreResiduals()
        if snapshot_id is not None:
            scan = scan.useSnapshot(snapshot_id)
        return list(self.bridge.iterate(scan.planFiles()))

    def files(self, table: Any, snapshot_id: int | None = None) -> list[Any]:
        """The live data files of a snapshot, in order of sequence number, commit and path."""
        found = [task.file() for task in self.tasks(table, snapshot_id)]
        # In format v1 all sequence numbers are 0: the snapshots know which came first.
        commits = {
            added.location(): number
            for number, snapshot in enumerate(self.bridge.iterate(table.snapshots()))
            for added in self.bridge.iterate(snapshot.addedDataFiles(table.io()))
        }
        return sorted(
            found, key=lambda f: (f.dataSequenceNumber() or 0, commits.get(f.location(), -1), f.location())
        )

    # parts

    def spec(self, table: Any, spec_id: int) -> Any:
        """The partition spec with this id."""
        return table.specs().get(spec_id)

    def partition(self, spec: Any, values: Sequence[Any]) -> Any:
        """The partition tuple, None for a spec without fields."""
        if spec.fields().isEmpty():
            return None
        data = self.iceberg.PartitionData(spec.partitionType())
        for index, value in enumerate(values):
            data.set(index, value)
        return data

    def _place(self, table: Any, spec: Any, partition: Sequence[Any]) -> tuple[Any, Any]:
        spec = table.spec() if spec is None else spec
        return spec, self.partition(spec, partition)

    def _factory(self, table: Any) -> Any:
        return getattr(self.iceberg.data, "GenericFileWriterFactory$Builder")(table)

    def _output(self, table: Any, spec: Any, partition: Any, *, deletes: bool = False) -> Any:
        factory = self.iceberg.io.OutputFileFactory.builderFor(table, 1, uuid4().int % 2**31)
        properties = table.properties()
        name = properties.getOrDefault("write.format.default", "parquet")
        if deletes:
            name = properties.getOrDefault("write.delete.format.default", name)
        built = factory.format(self.iceberg.FileFormat.fromString(name)).defaultSpec(spec).build()
        return built.newOutputFile() if spec.isUnpartitioned() else built.newOutputFile(spec, partition)

    def _records(self, schema: Any, rows: Iterable[Row]) -> list[Any]:
        """Generic records by Iceberg's own JSON of values: every number has its column's type. (py4j
        sends an int below 2^31 as an Integer, which the writers refuse for a `bigint` column.)"""
        struct = schema.asStruct()
        records = []
        for row in rows:
            named: dict[str, Any] = {}
            for path, value in row.items():
                if not isinstance(value, JavaObject):
                    _by_id(schema, path, value, named)
            record = self.iceberg.SingleValueParser.fromJson(struct, json.dumps(named))
            for path, value in row.items():
                if isinstance(value, JavaObject):
                    record.setField(path, value)
            records.append(record)
        return records


def _by_id(schema: Any, path: str, value: Any, into: dict[str, Any]) -> None:
    """Puts the value of a column path (`s.x`) into JSON by field ids; NULL is left out, the struct
    around it is not."""
    parts = path.split(".")
    for depth in range(1, len(parts)):
        into = into.setdefault(str(schema.findField(".".join(parts[:depth])).fieldId()), {})
    if value is not None:
        into[str(schema.findField(path).fieldId())] = value
