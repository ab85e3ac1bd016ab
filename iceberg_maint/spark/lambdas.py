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


class Lambdas:
    """Functions over Iceberg's scan tasks and files."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._invoke: Any = bridge.jvm.java.lang.invoke
        self._lookup = self._invoke.MethodHandles.publicLookup()
        task, file = "org.apache.iceberg.FileScanTask", "org.apache.iceberg.ContentFile"
        # `file()` and `deletes()` as erased in bytecode.
        task_file = self._getter("org.apache.iceberg.ContentScanTask", "file", file)
        location = self._getter(file, "location", "java.lang.String")
        self._task_file = task_file.asType(self._type(file, task))
        self._task_location = self._then(self._task_file, location)
        deletes = self._getter(task, "deletes", "java.util.List")
        self._no_deletes = self._then(deletes, self._getter("java.util.List", "isEmpty", None))
        self.task_deletes_digest = self._as(
            "java.util.function.Function", self._then(deletes, self._digest_of("java.util.List"))
        )
        self.task_location = self._as("java.util.function.Function", self._task_location)
        self.has_no_deletes = self._as("java.util.function.Predicate", self._no_deletes)

    def task_location_in(self, paths: Collection[str]) -> Any:
        """A predicate: the task's data file is one of these."""
        names = self._strings(paths)
        contains = self._lookup.bind(names, "contains", self._type(None, "java.lang.Object"))
        return self._as(
            "java.util.function.Predicate",
            self._then(self._task_location, contains.asType(self._type(None, "java.lang.String"))),
        )

    def task_file_json(self, spec: Any) -> Any:
        """A function: the task's data file as Iceberg's content-file JSON."""
        parser = self._bridge.java_class("org.apache.iceberg.ContentFileParser")
        arguments = ("org.apache.iceberg.ContentFile", "org.apache.iceberg.PartitionSpec")
        kind = self._invoke.MethodType.methodType(
            self._class("java.lang.String"), self._bridge.list(map(self._class, arguments))
        )
        to_json = self._lookup.findStatic(parser, "toJson", kind)
        bound = self._invoke.MethodHandles.insertArguments(
            to_json, 1, self._bridge.array(self._bridge.jvm.java.lang.Object, [spec])
        )
        return self._as("java.util.function.Function", self._then(self._task_file, bound))

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

    def _strings(self, texts: Collection[str]) -> Any:
        pattern = self._bridge.jvm.java.util.regex.Pattern.compile(SEPARATOR)
        collectors = self._bridge.jvm.java.util.stream.Collectors
        return pattern.splitAsStream(SEPARATOR.join(texts)).collect(collectors.toSet())

    def _class(self, name: str | None) -> Any:
        return self._bridge.jvm.java.lang.Boolean.TYPE if name is None else self._bridge.java_class(name)

    def _type(self, result: str | None, argument: str) -> Any:
        return self._invoke.MethodType.methodType(self._class(result), self._class(argument))

    def _getter(self, owner: str, method: str, result: str | None) -> Any:
        kind = self._invoke.MethodType.methodType(self._class(result))
        return self._lookup.findVirtual(self._class(owner), method, kind)

    def _then(self, first: Any, second: Any) -> Any:
        return self._invoke.MethodHandles.filterReturnValue(first, second)

    def _as(self, interface: str, handle: Any) -> Any:
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self._class(interface), handle)
