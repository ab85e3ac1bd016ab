"""Java functions composed of method handles, so that loops over files run inside the JVM.

A call per file from Python costs about as much as Iceberg spends to plan the file. A Java stream
that applies Java functions makes no calls from Python. The `# Java:` comments show the equal Java code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge

OBJECT = "java.lang.Object"
STRING = "java.lang.String"


class MethodHandles:
    """Makes handles of public methods and composes them. Arguments name classes by their binary names."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.invoke: Any = bridge.jvm.java.lang.invoke
        self.lookup: Any = self.invoke.MethodHandles.publicLookup()
        # Types and handles of methods never change. Each table of a run asks for the same ones.
        self._primitives: dict[str, Any] = {}
        self._types: dict[tuple[str, ...], Any] = {}
        self._methods: dict[tuple[str, ...], Any] = {}

    def class_of(self, name: str) -> Any:
        """The class of this name; primitive types included."""
        boxes = {"boolean": "Boolean", "int": "Integer", "long": "Long", "void": "Void"}
        if name not in boxes:
            return self.bridge.java_class(name)
        if name not in self._primitives:
            self._primitives[name] = getattr(self.bridge.jvm.java.lang, boxes[name]).TYPE
        return self._primitives[name]

    def type_of(self, result: str, *arguments: str) -> Any:
        """The type of a handle that takes these arguments and returns `result`."""
        names = (result, *arguments)
        if names not in self._types:
            classes = self.bridge.list(map(self.class_of, arguments))
            self._types[names] = self.invoke.MethodType.methodType(self.class_of(result), classes)
        return self._types[names]

    def bound(self, receiver: Any, owner: str, method: str, result: str, *arguments: str) -> Any:
        """A handle of a method of this object, as its class or interface `owner` declares the method."""
        return self.method(owner, method, result, *arguments).bindTo(receiver)

    def method(self, owner: str, method: str, result: str, *arguments: str) -> Any:
        """A handle of a method, as its class or interface `owner` declares it. Its first argument is the receiver."""
        names = (owner, method, result, *arguments)
        if names not in self._methods:
            type_of_method = self.type_of(result, *arguments)
            self._methods[names] = self.lookup.findVirtual(self.class_of(owner), method, type_of_method)
        return self._methods[names]

    def static_method(self, owner: str, method: str, result: str, *arguments: str) -> Any:
        """A handle of a static method of a class."""
        names = ("static", owner, method, result, *arguments)
        if names not in self._methods:
            type_of_method = self.type_of(result, *arguments)
            self._methods[names] = self.lookup.findStatic(self.class_of(owner), method, type_of_method)
        return self._methods[names]

    def bind_arguments(self, handle: Any, index: int, *bound: Any) -> Any:
        """The handle with the arguments from `index` on fixed to these values."""
        values = self.bridge.array(self.bridge.jvm.java.lang.Object, bound)
        return self.invoke.MethodHandles.insertArguments(handle, index, values)

    def permute(self, handle: Any, result: str, arguments: tuple[str, ...], places: Iterable[int]) -> Any:
        """A handle of this type that passes those of its arguments at `places`, in order, to `handle`."""
        returning = handle.asType(handle.type().changeReturnType(self.class_of(result)))
        target = self.type_of(result, *arguments)
        return self.invoke.MethodHandles.permuteArguments(returning, target, self.bridge.ints(places))

    def of_one(self, handle: Any, result: str, argument: str, *parts: Any) -> Any:
        """A handle of one argument: passes it to each of the handles `parts`, and their results to `handle`."""
        filtered = self.invoke.MethodHandles.filterArguments(
            handle, 0, self.bridge.array(self.invoke.MethodHandle, parts)
        )
        return self.permute(filtered, result, (argument,), [0] * len(parts))

    def bind_first_to_reference(self, handle: Any, reference: Any, class_name: str) -> Any:
        """The handle with its first argument, of this class, read from an `AtomicReference` at every call."""
        owner = "java.util.concurrent.atomic.AtomicReference"
        value = self.bound(reference, owner, "get", OBJECT).asType(self.type_of(class_name))
        return self.invoke.MethodHandles.collectArguments(handle, 0, value)

    def compose(self, inner: Any, outer: Any) -> Any:
        """A handle that calls `inner`, then `outer` with its result."""
        return self.invoke.MethodHandles.filterReturnValue(inner, outer)

    def drop_arguments(self, handle: Any, *arguments: str) -> Any:
        """The handle with additional leading arguments of these classes, which it ignores."""
        classes = self.bridge.list(map(self.class_of, arguments))
        return self.invoke.MethodHandles.dropArguments(handle, 0, classes)

    def as_interface(self, interface: str, handle: Any) -> Any:
        """The handle as an object of an interface that has one method."""
        return self.invoke.MethodHandleProxies.asInterfaceInstance(self.class_of(interface), handle)

    def as_proxy(self, interface: str, handle: Any) -> Any:
        """An object of an interface whose methods all call the handle.

        The handle takes the proxy, the `Method` and its arguments as an `Object[]` (null if there are none).
        It returns the result of the method, as a `java.lang.reflect.Proxy` expects it.
        """
        handler = self.as_interface("java.lang.reflect.InvocationHandler", handle)
        interface_class = self.class_of(interface)
        classes = self.bridge.array(self.bridge.jvm.java.lang.Class, (interface_class,))
        return self.bridge.jvm.java.lang.reflect.Proxy.newProxyInstance(
            interface_class.getClassLoader(), classes, handler
        )


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

    def file_lacks(self, method: str, returns: str) -> Any:
        """A predicate: whether metadata have no such value of the task's data file."""
        # Java: task -> Objects.isNull(task.file().method())
        value = self.method(CONTENT_FILE, method, returns)
        is_null = self.static_method("java.util.Objects", "isNull", "boolean", OBJECT)
        is_null = is_null.asType(self.type_of("boolean", returns))
        return self.predicate(self.compose(self._task_file, self.compose(value, is_null)))

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
