"""Decodes rows of Parquet files by Iceberg's own reader, in the JVM of the driver and without a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.jvm.local_frame import LINEAGE

_RECORD = "org.apache.iceberg.data.Record"
_NAME_MAPPING = "schema.name-mapping.default"


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file, in which whole row groups lie."""

    start: int
    length: int


class IcebergReader:
    """Reads columns of a table's files. A row is a Java `Record`: its position in the file, then the columns."""

    def __init__(self, bridge: Bridge, java_table: Any, field_ids: Sequence[int]) -> None:
        """`field_ids` are those of top-level columns and of lineage columns."""
        self._bridge, self._io = bridge, java_table.io()
        self._functions = bridge.once(_ReaderFunctions)
        metadata, schema = bridge.iceberg.MetadataColumns, java_table.schema()
        lineage = dict(zip(LINEAGE.values(), ("ROW_ID", "LAST_UPDATED_SEQUENCE_NUMBER"), strict=True))
        columns = (getattr(metadata, lineage[i]) if i in lineage else schema.findField(i) for i in field_ids)
        self._projection = bridge.iceberg.Schema(bridge.list((metadata.ROW_POSITION, *columns)))
        mapping = java_table.properties().get(_NAME_MAPPING)
        self._mapping = mapping and bridge.iceberg.mapping.NameMappingParser.fromJson(mapping)

    def rows(
        self,
        location: str,
        size_bytes: int,
        constants: Any,
        most: int,
        *,
        span: Span | None = None,
        deleted: Any = None,
        skipped: int = 0,
    ) -> Any:
        """Returns up to `most` live rows of a file as a `java.util.List`. `constants` is a Java map of values by field id
        that Iceberg takes from metadata. `deleted` is a Java `PositionDeleteIndex`. The first `skipped` live rows are
        left out. Raises what Java raises if the file cannot be read."""
        file = self._io.newInputFile(location, size_bytes)
        builder = self._bridge.iceberg.parquet.Parquet.read(file).project(self._projection)
        builder = builder.createReaderFunc(self._functions.making_reader(constants))
        if self._mapping is not None:
            builder = builder.withNameMapping(self._mapping)
        if span is not None:
            builder = builder.split(span.start, span.length)
        with closing(builder.build()) as records:
            stream = self._functions.stream(records)
            if deleted is not None:
                stream = stream.filter(self._functions.is_deleted(deleted).negate())
            return self._functions.to_list(stream.skip(skipped).limit(most))

    def forget_positions(self, rows: Any) -> None:
        """Removes the positions from rows, which are then equal if their columns are."""
        rows.forEach(self._functions.forget_position)

    def deleted_positions(self, delete_files: Any, location: str) -> Any:
        """The positions of a data file that Java `DeleteFile`s delete, as a `PositionDeleteIndex`."""
        opening = self._functions.opening_deletes(self._io)
        return self._bridge.iceberg.data.BaseDeleteLoader(opening).loadPositionDeletes(delete_files, location)


class _ReaderFunctions(JavaFunctions):
    """Functions over records."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        # Java: record -> record.set(0, null)
        clear = self.method("org.apache.iceberg.StructLike", "set", "void", "int", "java.lang.Object")
        self.forget_position = self.as_interface(
            "java.util.function.Consumer", self.bind_arguments(clear, 1, 0, None)
        )

    def making_reader(self, constants: Any) -> Any:
        """A function of the projection and a file's schema: the reader of values in Iceberg's internal form."""
        # Java: (schema, fileSchema) -> InternalReader.create(schema, fileSchema, constants)
        create = self.static_method(
            "org.apache.iceberg.data.parquet.InternalReader",
            "create",
            "org.apache.iceberg.parquet.ParquetValueReader",
            "org.apache.iceberg.Schema",
            "org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType",
            "java.util.Map",
        )
        return self.as_interface("java.util.function.BiFunction", self.bind_argument(create, 2, constants))

    def is_deleted(self, index: Any) -> Any:
        """A predicate: whether the position of a record is in the index."""
        # Java: record -> index.isDeleted((long) record.get(0))
        position = self.bind_argument(self.method(_RECORD, "get", "java.lang.Object", "int"), 1, 0)
        owner = "org.apache.iceberg.deletes.PositionDeleteIndex"
        found = self.bound(index, owner, "isDeleted", "boolean", "long")
        found = found.asType(self.type_of("boolean", "java.lang.Object"))
        return self.as_interface("java.util.function.Predicate", self.compose(position, found))
