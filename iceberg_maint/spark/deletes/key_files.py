"""Files whose key columns are read: what decides which deletes apply to them, and their scan tasks.

Facts and tasks of all files are made inside the JVM, in a handful of calls.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.content_files import json_spec
from iceberg_maint.spark.jvm.functions import SEPARATOR_WITHIN, JavaFunctions
from iceberg_maint.spark.jvm.texts import texts_of
from iceberg_maint.spark.scan.table import Table

_FUNCTION = "java.util.function.Function"
_TASK = "org.apache.iceberg.FileScanTask"
_FILE = "org.apache.iceberg.ContentFile"
_DATA_FILE = "org.apache.iceberg.DataFile"
_BASE_TASK = "org.apache.iceberg.BaseFileScanTask"
_JACKSON = "org.apache.iceberg.shaded.com.fasterxml.jackson.databind."


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file: `scope` is its spec and partition, `has_deletes` whether the reader deletes
    rows of it by position deletes or a deletion vector."""

    path: str
    sequence_number: int
    scope: str
    has_deletes: bool


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """An equality delete file. `scope` is None when it applies everywhere, being of an
    unpartitioned spec; `without_null` are the key columns of which it says that no key has NULL
    there. `as_data` is the file as JSON of a data file with the same rows.
    """

    path: str
    sequence_number: int
    scope: str | None
    equality_ids: tuple[int, ...]
    without_null: frozenset[int]
    as_data: str


