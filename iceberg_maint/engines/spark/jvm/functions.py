"""Java functions composed of method handles, so that loops over files run inside the JVM.

A call per file from Python costs about as much as Iceberg spends to plan the file. A Java stream
that applies Java functions makes no calls from Python. The `# Java:` comments show the equal Java code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.method_handles import OBJECT, STRING, MethodHandles

SEPARATOR = "\0"
"""Separates the texts of a list that crosses as one text. No path contains it."""
SEPARATOR_WITHIN = "\1"
"""Precedes each part of one such text."""

CONTENT_FILE = "org.apache.iceberg.ContentFile"
DATA_FILE = "org.apache.iceberg.DataFile"
DELETE_FILE = "org.apache.iceberg.DeleteFile"
DELETE_FILES = "[Lorg.apache.iceberg.DeleteFile;"
MANIFEST = "org.apache.iceberg.ManifestFile"
PARTITION_SPEC = "org.apache.iceberg.PartitionSpec"
TASK = "org.apache.iceberg.FileScanTask"
LIST = "java.util.List"
_STREAM = "java.util.stream.Stream"
_PREDICATE = "java.util.function.Predicate"


class JavaFunctions(MethodHandles):
    """Functions over Iceberg's scan tasks and files."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        # Java: file -> file.location()
        self._location = self.method(CONTENT_FILE, "location", STRING)
        # Java: task -> task.file()  (`ContentScanTask` declares it; its erased result is ContentFile)
        task_file = self.method("org.apache.iceberg.ContentScanTask", "file", CONTENT_FILE)
        self._task_file = task_file.asType(self.type_of(CONTENT_FILE, TASK))
        # Java: task -> task.file().location()
        self._task_location = self.compose(self._task_file, self._location)
        # Java: task -> task.deletes().isEmpty()
        self._deletes = deletes = self.method(TASK, "deletes", LIST)
        no_deletes = self.compose(deletes, self.method(LIST, "isEmpty", "boolean"))
        # Java: task -> task.deletes().stream()
        collection = "java.util.Collection"
        of_collection = self.method(collection, "stream", _STREAM)
        self._deletes_stream = self.compose(deletes.asType(self.type_of(collection, TASK)), of_collection)
        # Java: file -> FileContent.EQUALITY_DELETES.equals(file.content())
        content_class = "org.apache.iceberg.FileContent"
        content = self.method(CONTENT_FILE, "content", content_class)
        equality_deletes = self.bridge.iceberg.FileContent.EQUALITY_DELETES
        equals = self.bound(equality_deletes, OBJECT, "equals", "boolean", OBJECT)
        is_equality = self.compose(content, equals.asType(self.type_of("boolean", content_class)))
        # Java: deleteFile -> String.valueOf(deleteFile.contentOffset())
        offset = self.method(DELETE_FILE, "contentOffset", "java.lang.Long")
        text_of = self.static_method(STRING, "valueOf", STRING, OBJECT)
        offset_text = self.compose(offset, text_of.asType(self.type_of(STRING, "java.lang.Long")))
        self.is_equality_delete = self.predicate(is_equality)
        self.location = self.function(self._location)
        self.content_offset = self.function(offset_text)
        self.task_location = self.function(self._task_location)
        self.task_file = self.function(self._task_file)
        self.task_deletes = self.function(self._deletes_stream)
        self.has_no_deletes = self.predicate(no_deletes)

    def function(self, handle: Any) -> Any:
        """The handle as a Java `Function`."""
        return self.as_interface("java.util.function.Function", handle)

    def predicate(self, handle: Any) -> Any:
        """The handle as a Java `Predicate`."""
        return self.as_interface(_PREDICATE, handle)

    @property
    def has_no_split_offsets(self) -> Any:
        """A predicate: whether metadata have no split offsets of the task's data file."""
        # Java: task -> Objects.isNull(task.file().splitOffsets())
        offsets = self.getter("org.apache.iceberg.ContentFile", "splitOffsets", "java.util.List")
        is_null = self.static_method("java.util.Objects", "isNull", "boolean", "java.lang.Object")
        is_null = is_null.asType(self.type_of("boolean", "java.util.List"))
        handle = self.compose(self._task_file, self.compose(offsets, is_null))
        return self.as_interface("java.util.function.Predicate", handle)

    def for_each(self, items: Any, receiver: Any, owner: str, method: str, argument: str) -> None:
        """Calls a method of `receiver`, as `owner` declares it, with each element of a Java list. The method returns
        an `owner`."""
        # Java: items.forEach(item -> receiver.method(item))
        handle = self.bound(receiver, owner, method, owner, argument)
        handle = handle.asType(self.type_of("void", OBJECT))
        items.forEach(self.as_interface("java.util.function.Consumer", handle))

    def task_location_in(self, paths: Collection[str]) -> Any:
        """A predicate: whether the task's data file is one of these."""
        # Java: task -> paths.contains(task.file().location())
        return self.predicate(self.compose(self._task_location, self.contains(paths)))

    def location_in(self, paths: Collection[str]) -> Any:
        """A predicate: whether the file is one of these."""
        # Java: file -> paths.contains(file.location())
        return self.predicate(self.compose(self._location, self.contains(paths)))

    def equality_delete_paths(self, tasks: Any) -> set[str]:
        """Paths of all equality deletes that apply to any of these tasks (a `java.util.List`)."""
        deletes = tasks.stream().flatMap(self.task_deletes).filter(self.is_equality_delete)
        return set(self.texts(deletes.map(self.location).distinct()))

    @property
    def has_equality_deletes(self) -> Any:
        """A predicate: whether an equality delete applies to the task's data file."""
        # Java: task -> task.deletes().stream().anyMatch(isEqualityDelete)
        any_match = self.method(_STREAM, "anyMatch", "boolean", _PREDICATE)
        any_match = self.bind_arguments(any_match, 1, self.is_equality_delete)
        return self.predicate(self.compose(self._deletes_stream, any_match))

    def task_has_spec(self, spec_id: int) -> Any:
        """A predicate: whether the task's data file has this partition spec."""
        return self.predicate(self.has_spec(spec_id, self._task_file))

    def has_spec(self, spec_id: int, file: Any) -> Any:
        """A handle: whether the file that the handle `file` returns has this partition spec."""
        # Java: element -> Integer.valueOf(specId).equals(file.apply(element).specId())
        spec = self.method(CONTENT_FILE, "specId", "int")
        equals = self.bound(spec_id, "java.lang.Integer", "equals", "boolean", OBJECT)
        return self.compose(file, self.compose(spec, equals.asType(self.type_of("boolean", "int"))))

    def new_task(self, schema_json: str, spec: Any) -> Any:
        """A handle: a data file and its delete files as a scan task."""
        # Java: (file, deletes) -> new BaseFileScanTask(file, deletes, schemaJson, specJson, residuals)
        evaluator = "org.apache.iceberg.expressions.ResidualEvaluator"
        names = (DATA_FILE, DELETE_FILES, STRING, STRING, evaluator)
        task = self.class_of("org.apache.iceberg.BaseFileScanTask")
        maker = self.lookup.findConstructor(task, self.type_of("void", *names))
        spec_json = self.bridge.iceberg.PartitionSpecParser.toJson(spec)
        return self.bind_arguments(maker, 2, schema_json, spec_json, self.bridge.all_rows())

    def task_with(self, schema_json: str, spec: Any, deletes: Any) -> Any:
        """A function: the task with the array of delete files that the handle `deletes` returns for it."""
        # Java: task -> newTask((DataFile) task.file(), (DeleteFile[]) deletes(task))
        file = self._task_file.asType(self.type_of(DATA_FILE, TASK))
        deletes = deletes.asType(self.type_of(DELETE_FILES, TASK))
        new_task = self.new_task(schema_json, spec)
        return self.function(
            self.of_one(new_task, "org.apache.iceberg.BaseFileScanTask", TASK, file, deletes)
        )

    @property
    def task_equality_delete_count(self) -> Any:
        """A function: the number of equality deletes that apply to the task's data file, as text."""
        # Java: task -> Long.toString(task.deletes().stream().filter(isEqualityDelete).count())
        select = self.method(_STREAM, "filter", _STREAM, _PREDICATE)
        select = self.bind_arguments(select, 1, self.is_equality_delete)
        text = self.static_method("java.lang.Long", "toString", STRING, "long")
        count = self.compose(select, self.compose(self.method(_STREAM, "count", "long"), text))
        return self.function(self.compose(self._deletes_stream, count))

    @property
    def task_position_deletes(self) -> Any:
        """A function: the paths of the task's position deletes and deletion vectors, each after a
        `SEPARATOR_WITHIN`. If there are none, the result is one `SEPARATOR_WITHIN`."""
        collectors = self.bridge.jvm.java.util.stream.Collectors
        joining = collectors.joining(SEPARATOR_WITHIN, SEPARATOR_WITHIN, "")
        steps = (
            ("filter", _STREAM, _PREDICATE, self.is_equality_delete.negate()),
            ("map", _STREAM, "java.util.function.Function", self.location),
            ("collect", OBJECT, "java.util.stream.Collector", joining),
        )
        # Java: task -> task.deletes().stream().filter(isEqualityDelete.negate())
        #           .map(file -> file.location()).collect(Collectors.joining("\1", "\1", ""))
        handle = self._deletes_stream
        for method, result, parameter, argument in steps:
            step = self.method(_STREAM, method, result, parameter)
            handle = self.compose(handle, self.bind_arguments(step, 1, argument))
        return self.function(handle)

    def opening_deletes(self, io: Any) -> Any:
        """A function: the input file that reads a delete file."""
        # Java: deleteFile -> io.newInputFile(deleteFile)
        names = ("org.apache.iceberg.io.InputFile", DELETE_FILE)
        return self.function(self.bound(io, "org.apache.iceberg.io.FileIO", "newInputFile", *names))

    def picked(self, items: Any, positions: Sequence[Sequence[int]]) -> list[Any]:
        """The elements of a Java list at these positions, as a `java.util.List` for each sequence. The positions of a
        list cross as one text."""
        # Java: text -> items.get(Integer.parseInt(text))
        parse = self.static_method("java.lang.Integer", "parseInt", "int", STRING)
        element_at = self.function(self.compose(parse, self.bound(items, LIST, "get", OBJECT, "int")))
        return [
            self.to_list(self.stream_of_texts(map(str, some)).map(element_at))
            if some
            else self.bridge.list(())
            for some in positions
        ]

    def stream(self, iterable: Any) -> Any:
        """A sequential stream over a Java `Iterable`."""
        util = self.bridge.jvm.java.util
        # py4j does not find default methods of a class that is not public, for example `spliterator`.
        spliterator = util.Spliterators.spliteratorUnknownSize(iterable.iterator(), 0)
        return util.stream.StreamSupport.stream(spliterator, False)

    def stream_of_texts(self, texts: Iterable[str]) -> Any:
        """A Java stream of these strings, at least one. They cross as one text."""
        pattern = self.bridge.jvm.java.util.regex.Pattern.compile(SEPARATOR)
        return pattern.splitAsStream(SEPARATOR.join(texts))

    def to_list(self, stream: Any) -> Any:
        """The stream's elements as a `java.util.List`."""
        return stream.collect(self.bridge.jvm.java.util.stream.Collectors.toList())

    def texts(self, stream: Any) -> list[str]:
        """The strings of a stream. They cross as one text."""
        joining = self.bridge.jvm.java.util.stream.Collectors.joining(SEPARATOR)
        text = str(stream.collect(joining))
        return text.split(SEPARATOR) if text else []

    def contains(self, texts: Collection[str]) -> Any:
        """A handle: whether a string is one of these."""
        # Java: text -> texts.contains(text), with the set built once, here.
        text_set = self.stream_of_texts(texts).collect(self.bridge.jvm.java.util.stream.Collectors.toSet())
        contains = self.bound(text_set, "java.util.Set", "contains", "boolean", OBJECT)
        return contains.asType(self.type_of("boolean", STRING))
