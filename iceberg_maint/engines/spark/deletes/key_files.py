"""Files whose key columns are read: the facts that decide which deletes apply to them, and their scan tasks.

A few calls make the facts and tasks of all files inside the JVM. The `# Java:` comments show the equal Java code.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.model.columns import KeyBounds
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import json_spec
from iceberg_maint.engines.spark.jvm.functions import (
    CONTENT_FILE,
    DATA_FILE,
    DELETE_FILES,
    OBJECT,
    PARTITION_SPEC,
    SEPARATOR_WITHIN,
    STRING,
    JavaFunctions,
)
from iceberg_maint.engines.spark.scan.scan import Table

_PARSER = "org.apache.iceberg.ContentFileParser"
_JACKSON = "org.apache.iceberg.shaded.com.fasterxml.jackson.databind."


POSITION_BITS = 40
"""A place is `file number << 41 | position << 1 | already deleted`."""

FILE_SHIFT = POSITION_BITS + 1


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file. `scope` is its spec and partition. `has_deletes` says whether position deletes or a deletion
    vector apply to it."""

    path: str
    sequence_number: int
    scope: str
    has_deletes: bool


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """An equality delete file.

    `scope` is None if the spec is unpartitioned: the deletes then apply in every partition. `without_null` are
    the key columns that have no NULL according to the file's metrics, `bounds` those of `key_bounds`. `as_data` is the
    content-file JSON of a data file with the same rows. It has no split offsets: Iceberg does not read what is before the
    first one, and wrong ones would leave keys unread.
    """

    path: str
    sequence_number: int
    scope: str | None
    equality_ids: tuple[int, ...]
    without_null: frozenset[int]
    bounds: KeyBounds
    as_data: str


@dataclass(frozen=True, slots=True)
class DeleteSet:
    """Delete files that one join applies. They have the same key columns, and either all or none apply everywhere."""

    equality_ids: tuple[int, ...]
    everywhere: bool
    files: tuple[DeleteFile, ...]

    @property
    def without_null(self) -> frozenset[int]:
        """The key columns in which no file has NULL."""
        return frozenset.intersection(*(f.without_null for f in self.files))


@dataclass(frozen=True, slots=True)
class Pair:
    """Delete files and the data files that they may apply to, each as (file, number, scope).

    The number of a data file is the one in its places. The number of a delete file is the first place that it does
    not apply to.
    """

    deletes: Sequence[tuple[DeleteFile, int, int]]
    data: Sequence[tuple[DataFile, int, int]]

    @property
    def has_scopes(self) -> bool:
        """Whether keys are compared only within a scope, because there are several."""
        return len({scope for _, _, scope in self.data}) > 1


