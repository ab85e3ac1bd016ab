"""Adds the equality deletes to scan tasks that Iceberg's scan omits.

Iceberg omits an equality delete from a task if its column statistics and those of the data file share no key
(`DeleteFileIndex.canContainEqDeletesForFile`). Several of its rules are wrong (docs/design/decisions/deletes-scope.md): UUIDs compare as
two signed numbers, a required field of an optional struct counts as a field without NULL, and column bounds
can contradict a partition value. This module asks the same index without the statistics of equality deletes.
Then only scope and sequence number decide.
"""

from __future__ import annotations

from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.scan.delete_files import live_delete_files

_INDEX = "org.apache.iceberg.DeleteFileIndex"
_BUILDER = "org.apache.iceberg.DeleteFileIndex$Builder"
_DATA_FILE = "org.apache.iceberg.DataFile"
_DELETE_FILES = "[Lorg.apache.iceberg.DeleteFile;"
_TASK = "org.apache.iceberg.FileScanTask"


def with_all_equality_deletes(bridge: Bridge, table: Any, snapshot_id: int, tasks: Any) -> Any:
    """The tasks of a snapshot (a Java list), each with every equality delete that applies to it by scope and
    sequence number. The result has another order if a task changes."""
    functions = bridge.once(_IndexFunctions)
    equality_deletes = functions.equality_deletes(table, snapshot_id)
    if equality_deletes.isEmpty() or tasks.isEmpty():
        return tasks
    others = tasks.stream().flatMap(functions.task_deletes).filter(functions.is_equality_delete.negate())
    equality_deletes.addAll(functions.to_list(others.distinct()))
    deletes_of = functions.deletes_of_task(table, equality_deletes)
    counts = functions.texts(tasks.stream().map(functions.task_delete_count))
    all_counts = functions.texts(tasks.stream().map(functions.length_of(deletes_of)))
    if counts == all_counts:
        return tasks
    locations = functions.texts(tasks.stream().map(functions.task_location))
    triples = zip(locations, counts, all_counts, strict=True)
    is_incomplete = functions.task_location_in({path for path, count, every in triples if count != every})
    completed = functions.to_list(tasks.stream().filter(is_incomplete.negate()))
    incomplete = functions.to_list(tasks.stream().filter(is_incomplete))
    schema_json = str(bridge.iceberg.SchemaParser.toJson(table.schema()))
    for spec_id in table.specs():
        spec_tasks = incomplete.stream().filter(functions.task_has_spec(int(spec_id)))
        new_task = functions.task_with(schema_json, table.specs()[spec_id], deletes_of)
        completed.addAll(functions.to_list(spec_tasks.map(new_task)))
    return completed


class _IndexFunctions(JavaFunctions):
    """Functions of Iceberg's index of delete files. The index is not public, so its methods are made accessible
    by reflection."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        # Java: file -> file.copyWithoutStats()
        copy = self.getter("org.apache.iceberg.ContentFile", "copyWithoutStats", "java.lang.Object")
        self._without_stats = self.as_interface("java.util.function.Function", copy)
        # Java: task -> String.valueOf(task.deletes().size())
        deletes = self.getter(_TASK, "deletes", "java.util.List")
        size = self.compose(deletes, self.getter("java.util.List", "size", "int"))
        self._int_text = self.lookup.findStatic(
            self.class_of("java.lang.Integer"), "toString", self.type_of("java.lang.String", "int")
        )
        self.task_delete_count = self.as_interface(
            "java.util.function.Function", self.compose(size, self._int_text)
        )

    def equality_deletes(self, table: Any, snapshot_id: int) -> Any:
        """The live equality deletes of a snapshot without column statistics, as a Java list."""
        manifests = self.bridge.list(table.snapshot(snapshot_id).deleteManifests(table.io()))
        with live_delete_files(self.bridge, table, manifests) as files:
            return self.to_list(files.filter(self.is_equality_delete).map(self._without_stats))

    def deletes_of_task(self, table: Any, delete_files: Any) -> Any:
        """A handle: the delete files among these that apply to a task's data file, as an array."""
        # Java: index = DeleteFileIndex.builderFor(deleteFiles).specsById(specs).schemasById(schemas).build()
        builder = self._method(_INDEX, "builderFor", "java.lang.Iterable").invoke(
            None, self._objects(delete_files)
        )
        for name, value in (("specsById", table.specs()), ("schemasById", table.schemas())):
            self._method(_BUILDER, name, "java.util.Map").invoke(builder, self._objects(value))
        index = self._method(_BUILDER, "build").invoke(builder, self._objects())
        # Java: task -> index.forDataFile((DataFile) task.file())
        find = self.lookup.unreflect(self._method(_INDEX, "forDataFile", _DATA_FILE)).bindTo(index)
        return self.compose(self._task_file.asType(self.type_of(_DATA_FILE, _TASK)), find)

    def length_of(self, deletes_of: Any) -> Any:
        """A function: the number of delete files that `deletes_of` returns, as text."""
        # Java: task -> Integer.toString(deletesOf(task).length)
        length = self.invoke.MethodHandles.arrayLength(self.class_of(_DELETE_FILES))
        handle = self.compose(self.compose(deletes_of, length), self._int_text)
        return self.as_interface("java.util.function.Function", handle)

    def _method(self, owner: str, name: str, *arguments: str) -> Any:
        classes = self.bridge.array(self.bridge.jvm.java.lang.Class, map(self.class_of, arguments))
        method = self.class_of(owner).getDeclaredMethod(name, classes)
        method.setAccessible(True)
        return method

    def _objects(self, *values: Any) -> Any:
        return self.bridge.array(self.bridge.jvm.java.lang.Object, values)
