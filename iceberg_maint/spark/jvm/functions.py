"""Java functions made of method handles, so that loops over files run inside the JVM.

One call per file from Python costs about as much as Iceberg spends planning the file; a stream
with functions of Java's own costs nothing here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.method_handles import MethodHandles

SEPARATOR = "\0"
"""Between the texts of a list that crosses in one piece; no path holds it."""
SEPARATOR_WITHIN = "\1"
"""Before the parts of one such text."""


class JavaFunctions(MethodHandles):
    """Functions over Iceberg's scan tasks and files."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        task, file = "org.apache.iceberg.FileScanTask", "org.apache.iceberg.ContentFile"
        # `file()` and `deletes()` as erased in bytecode.
        task_file = self.getter("org.apache.iceberg.ContentScanTask", "file", file)
        self._location = self.getter(file, "location", "java.lang.String")
        self._task_file = task_file.asType(self.type_of(file, task))
        self._task_location = self.then(self._task_file, self._location)
        deletes = self.getter(task, "deletes", "java.util.List")
        self._no_deletes = self.then(deletes, self.getter("java.util.List", "isEmpty", "boolean"))
        self._deletes_stream = self.then(
            deletes.asType(self.type_of("java.util.Collection", task)),
            self.getter("java.util.Collection", "stream", "java.util.stream.Stream"),
        )
        content = self.getter(file, "content", "org.apache.iceberg.FileContent")
        kind = self.bridge.iceberg.FileContent.EQUALITY_DELETES
        same = self.bound(kind, "java.lang.Object", "equals", "boolean", "java.lang.Object")
        is_equality = self.then(
            content, same.asType(self.type_of("boolean", "org.apache.iceberg.FileContent"))
        )
        self.is_equality_delete = self.as_interface("java.util.function.Predicate", is_equality)
        self.task_deletes_digest = self.as_interface(
            "java.util.function.Function", self.then(deletes, self._digest_of("java.util.List"))
        )
        self.location = self.as_interface("java.util.function.Function", self._location)
        self.task_location = self.as_interface("java.util.function.Function", self._task_location)
        self.task_deletes = self.as_interface("java.util.function.Function", self._deletes_stream)
        self.has_no_deletes = self.as_interface("java.util.function.Predicate", self._no_deletes)

    def task_location_in(self, paths: Collection[str]) -> Any:
        """A predicate: the task's data file is one of these."""
        return self.as_interface(
            "java.util.function.Predicate", self.then(self._task_location, self._among(paths))
        )

    def location_in(self, paths: Collection[str]) -> Any:
        """A predicate: the file is one of these."""
        return self.as_interface(
            "java.util.function.Predicate", self.then(self._location, self._among(paths))
        )

    def manifest_in(self, paths: Collection[str]) -> Any:
        """A predicate: the manifest is one of these."""
        path = self.getter("org.apache.iceberg.ManifestFile", "path", "java.lang.String")
        return self.as_interface("java.util.function.Predicate", self.then(path, self._among(paths)))

    def partition_run(self, starts: Any) -> Any:
        """A function of a data file: the last of `starts` (a `TreeMap` by partition, which holds the
        first of all) that is not after the file's partition."""
        anything = "java.lang.Object"
        partition = self.getter(
            "org.apache.iceberg.ContentFile", "partition", "org.apache.iceberg.StructLike"
        )
        floor = self.bound(starts, "java.util.TreeMap", "floorKey", anything, anything)
        of_partition = floor.asType(self.type_of(anything, "org.apache.iceberg.StructLike"))
        return self.as_interface("java.util.function.Function", self.then(partition, of_partition))

    def equality_delete_paths(self, tasks: Any) -> set[str]:
        """Paths of all equality deletes that apply to one of these tasks (a `java.util.List`)."""
        deletes = tasks.stream().flatMap(self.task_deletes).filter(self.is_equality_delete)
        return set(self.texts(deletes.map(self.location).distinct()))

    @property
    def has_equality_deletes(self) -> Any:
        """A predicate: an equality delete applies to the task's data file."""
        any_match = self.lookup.findVirtual(
            self.class_of("java.util.stream.Stream"),
            "anyMatch",
            self.type_of("boolean", "java.util.function.Predicate"),
        )
        among = self.then(self._deletes_stream, self.given(any_match, 1, self.is_equality_delete))
        return self.as_interface("java.util.function.Predicate", among)

    def task_file_json(self, spec: Any) -> Any:
        """A function: the task's data file as Iceberg's content-file JSON."""
        parser = self.class_of("org.apache.iceberg.ContentFileParser")
        names = ("org.apache.iceberg.ContentFile", "org.apache.iceberg.PartitionSpec")
        to_json = self.lookup.findStatic(parser, "toJson", self.type_of("java.lang.String", *names))
        bound = self.given(to_json, 1, spec)
        return self.as_interface("java.util.function.Function", self.then(self._task_file, bound))

    @property
    def task_position_deletes(self) -> Any:
        """A function: the paths of the task's position deletes and deletion vectors, each after a
        `SEPARATOR_WITHIN`; that alone when there are none."""
        stream, function = "java.util.stream.Stream", "java.util.function."
        collectors = self.bridge.jvm.java.util.stream.Collectors
        joined = collectors.joining(SEPARATOR_WITHIN, SEPARATOR_WITHIN, "")
        steps = (
            ("filter", stream, function + "Predicate", self.is_equality_delete.negate()),
            ("map", stream, function + "Function", self.location),
            (
                "collect",
                "java.lang.Object",
                "java.util.stream.Collector",
                joined,
            ),
        )
        handle = self._deletes_stream
        for method, result, parameter, argument in steps:
            step = self.lookup.findVirtual(self.class_of(stream), method, self.type_of(result, parameter))
            handle = self.then(handle, self.given(step, 1, argument))
        return self.as_interface(function + "Function", handle)

    @property
    def nothing(self) -> Any:
        """A function of anything: null."""
        handles, anything = self.invoke.MethodHandles, self.class_of("java.lang.Object")
        null = handles.dropArguments(handles.constant(anything, None), 0, self.bridge.list((anything,)))
        return self.as_interface("java.util.function.Function", null)

    def opening_deletes(self, io: Any) -> Any:
        """A function: the input file that reads a delete file."""
        names = ("org.apache.iceberg.io.InputFile", "org.apache.iceberg.DeleteFile")
        opening = self.bound(io, "org.apache.iceberg.io.FileIO", "newInputFile", *names)
        return self.as_interface("java.util.function.Function", opening)

    def writing_positions(self) -> tuple[Any, Any, Any]:
        """A consumer of positions, and the two `AtomicReference`s by which it is told of which data
        file they are (its path) and what to write them to (a `PositionDeleteWriter`).

        One consumer for many files: of each method handle the JVM would compile its own code.
        """
        delete_class = "org.apache.iceberg.deletes.PositionDelete"
        writer_class = "org.apache.iceberg.deletes.PositionDeleteWriter"
        text = "java.lang.CharSequence"
        delete = self.bridge.iceberg.deletes.PositionDelete.create()
        path, writer = (self.bridge.jvm.java.util.concurrent.atomic.AtomicReference() for _ in range(2))
        moving = self.bound(delete, delete_class, "set", delete_class, text, "long")
        writing = self.lookup.findVirtual(
            self.class_of(writer_class), "write", self.type_of("void", delete_class)
        )
        consumer = self.then(self.first(moving, path, text), self.first(writing, writer, writer_class))
        return path, writer, self.as_interface("java.util.function.LongConsumer", consumer)

    def stream(self, iterable: Any) -> Any:
        """A sequential stream over a Java `Iterable`."""
        util = self.bridge.jvm.java.util
        # py4j does not see default methods of a class that is not public, `spliterator` among them.
        spliterator = util.Spliterators.spliteratorUnknownSize(iterable.iterator(), 0)
        return util.stream.StreamSupport.stream(spliterator, False)

    def to_list(self, stream: Any) -> Any:
        """The stream's elements as a `java.util.List`."""
        return stream.collect(self.bridge.jvm.java.util.stream.Collectors.toList())

    def texts(self, stream: Any) -> list[str]:
        """The strings of a stream, carried over in one piece."""
        joining = self.bridge.jvm.java.util.stream.Collectors.joining(SEPARATOR)
        text = str(stream.collect(joining))
        return text.split(SEPARATOR) if text else []

    def _digest_of(self, argument: str) -> Any:
        """A function: what `toString` says of an object, as a digest of fixed length (MD5)."""
        to_string = self.getter("java.lang.Object", "toString", "java.lang.String")
        to_bytes = self.getter("java.lang.String", "getBytes", "[B")
        digest = self.lookup.findStatic(
            self.class_of("java.util.UUID"), "nameUUIDFromBytes", self.type_of("java.util.UUID", "[B")
        )
        text = to_string.asType(self.type_of("java.lang.String", argument))
        name = to_string.asType(self.type_of("java.lang.String", "java.util.UUID"))
        return self.then(self.then(self.then(text, to_bytes), digest), name)

    def _among(self, texts: Collection[str]) -> Any:
        """A handle: whether a string is one of these."""
        pattern = self.bridge.jvm.java.util.regex.Pattern.compile(SEPARATOR)
        collectors = self.bridge.jvm.java.util.stream.Collectors
        known = pattern.splitAsStream(SEPARATOR.join(texts)).collect(collectors.toSet())
        contains = self.bound(known, "java.util.Set", "contains", "boolean", "java.lang.Object")
        return contains.asType(self.type_of("boolean", "java.lang.String"))