class KeyFiles(JavaFunctions):
    """Files of one table by the JVM's own loops."""

    def __init__(self, bridge: Bridge, table: Table) -> None:
        super().__init__(bridge)
        self._table = table
        self._specs = {int(i): table.java.specs()[i] for i in table.java.specs()}

    def data_files(self, tasks: Any) -> list[DataFile]:
        """The data files of a `java.util.List<FileScanTask>`."""
        found = []
        for spec_id in self._specs:
            own = self.to_list(tasks.stream().filter(self._of_spec(spec_id, self._task_file)))
            if own.isEmpty():
                continue
            columns = (
                self.texts(own.stream().map(f))
                for f in (
                    self.task_location,
                    self._sequence_number(self._task_file),
                    self._partition(spec_id, self._task_file),
                    self.task_position_deletes,
                )
            )
            for path, number, partition, deletes in zip(*columns, strict=True):
                scope = f"{spec_id}:{partition}"
                found.append(DataFile(path, int(number), scope, deletes != SEPARATOR_WITHIN))
        return found

    def delete_files(self, deletes: Sequence[Any]) -> list[DeleteFile]:
        """These Java DeleteFiles, of equality deletes."""
        whole, found = self.bridge.list(deletes), []
        file = self._identity(_FILE)
        for spec_id, spec in self._specs.items():
            own = self.to_list(whole.stream().filter(self._of_spec(spec_id, file)))
            if own.isEmpty():
                continue
            columns = (
                self.texts(own.stream().map(f))
                for f in (self._json(spec), self._sequence_number(file), self._partition(spec_id, file))
            )
            everywhere = bool(spec.isUnpartitioned())
            for content, number, partition in zip(*columns, strict=True):
                scope = None if everywhere else f"{spec_id}:{partition}"
                found.append(_delete_file(json.loads(content), int(number), scope))
        return found

    def data_tasks(self, tasks: Any, paths: Collection[str]) -> Any:
        """Of these scan tasks those of these files, without their equality deletes."""
        result = self.bridge.jvm.java.util.ArrayList()
        own = self.to_list(tasks.stream().filter(self.task_location_in(paths)))
        for spec_id, spec in self._specs.items():
            of_spec = own.stream().filter(self._of_spec(spec_id, self._task_file))
            result.addAll(self.to_list(of_spec.map(self._without_equality_deletes(spec))))
        return result

    def delete_tasks(self, deletes: Iterable[DeleteFile]) -> Any:
        """Scan tasks that read the rows of delete files. Of no partition: what Iceberg's reader
        takes from that in place of the file's own values is not what the file deletes.
        """
        return self.to_list(texts_of(self.bridge, (d.as_data for d in deletes)).map(self._reading_json()))

    # functions; `file` is a handle that gives the file of what a stream holds

    def _identity(self, kind: str) -> Any:
        return self.invoke.MethodHandles.identity(self.class_of(kind))

    def _of_spec(self, spec_id: int, file: Any) -> Any:
        spec = self.getter(_FILE, "specId", "int")
        equals = self.bound(spec_id, "java.lang.Integer", "equals", "boolean", "java.lang.Object")
        same = self.then(spec, equals.asType(self.type_of("boolean", "int")))
        return self.as_interface("java.util.function.Predicate", self.then(file, same))

    def _sequence_number(self, file: Any) -> Any:
        number = self.getter(_FILE, "dataSequenceNumber", "java.lang.Long")
        text = self._static("java.lang.String", "valueOf", "java.lang.String", "java.lang.Object")
        text = text.asType(self.type_of("java.lang.String", "java.lang.Long"))
        return self.as_interface(_FUNCTION, self.then(file, self.then(number, text)))

    def _partition(self, spec_id: int, file: Any) -> Any:
        """The partition as JSON of its values by field id: equal texts are equal partitions."""
        struct = "org.apache.iceberg.StructLike"
        names = ("java.lang.String", "org.apache.iceberg.types.Type", "java.lang.Object")
        text = self._static("org.apache.iceberg.SingleValueParser", "toJson", *names)
        text = self.given(text, 0, self._specs[spec_id].partitionType())
        text = text.asType(self.type_of("java.lang.String", struct))
        return self.as_interface(
            _FUNCTION, self.then(file, self.then(self.getter(_FILE, "partition", struct), text))
        )

    def _json(self, spec: Any) -> Any:
        names = ("java.lang.String", _FILE, "org.apache.iceberg.PartitionSpec")
        return self.as_interface(
            _FUNCTION,
            self.given(
                self._static("org.apache.iceberg.ContentFileParser", "toJson", *names),
                1,
                json_spec(self.bridge, spec),
            ),
        )

    def _without_equality_deletes(self, spec: Any) -> Any:
        stream, array = "java.util.stream.Stream", "[Lorg.apache.iceberg.DeleteFile;"
        make_array = self.invoke.MethodHandles.arrayConstructor(self.class_of(array))
        steps = (
            ("filter", stream, "Predicate", self.is_equality_delete.negate()),
            (
                "toArray",
                "[Ljava.lang.Object;",
                "IntFunction",
                self.as_interface("java.util.function.IntFunction", make_array),
            ),
        )
        deletes = self._deletes_stream
        for method, result, parameter, argument in steps:
            kind = self.type_of(result, f"java.util.function.{parameter}")
            step = self.lookup.findVirtual(self.class_of(stream), method, kind)
            deletes = self.then(deletes, self.given(step, 1, argument))
        parts = (
            self._task_file.asType(self.type_of(_DATA_FILE, _TASK)),
            deletes.asType(self.type_of(array, _TASK)),
        )
        handles = self.invoke.MethodHandles
        of_two = handles.filterArguments(
            self._task_maker(spec), 0, self.bridge.array(self.invoke.MethodHandle, parts)
        )
        both = handles.permuteArguments(of_two, self.type_of(_BASE_TASK, _TASK), self.bridge.ints((0, 0)))
        return self.as_interface(_FUNCTION, both)

    def _reading_json(self) -> Any:
        """A function: a data file in JSON, of no partition, as a scan task."""
        spec = self.bridge.iceberg.PartitionSpec.unpartitioned()
        mapper, node = self.bridge.iceberg.util.JsonUtil.mapper(), f"{_JACKSON}JsonNode"
        reading = self.bound(mapper, f"{_JACKSON}ObjectMapper", "readTree", node, "java.lang.String")
        names = (_FILE, node, "org.apache.iceberg.PartitionSpec")
        parsing = self.given(
            self._static("org.apache.iceberg.ContentFileParser", "fromJson", *names), 1, spec
        )
        no_deletes = self.bridge.array(self.bridge.iceberg.DeleteFile, ())
        making = self.given(self._task_maker(spec), 1, no_deletes)
        file = self.then(reading, parsing).asType(self.type_of(_DATA_FILE, "java.lang.String"))
        return self.as_interface(_FUNCTION, self.then(file, making))

    def _task_maker(self, spec: Any) -> Any:
        """A handle: a data file and its delete files as a scan task."""
        iceberg = self.bridge.iceberg
        names = (
            _DATA_FILE,
            "[Lorg.apache.iceberg.DeleteFile;",
            "java.lang.String",
            "java.lang.String",
            "org.apache.iceberg.expressions.ResidualEvaluator",
        )
        maker = self.lookup.findConstructor(self.class_of(_BASE_TASK), self.type_of("void", *names))
        everything = iceberg.expressions.ResidualEvaluator.unpartitioned(
            iceberg.expressions.Expressions.alwaysTrue()
        )
        rest = (self._table.schema_json, iceberg.PartitionSpecParser.toJson(spec), everything)
        return self.invoke.MethodHandles.insertArguments(
            maker, 2, self.bridge.array(self.bridge.jvm.java.lang.Object, rest)
        )

    def _static(self, owner: str, method: str, result: str, *arguments: str) -> Any:
        return self.lookup.findStatic(self.class_of(owner), method, self.type_of(result, *arguments))


def _delete_file(content: Mapping[str, Any], sequence_number: int, scope: str | None) -> DeleteFile:
    kept = ("file-path", "file-format", "file-size-in-bytes", "record-count", "key-metadata", "split-offsets")
    as_data = {
        "spec-id": 0,
        "content": "data",
        "partition": [],
        **{k: content[k] for k in kept if k in content},
    }
    counts = content.get("null-value-counts", {"keys": (), "values": ()})
    nulls = dict(zip(counts["keys"], counts["values"], strict=True))
    ids = tuple(sorted(content["equality-ids"]))
    return DeleteFile(
        path=content["file-path"],
        sequence_number=sequence_number,
        scope=scope,
        equality_ids=ids,
        without_null=frozenset(i for i in ids if nulls.get(i) == 0),
        as_data=json.dumps(as_data),
    )