class KeyFiles(JavaFunctions):
    """Reads the facts of one table's files with loops in the JVM."""

    def __init__(self, bridge: Bridge, table: Table) -> None:
        super().__init__(bridge)
        self._table = table
        self._specs = {int(i): table.java.specs()[i] for i in table.java.specs()}

    def data_files(self, tasks: Any) -> list[DataFile]:
        """The data files of a `java.util.List<FileScanTask>`."""
        files = []
        for spec_id in self._specs:
            spec_tasks = self.to_list(tasks.stream().filter(self.task_has_spec(spec_id)))
            if spec_tasks.isEmpty():
                continue
            columns = (
                self.texts(spec_tasks.stream().map(f))
                for f in (
                    self.task_location,
                    self._sequence_number(self._task_file),
                    self._partition(spec_id, self._task_file),
                    self.task_position_deletes,
                )
            )
            for path, number, partition, deletes in zip(*columns, strict=True):
                scope = f"{spec_id}:{partition}"
                files.append(DataFile(path, int(number), scope, deletes != SEPARATOR_WITHIN))
        return files

    def delete_files(self, deletes: Sequence[Any]) -> list[DeleteFile]:
        """The facts of these Java DeleteFiles, which contain equality deletes."""
        java_files, files = self.bridge.list(deletes), []
        # Java: file -> file
        file = self.invoke.MethodHandles.identity(self.class_of(CONTENT_FILE))
        for spec_id, spec in self._specs.items():
            has_spec = self.has_spec(spec_id, file)
            spec_files = self.to_list(java_files.stream().filter(self.predicate(has_spec)))
            if spec_files.isEmpty():
                continue
            columns = (
                self.texts(spec_files.stream().map(f))
                for f in (self._json(spec), self._sequence_number(file), self._partition(spec_id, file))
            )
            everywhere = bool(spec.isUnpartitioned())
            for content, number, partition in zip(*columns, strict=True):
                scope = None if everywhere else f"{spec_id}:{partition}"
                files.append(_delete_file(json.loads(content), int(number), scope))
        return files

    def data_tasks(self, tasks: Any, paths: Collection[str]) -> Any:
        """The scan tasks of these files, without their equality deletes."""
        result = self.bridge.jvm.java.util.ArrayList()
        path_tasks = self.to_list(tasks.stream().filter(self.task_location_in(paths)))
        for spec_id, spec in self._specs.items():
            spec_tasks = path_tasks.stream().filter(self.task_has_spec(spec_id))
            result.addAll(self.to_list(spec_tasks.map(self._without_equality_deletes(spec))))
        return result

    def delete_tasks(self, deletes: Iterable[DeleteFile]) -> Any:
        """Scan tasks that read the rows of delete files.

        The tasks have no partition. Iceberg's reader would replace column values of the file by partition
        values, and the file deletes by its own values.
        """
        return self.to_list(self.stream_of_texts(d.as_data for d in deletes).map(self._reading_json()))

    # functions; `file` is a handle from an element of the stream to its file

    def _sequence_number(self, file: Any) -> Any:
        # Java: element -> String.valueOf(file.apply(element).dataSequenceNumber())
        number = self.method(CONTENT_FILE, "dataSequenceNumber", "java.lang.Long")
        text = self.static_method(STRING, "valueOf", STRING, OBJECT)
        text = text.asType(self.type_of(STRING, "java.lang.Long"))
        return self.function(self.compose(file, self.compose(number, text)))

    def _partition(self, spec_id: int, file: Any) -> Any:
        """A function: the partition as JSON of its values by field id. Equal texts are equal partitions."""
        # Java: element -> SingleValueParser.toJson(spec.partitionType(), file.apply(element).partition())
        struct = "org.apache.iceberg.StructLike"
        names = (STRING, "org.apache.iceberg.types.Type", OBJECT)
        text = self.static_method("org.apache.iceberg.SingleValueParser", "toJson", *names)
        text = self.bind_arguments(text, 0, self._specs[spec_id].partitionType())
        partition = self.method(CONTENT_FILE, "partition", struct)
        text = self.compose(partition, text.asType(self.type_of(STRING, struct)))
        return self.function(self.compose(file, text))

    def _json(self, spec: Any) -> Any:
        # Java: file -> ContentFileParser.toJson(file, spec)
        to_json = self.static_method(_PARSER, "toJson", STRING, CONTENT_FILE, PARTITION_SPEC)
        return self.function(self.bind_arguments(to_json, 1, json_spec(self.bridge, spec)))

    def _without_equality_deletes(self, spec: Any) -> Any:
        """A function: a scan task as one without its equality deletes."""
        # Java: task -> newTask((DataFile) task.file(),
        #           (DeleteFile[]) task.deletes().stream().filter(isEqualityDelete.negate()).toArray(DeleteFile[]::new))
        stream, to_int = "java.util.stream.Stream", "java.util.function.IntFunction"
        make_array = self.invoke.MethodHandles.arrayConstructor(self.class_of(DELETE_FILES))
        select = self.method(stream, "filter", stream, "java.util.function.Predicate")
        select = self.bind_arguments(select, 1, self.is_equality_delete.negate())
        collect = self.method(stream, "toArray", "[Ljava.lang.Object;", to_int)
        collect = self.bind_arguments(collect, 1, self.as_interface(to_int, make_array))
        deletes = self.compose(self.compose(self._deletes_stream, select), collect)
        return self.task_with(self._table.schema_json, spec, deletes)

    def _reading_json(self) -> Any:
        """A function: the JSON of an unpartitioned data file as a scan task."""
        # Java: json -> newTask((DataFile) ContentFileParser.fromJson(mapper.readTree(json), spec), new DeleteFile[0])
        spec = self.bridge.iceberg.PartitionSpec.unpartitioned()
        mapper, node = self.bridge.iceberg.util.JsonUtil.mapper(), f"{_JACKSON}JsonNode"
        read_tree = self.bound(mapper, f"{_JACKSON}ObjectMapper", "readTree", node, STRING)
        from_json = self.static_method(_PARSER, "fromJson", CONTENT_FILE, node, PARTITION_SPEC)
        from_json = self.bind_arguments(from_json, 1, spec)
        no_deletes = self.bridge.array(self.bridge.iceberg.DeleteFile, ())
        new_task = self.bind_arguments(self.new_task(self._table.schema_json, spec), 1, no_deletes)
        file = self.compose(read_tree, from_json).asType(self.type_of(DATA_FILE, STRING))
        return self.function(self.compose(file, new_task))


