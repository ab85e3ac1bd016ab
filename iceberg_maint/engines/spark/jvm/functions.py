"""Java functions composed of method handles, so that loops over files run inside the JVM.

A call per file from Python costs about as much as Iceberg spends to plan the file. A Java stream
that applies Java functions makes no calls from Python. The `# Java:` comments show the equal Java code.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.method_handles import MethodHandles

SEPARATOR = "\0"
"""Separates the texts of a list that crosses as one text. No path contains it."""
SEPARATOR_WITHIN = "\1"
"""Precedes each part of one such text."""


class JavaFunctions(MethodHandles):
    """Functions over Iceberg's scan tasks and files."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        task, file = "org.apache.iceberg.FileScanTask", "org.apache.iceberg.ContentFile"
        function, predicate = "java.util.function.Function", "java.util.function.Predicate"
        # Java: file -> file.location()
        self._location = self.getter(file, "location", "java.lang.String")
        # Java: task -> task.file()  (`ContentScanTask` declares it; its erased result is ContentFile)
        task_file = self.getter("org.apache.iceberg.ContentScanTask", "file", file)
        self._task_file = task_file.asType(self.type_of(file, task))
        # Java: task -> task.file().location()
        self._task_location = self.compose(self._task_file, self._location)
        # Java: task -> task.deletes().isEmpty()
        deletes = self.getter(task, "deletes", "java.util.List")
        self._no_deletes = self.compose(deletes, self.getter("java.util.List", "isEmpty", "boolean"))
        # Java: task -> task.deletes().stream()
        self._deletes_stream = self.compose(
            deletes.asType(self.type_of("java.util.Collection", task)),
            self.getter("java.util.Collection", "stream", "java.util.stream.Stream"),
        )
        # Java: file -> FileContent.EQUALITY_DELETES.equals(file.content())
        content = self.getter(file, "content", "org.apache.iceberg.FileContent")
        equality_deletes = self.bridge.iceberg.FileContent.EQUALITY_DELETES
        equals = self.bound(equality_deletes, "java.lang.Object", "equals", "boolean", "java.lang.Object")
        is_equality_delete = self.compose(
            content, equals.asType(self.type_of("boolean", "org.apache.iceberg.FileContent"))
        )
        # Java: task -> UUID.nameUUIDFromBytes(task.deletes().toString().getBytes()).toString()
        deletes_digest = self.compose(deletes, self._digest_of("java.util.List"))
        self.is_equality_delete = self.as_interface(predicate, is_equality_delete)
        self.task_deletes_digest = self.as_interface(function, deletes_digest)
        self.location = self.as_interface(function, self._location)
        # Java: deleteFile -> String.valueOf(deleteFile.contentOffset())
        text_of = self.lookup.findStatic(
            self.class_of("java.lang.String"), "valueOf", self.type_of("java.lang.String", "java.lang.Object")
        )
        offset = self.getter("org.apache.iceberg.DeleteFile", "contentOffset", "java.lang.Long")
        offset_text = self.compose(offset, text_of.asType(self.type_of("java.lang.String", "java.lang.Long")))
        self.content_offset = self.as_interface(function, offset_text)
        self.task_location = self.as_interface(function, self._task_location)
        self.task_file = self.as_interface(function, self._task_file)
        self.task_deletes = self.as_interface(function, self._deletes_stream)
        self.has_no_deletes = self.as_interface(predicate, self._no_deletes)

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
        handle = handle.asType(self.type_of("void", "java.lang.Object"))
        items.forEach(self.as_interface("java.util.function.Consumer", handle))

    def task_location_in(self, paths: Collection[str]) -> Any:
        """A predicate: whether the task's data file is one of these."""
        # Java: task -> paths.contains(task.file().location())
        contains = self.compose(self._task_location, self._contains(paths))
        return self.as_interface("java.util.function.Predicate", contains)

    def location_in(self, paths: Collection[str]) -> Any:
        """A predicate: whether the file is one of these."""
        # Java: file -> paths.contains(file.location())
        contains = self.compose(self._location, self._contains(paths))
        return self.as_interface("java.util.function.Predicate", contains)

    def manifest_in(self, paths: Collection[str]) -> Any:
        """A predicate: whether the manifest is one of these."""
        # Java: manifest -> paths.contains(manifest.path())
        path = self.getter("org.apache.iceberg.ManifestFile", "path", "java.lang.String")
        contains = self.compose(path, self._contains(paths))
        return self.as_interface("java.util.function.Predicate", contains)

    def summary_contains(self, text: str) -> Any:
        """A predicate: whether the summary of the snapshot, as Java writes a map, contains this text."""
        # Java: snapshot -> Objects.toString(snapshot.summary()).contains(text)
        summary = self.getter("org.apache.iceberg.Snapshot", "summary", "java.util.Map")
        to_string = self.static_method(
            "java.util.Objects", "toString", "java.lang.String", "java.lang.Object"
        )
        written = self.compose(summary, to_string.asType(self.type_of("java.lang.String", "java.util.Map")))
        contains = self.method("java.lang.String", "contains", "boolean", "java.lang.CharSequence")
        found = self.compose(written, self.bind_argument(contains, 1, text))
        return self.as_interface("java.util.function.Predicate", found)

    def partition_run(self, starts: Any) -> Any:
        """A function of a data file: the last of `starts` that is not after the file's partition.

        `starts` is a `TreeMap` by partition. It contains the first partition of all.
        """
        # Java: file -> starts.floorKey(file.partition())
        anything = "java.lang.Object"
        partition = self.getter(
            "org.apache.iceberg.ContentFile", "partition", "org.apache.iceberg.StructLike"
        )
        floor = self.bound(starts, "java.util.TreeMap", "floorKey", anything, anything)
        floor = floor.asType(self.type_of(anything, "org.apache.iceberg.StructLike"))
        return self.as_interface("java.util.function.Function", self.compose(partition, floor))

    def equality_delete_paths(self, tasks: Any) -> set[str]:
        """Paths of all equality deletes that apply to any of these tasks (a `java.util.List`)."""
        deletes = tasks.stream().flatMap(self.task_deletes).filter(self.is_equality_delete)
        return set(self.texts(deletes.map(self.location).distinct()))

    @property
    def has_equality_deletes(self) -> Any:
        """A predicate: whether an equality delete applies to the task's data file."""
        # Java: task -> task.deletes().stream().anyMatch(isEqualityDelete)
        any_match = self.method(
            "java.util.stream.Stream", "anyMatch", "boolean", "java.util.function.Predicate"
        )
        any_match = self.bind_argument(any_match, 1, self.is_equality_delete)
        return self.as_interface(
            "java.util.function.Predicate", self.compose(self._deletes_stream, any_match)
        )

    def task_file_json(self, spec: Any) -> Any:
        """A function: the task's data file as Iceberg's content-file JSON."""
        # Java: task -> ContentFileParser.toJson(task.file(), spec)
        names = ("org.apache.iceberg.ContentFile", "org.apache.iceberg.PartitionSpec")
        parser = "org.apache.iceberg.ContentFileParser"
        to_json = self.static_method(parser, "toJson", "java.lang.String", *names)
        to_json = self.bind_argument(to_json, 1, spec)
        return self.as_interface("java.util.function.Function", self.compose(self._task_file, to_json))

    def task_has_spec(self, spec_id: int) -> Any:
        """A predicate: whether the task's data file has this partition spec."""
        return self.as_interface("java.util.function.Predicate", self.has_spec(spec_id, self._task_file))

    def has_spec(self, spec_id: int, file: Any) -> Any:
        """A handle: whether the file that the handle `file` returns has this partition spec."""
        # Java: element -> Integer.valueOf(specId).equals(file.apply(element).specId())
        spec = self.getter("org.apache.iceberg.ContentFile", "specId", "int")
        equals = self.bound(spec_id, "java.lang.Integer", "equals", "boolean", "java.lang.Object")
        return self.compose(file, self.compose(spec, equals.asType(self.type_of("boolean", "int"))))

    def new_task(self, schema_json: str, spec: Any) -> Any:
        """A handle: a data file and its delete files as a scan task."""
        # Java: (file, deletes) -> new BaseFileScanTask(file, deletes, schemaJson, specJson, residuals)
        iceberg, task = self.bridge.iceberg, "org.apache.iceberg.BaseFileScanTask"
        names = (
            "org.apache.iceberg.DataFile",
            "[Lorg.apache.iceberg.DeleteFile;",
            "java.lang.String",
            "java.lang.String",
            "org.apache.iceberg.expressions.ResidualEvaluator",
        )
        maker = self.lookup.findConstructor(self.class_of(task), self.type_of("void", *names))
        all_rows = iceberg.expressions.ResidualEvaluator.unpartitioned(
            iceberg.expressions.Expressions.alwaysTrue()
        )
        constants = (schema_json, iceberg.PartitionSpecParser.toJson(spec), all_rows)
        return self.invoke.MethodHandles.insertArguments(
            maker, 2, self.bridge.array(self.bridge.jvm.java.lang.Object, constants)
        )

    def task_with(self, schema_json: str, spec: Any, deletes: Any) -> Any:
        """A function: the task with the array of delete files that the handle `deletes` returns for it."""
        task, new_task = "org.apache.iceberg.FileScanTask", "org.apache.iceberg.BaseFileScanTask"
        # Java: task -> newTask((DataFile) task.file(), (DeleteFile[]) deletes(task))
        parts = (
            self._task_file.asType(self.type_of("org.apache.iceberg.DataFile", task)),
            deletes.asType(self.type_of("[Lorg.apache.iceberg.DeleteFile;", task)),
        )
        handles = self.invoke.MethodHandles
        # Java: (task1, task2) -> newTask(file of task1, deletes of task2), then called with one task twice
        of_two_tasks = handles.filterArguments(
            self.new_task(schema_json, spec), 0, self.bridge.array(self.invoke.MethodHandle, parts)
        )
        of_one_task = handles.permuteArguments(
            of_two_tasks, self.type_of(new_task, task), self.bridge.ints((0, 0))
        )
        return self.as_interface("java.util.function.Function", of_one_task)

    @property
    def task_equality_delete_count(self) -> Any:
        """A function: the number of equality deletes that apply to the task's data file, as text."""
        # Java: task -> Long.toString(task.deletes().stream().filter(isEqualityDelete).count())
        stream = "java.util.stream.Stream"
        select = self.method(stream, "filter", stream, "java.util.function.Predicate")
        select = self.bind_argument(select, 1, self.is_equality_delete)
        text = self.static_method("java.lang.Long", "toString", "java.lang.String", "long")
        count = self.compose(select, self.compose(self.getter(stream, "count", "long"), text))
        return self.as_interface("java.util.function.Function", self.compose(self._deletes_stream, count))

    @property
    def task_position_deletes(self) -> Any:
        """A function: the paths of the task's position deletes and deletion vectors, each after a
        `SEPARATOR_WITHIN`. If there are none, the result is one `SEPARATOR_WITHIN`."""
        stream, function = "java.util.stream.Stream", "java.util.function."
        collectors = self.bridge.jvm.java.util.stream.Collectors
        joining = collectors.joining(SEPARATOR_WITHIN, SEPARATOR_WITHIN, "")
        steps = (
            ("filter", stream, function + "Predicate", self.is_equality_delete.negate()),
            ("map", stream, function + "Function", self.location),
            ("collect", "java.lang.Object", "java.util.stream.Collector", joining),
        )
        # Java: task -> task.deletes().stream().filter(isEqualityDelete.negate())
        #           .map(file -> file.location()).collect(Collectors.joining("\1", "\1", ""))
        handle = self._deletes_stream
        for method, result, parameter, argument in steps:
            step = self.method(stream, method, result, parameter)
            handle = self.compose(handle, self.bind_argument(step, 1, argument))
        return self.as_interface(function + "Function", handle)

    @property
    def nothing(self) -> Any:
        """A function that returns null for every argument."""
        # Java: anything -> null
        null = self.invoke.MethodHandles.constant(self.class_of("java.lang.Object"), None)
        return self.as_interface("java.util.function.Function", self.drop_arguments(null, "java.lang.Object"))

    def opening_deletes(self, io: Any) -> Any:
        """A function: the input file that reads a delete file."""
        # Java: deleteFile -> io.newInputFile(deleteFile)
        names = ("org.apache.iceberg.io.InputFile", "org.apache.iceberg.DeleteFile")
        opening = self.bound(io, "org.apache.iceberg.io.FileIO", "newInputFile", *names)
        return self.as_interface("java.util.function.Function", opening)

    def writing_positions(self) -> tuple[Any, Any, Any]:
        """A consumer of positions, and the two `AtomicReference`s that it reads: the path of the data
        file and the `PositionDeleteWriter`. The result is (path, writer, consumer).

        One consumer serves many files, because the JVM compiles code for each method handle.
        """
        delete_class = "org.apache.iceberg.deletes.PositionDelete"
        writer_class = "org.apache.iceberg.deletes.PositionDeleteWriter"
        path_class = "java.lang.CharSequence"
        delete = self.bridge.iceberg.deletes.PositionDelete.create()
        path, writer = (self.bridge.jvm.java.util.concurrent.atomic.AtomicReference() for _ in range(2))
        # Java: position -> writer.get().write(delete.set(path.get(), position))
        set_position = self.bound(delete, delete_class, "set", delete_class, path_class, "long")
        write = self.method(writer_class, "write", "void", delete_class)
        consumer = self.compose(
            self.bind_first_to_reference(set_position, path, path_class),
            self.bind_first_to_reference(write, writer, writer_class),
        )
        return path, writer, self.as_interface("java.util.function.LongConsumer", consumer)

    def picked(self, items: Any, positions: Sequence[Sequence[int]]) -> list[Any]:
        """The elements of a Java list at these positions, as a `java.util.List` for each sequence. The positions of a
        list cross as one text."""
        # Java: text -> items.get(Integer.parseInt(text))
        parse = self.static_method("java.lang.Integer", "parseInt", "int", "java.lang.String")
        element = self.bound(items, "java.util.List", "get", "java.lang.Object", "int")
        element_at = self.as_interface("java.util.function.Function", self.compose(parse, element))
        split = self.bridge.jvm.java.util.regex.Pattern.compile(SEPARATOR).splitAsStream
        in_list = self.bridge.jvm.java.util.stream.Collectors.toList()
        return [
            split(SEPARATOR.join(map(str, some))).map(element_at).collect(in_list)
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

    def to_list(self, stream: Any) -> Any:
        """The stream's elements as a `java.util.List`."""
        return stream.collect(self.bridge.jvm.java.util.stream.Collectors.toList())

    def texts(self, stream: Any) -> list[str]:
        """The strings of a stream. They cross as one text."""
        joining = self.bridge.jvm.java.util.stream.Collectors.joining(SEPARATOR)
        text = str(stream.collect(joining))
        return text.split(SEPARATOR) if text else []

    def _digest_of(self, argument: str) -> Any:
        """A handle: the digest (MD5, as a UUID's text) of what `toString` returns for an object."""
        # Java: object -> UUID.nameUUIDFromBytes(object.toString().getBytes()).toString()
        to_string = self.getter("java.lang.Object", "toString", "java.lang.String")
        to_bytes = self.getter("java.lang.String", "getBytes", "[B")
        digest = self.static_method("java.util.UUID", "nameUUIDFromBytes", "java.util.UUID", "[B")
        text = to_string.asType(self.type_of("java.lang.String", argument))
        name = to_string.asType(self.type_of("java.lang.String", "java.util.UUID"))
        return self.compose(self.compose(self.compose(text, to_bytes), digest), name)

    def _contains(self, texts: Collection[str]) -> Any:
        """A handle: whether a string is one of these."""
        # Java: text -> Pattern.compile("\0").splitAsStream(texts).collect(Collectors.toSet()).contains(text)
        # with the set built once, here.
        pattern = self.bridge.jvm.java.util.regex.Pattern.compile(SEPARATOR)
        collectors = self.bridge.jvm.java.util.stream.Collectors
        text_set = pattern.splitAsStream(SEPARATOR.join(texts)).collect(collectors.toSet())
        contains = self.bound(text_set, "java.util.Set", "contains", "boolean", "java.lang.Object")
        return contains.asType(self.type_of("boolean", "java.lang.String"))
