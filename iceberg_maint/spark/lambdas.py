"""Java functions made of method handles, so that loops over files run inside the JVM.

One call per file from Python costs about as much as Iceberg spends planning the file; a stream
with functions of Java's own costs nothing here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from iceberg_maint.spark.bridge import Bridge

SEPARATOR = "\0"
"""Between the texts of a list that crosses in one piece; no path holds it."""
SEPARATOR_WITHIN = "\1"
"""Before the parts of one such text."""


class Lambdas:
    """Functions over Iceberg's scan tasks and files."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._invoke: Any = bridge.jvm.java.lang.invoke
        self._lookup = self._invoke.MethodHandles.publicLookup()
        task, file = "org.apache.iceberg.FileScanTask", "org.apache.iceberg.ContentFile"
        # `file()` and `deletes()` as erased in bytecode.
        task_file = self._getter("org.apache.iceberg.ContentScanTask", "file", file)
        self._location = self._getter(file, "location", "java.lang.String")
        self._task_file = task_file.asType(self._type(file, task))
        self._task_location = self._then(self._task_file, self._location)
        deletes = self._getter(task, "deletes", "java.util.List")
        self._no_deletes = self._then(deletes, self._getter("java.util.List", "isEmpty", "boolean"))
        self._deletes_stream = self._then(
            deletes.asType(self._type("java.util.Collection", task)),
            self._getter("java.util.Collection", "stream", "java.util.stream.Stream"),
        )
        content = self._getter(file, "content", "org.apache.iceberg.FileContent")
        kind = self._bridge.iceberg.FileContent.EQUALITY_DELETES
        same = self._bound(kind, "java.lang.Object", "equals", "boolean", "java.lang.Object")
        is_equality = self._then(
            content, same.asType(self._type("boolean", "org.apache.iceberg.FileContent"))
        )
        self.is_equality_delete = self._as("java.util.function.Predicate", is_equality)
        self.task_deletes_digest = self._as(
            "java.util.function.Function", self._then(deletes, self._digest_of("java.util.List"))
        )
        self.location = self._as("java.util.function.Function", self._location)
        self.task_location = self._as("java.util.function.Function", self._task_location)
        self.task_deletes = self._as("java.util.function.Function", self._deletes_stream)
        self.has_no_deletes = self._as("java.util.function.Predicate", self._no_deletes)

    def task_location_in(self, paths: Collection[str]) -> Any:
        """A predicate: the task's data file is one of these."""
        return self._as("java.util.function.Predicate", self._then(self._task_location, self._among(paths)))

    def location_in(self, paths: Collection[str]) -> Any:
        """A predicate: the file is one of these."""
        return self._as("java.util.function.Predicate", self._then(self._location, self._among(paths)))

    def manifest_in(self, paths: Collection[str]) -> Any:
        """A predicate: the manifest is one of these."""
        path = self._getter("org.apache.iceberg.ManifestFile", "path", "java.lang.String")
        return self._as("java.util.function.Predicate", self._then(path, self._among(paths)))

    def partition_run(self, starts: Any) -> Any:
        """A function of a data file: the last of `starts` (a `TreeMap` by partition, which holds the
        first of all) that is not after the file's partition."""
        anything = "java.lang.Object"
        partition = self._getter(
            "org.apache.iceberg.ContentFile", "partition", "org.apache.iceberg.StructLike"
        )
        floor = self._bound(starts, "java.util.TreeMap", "floorKey", anything, anything)
        of_partition = floor.asType(self._type(anything, "org.apache.iceberg.StructLike"))
        return self._as("java.util.function.Function", self._then(partition, of_partition))

    def equality_delete_paths(self, tasks: Any) -> set[str]:
        """Paths of all equality deletes that apply to one of these tasks (a `java.util.List`)."""
        deletes = tasks.stream().flatMap(self.task_deletes).filter(self.is_equality_delete)
        return set(self.texts(deletes.map(self.location).distinct()))

    @property
    def has_equality_deletes(self) -> Any:
        """A predicate: an equality delete applies to the task's data file."""
        any_match = self._lookup.findVirtual(
            self._class("java.util.stream.Stream"),
            "anyMatch",
            self._type("boolean", "java.util.function.Predicate"),
        )
        among = self._then(self._deletes_stream, self._given(any_match, 1, self.is_equality_delete))
        return self._as("java.util.function.Predicate", among)

    def task_file_json(self, spec: Any) -> Any:
        """A function: the task's data file as Iceberg's content-file JSON."""
        parser = self._class("org.apache.iceberg.ContentFileParser")
        names = ("org.apache.iceberg.ContentFile", "org.apache.iceberg.PartitionSpec")
        to_json = self._lookup.findStatic(parser, "toJson", self._type("java.lang.String", *names))
        bound = self._given(to_json, 1, spec)
        return self._as("java.util.function.Function", self._then(self._task_file, bound))

    @property
    def task_position_deletes(self) -> Any:
        """A function: the paths of the task's position deletes and deletion vectors, each after a
        `SEPARATOR_WITHIN`; that alone when there are none."""
        stream, function = "java.util.stream.Stream", "java.util.function."
        collectors = self._bridge.jvm.java.util.stream.Collectors
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
            step = self._lookup.findVirtual(self._class(stream), method, self._type(result, parameter))
            handle = self._then(handle, self._given(step, 1, argument))
        return self._as(function + "Function", handle)

    @property
    def nothing(self) -> Any:
        """A function of anything: null."""
        handles, anything = self._invoke.MethodHandles, self._class("java.lang.Object")
        null = handles.dropArguments(handles.constant(anything, None), 0, self._bridge.list((anything,)))
        return self._as("java.util.function.Function", null)

    def opening_deletes(self, io: Any) -> Any:
        """A function: the input file that reads a delete file."""
        names = ("org.apache.iceberg.io.InputFile", "org.apache.iceberg.DeleteFile")
        opening = self._bound(io, "org.apache.iceberg.io.FileIO", "newInputFile", *names)
        return self._as("java.util.function.Function", opening)

    def writing_positions(self) -> tuple[Any, Any, Any]:
        """A consumer of positions, and the two `AtomicReference`s by which it is told of which data
        file they are (its path) and what to write them to (a `PositionDeleteWriter`).

        One consumer for many files: of each method handle the JVM would compile its own code.
        """
        delete_class = "org.apache.iceberg.deletes.PositionDelete"
        writer_class = "org.apache.iceberg.deletes.PositionDeleteWriter"
        text = "java.lang.CharSequence"
        delete = self._bridge.iceberg.deletes.PositionDelete.create()
        path, writer = (self._bridge.jvm.java.util.concurrent.atomic.AtomicReference() for _ in range(2))
        moving = self._bound(delete, delete_class, "set", delete_class, text, "long")
        writing = self._lookup.findVirtual(
            self._class(writer_class), "write", self._type("void", delete_class)
        )
        consumer = self._then(self._first(moving, path, text), self._first(writing, writer, writer_class))
        return path, writer, self._as("java.util.function.LongConsumer", consumer)

    def stream(self, iterable: Any) -> Any:
        """A sequential stream over a Java `Iterable`."""
        util = self._bridge.jvm.java.util
        # py4j does not see default methods of a class that is not public, `spliterator` among them.
        spliterator = util.Spliterators.spliteratorUnknownSize(iterable.iterator(), 0)
        return util.stream.StreamSupport.stream(spliterator, False)

    def to_list(self, stream: Any) -> Any:
        """The stream's elements as a `java.util.List`."""
        return stream.collect(self._bridge.jvm.java.util.stream.Collectors.toList())

    def texts(self, stream: Any) -> list[str]:
        """The strings of a stream, carried over in one piece."""
        joining = self._bridge.jvm.java.util.stream.Collectors.joining(SEPARATOR)
        text = str(stream.collect(joining))
        return text.split(SEPARATOR) if text else []

    def _digest_of(self, argument: str) -> Any:
        """A function: what `toString` says of an object, as a digest of fixed length (MD5)."""
        to_string = self._getter("java.lang.Object", "toString", "java.lang.String")
        to_bytes = self._getter("java.lang.String", "getBytes", "[B")
        digest = self._lookup.findStatic(
            self._class("java.util.UUID"), "nameUUIDFromBytes", self._type("java.util.UUID", "[B")
        )
        text = to_string.asType(self._type("java.lang.String", argument))
        name = to_string.asType(self._type("java.lang.String", "java.util.UUID"))
        return self._then(self._then(self._then(text, to_bytes), digest), name)

    def _among(self, texts: Collection[str]) -> Any:
        """A handle: whether a string is one of these."""
        pattern = self._bridge.jvm.java.util.regex.Pattern.compile(SEPARATOR)
        collectors = self._bridge.jvm.java.util.stream.Collectors
        known = pattern.splitAsStream(SEPARATOR.join(texts)).collect(collectors.toSet())
        contains = self._bound(known, "java.util.Set", "contains", "boolean", "java.lang.Object")
        return contains.asType(self._type("boolean", "java.lang.String"))

    def _class(self, name: str) -> Any:
        lang = self._bridge.jvm.java.lang
        primitives = {"boolean": lang.Boolean, "int": lang.Integer, "long": lang.Long, "void": lang.Void}
        return primitives[name].TYPE if name in primitives else self._bridge.java_class(name)

    def _type(self, result: str, *arguments: str) -> Any:
        listed = self._bridge.list(map(self._class, arguments))
        return self._invoke.MethodType.methodType(self._class(result), listed)

    def _getter(self, owner: str, method: str, result: str) -> Any:
        return self._lookup.findVirtual(self._class(owner), method, self._type(result))

    def _bound(self, receiver: Any, owner: str, method: str, result: str, *arguments: str) -> Any:
        """A handle of a method of this object, as its class or interface `owner` declares it."""
        found = self._lookup.findVirtual(self._class(owner), method, self._type(result, *arguments))
        return found.bindTo(receiver)

    def _given(self, handle: Any, place: int, argument: Any) -> Any:
        """The handle with one argument fixed."""
        values = self._bridge.array(self._bridge.jvm.java.lang.Object, [argument])
        return self._invoke.MethodHandles.insertArguments(handle, place, values)

    def _first(self, handle: Any, reference: Any, kind: str) -> Any:
        """The handle, its first argument being what the reference holds at the time."""
        owner, anything = "java.util.concurrent.atomic.AtomicReference", "java.lang.Object"
        value = self._bound(reference, owner, "get", anything).asType(self._type(kind))
        return self._invoke.MethodHandles.collectArguments(handle, 0, value)

    def _then(self, first: Any, second: Any) -> Any:
        return self._invoke.MethodHandles.filterReturnValue(first, second)

    def _as(self, interface: str, handle: Any) -> Any:
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self._class(interface), handle)