def keys_without_null(content: Mapping[str, Any]) -> frozenset[int]:
    """The key columns of which an equality delete file, given as its content-file JSON, has no NULL."""
    counts = content.get("null-value-counts", {"keys": (), "values": ()})
    nulls = dict(zip(counts["keys"], counts["values"], strict=True))
    return frozenset(i for i in content["equality-ids"] if nulls.get(i) == 0)


def key_bounds(content: Mapping[str, Any]) -> KeyBounds:
    """The bounds of the key columns of an equality delete file, given as its content-file JSON."""
    none: Mapping[str, Any] = {"keys": (), "values": ()}
    lower, upper = (
        dict(zip(ends["keys"], ends["values"], strict=True))
        for ends in (content.get(f"{name}-bounds", none) for name in ("lower", "upper"))
    )
    return {i: (lower.get(i), upper.get(i)) for i in content["equality-ids"] if i in lower or i in upper}


def _delete_file(content: Mapping[str, Any], sequence_number: int, scope: str | None) -> DeleteFile:
    fields = (
        "file-path",
        "file-format",
        "file-size-in-bytes",
        "record-count",
        "key-metadata",
    )
    as_data = {
        "spec-id": 0,
        "content": "data",
        "partition": [],
        **{name: content[name] for name in fields if name in content},
    }
    return DeleteFile(
        path=content["file-path"],
        sequence_number=sequence_number,
        scope=scope,
        equality_ids=tuple(sorted(content["equality-ids"])),
        without_null=keys_without_null(content),
        bounds=key_bounds(content),
        as_data=json.dumps(as_data),
    )


def delete_sets(deletes: Sequence[DeleteFile]) -> list[DeleteSet]:
    by_keys: dict[tuple[tuple[int, ...], bool], list[DeleteFile]] = {}
    for delete in deletes:
        by_keys.setdefault((delete.equality_ids, delete.scope is None), []).append(delete)
    return [DeleteSet(ids, everywhere, tuple(files)) for (ids, everywhere), files in by_keys.items()]


def pair_of(delete_set: DeleteSet, data: Sequence[DataFile]) -> Pair | None:
    """The deletes, and the data files they may apply to by scope and sequence number; None if there are none.

    Restates `equality_delete_reaches` of `core.model.table_state` as a limit in the order of sequence numbers.
    """
    sequence_numbers = [f.sequence_number for f in data]
    scopes = {f.scope: number for number, f in enumerate(delete_set.files)}
    limits: dict[int, int] = {}
    deletes = []
    for file in delete_set.files:
        limit, scope = bisect_left(sequence_numbers, file.sequence_number), scopes[file.scope]
        limits[scope] = max(limits.get(scope, 0), limit)
        deletes.append((file, limit << FILE_SHIFT, scope))
    candidates = []
    for number, data_file in enumerate(data):
        scope_number = scopes.get(None if delete_set.everywhere else data_file.scope)
        if scope_number is not None and number < limits[scope_number]:
            candidates.append((data_file, number << FILE_SHIFT, scope_number))
    candidate_scopes = {scope for _, _, scope in candidates}
    applicable = [d for d in deletes if d[2] in candidate_scopes and d[1]]
    return Pair(applicable, candidates) if candidates else None
