"""The `TableOperations` of a table whose commits pass a gate: Java answers every read, Python the commit.

A rewrite of manifests reads the metadata and the FileIO once per manifest and holds a lock while it does. An
answer from Python would cost a round trip over a socket each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.method_handles import MethodHandles

_OPERATIONS = "org.apache.iceberg.TableOperations"
_METADATA = "org.apache.iceberg.TableMetadata"
_TEXT = "java.lang.String"
_ANYTHING, _METHOD, _ARRAY = "java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;"
_HANDLER = "java.lang.reflect.InvocationHandler"
_REFERENCE = "java.util.concurrent.atomic.AtomicReference"
_CALL = (_HANDLER, _OPERATIONS, _REFERENCE, _ANYTHING, _METHOD, _ARRAY)
"""Arguments of a call: the gate, the table's operations, the metadata to show, and proxy, method and arguments of
the call itself."""

_READS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("io", "org.apache.iceberg.io.FileIO", ()),
    ("current", _METADATA, ()),
    ("refresh", _METADATA, ()),
    ("encryption", "org.apache.iceberg.encryption.EncryptionManager", ()),
    ("metadataFileLocation", _TEXT, (_TEXT,)),
    ("locationProvider", "org.apache.iceberg.io.LocationProvider", ()),
    ("newSnapshotId", "long", ()),
    ("temp", _OPERATIONS, (_METADATA,)),
)
"""Methods that the table's own operations answer: name, result, arguments (org.apache.iceberg.TableOperations)."""


class _Dispatch:
    """The handle that answers every method of `TableOperations`, made once per session: making it takes more than
    three hundred calls over the bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self._handles = handles = MethodHandles(bridge)
        # Java: (python, operations, shown, proxy, method, arguments) -> python.invoke(proxy, method, arguments)
        invoke = handles.method(_HANDLER, "invoke", _ANYTHING, _ANYTHING, _METHOD, _ARRAY)
        dispatch = handles.permute(invoke, _ANYTHING, _CALL, (0, 3, 4, 5))
        # Java: method -> method.getName()
        method_name = handles.getter(_METHOD, "getName", _TEXT)
        for name, result, arguments in _READS:
            # Java: (python, operations, shown, proxy, method, arguments) -> "<name>".equals(method.getName())
            #           ? <the read>(python, operations, shown, proxy, method, arguments)
            #           : <the dispatch of the names before>(python, operations, shown, proxy, method, arguments)
            equals = handles.bound(name, _ANYTHING, "equals", "boolean", _ANYTHING)
            has_name = handles.compose(method_name, equals.asType(handles.type_of("boolean", _TEXT)))
            read = self._read(name, result, *arguments)
            dispatch = handles.invoke.MethodHandles.guardWithTest(
                handles.drop_arguments(has_name, *_CALL[:4]),
                self._shown_or(read) if name == "current" else read,
                dispatch,
            )
        self._dispatch = dispatch

    def _read(self, name: str, result: str, *arguments: str) -> Any:
        handles = self._handles
        # Java: (operations, arguments) -> operations.<name>(arguments[0], …)
        read = handles.method(_OPERATIONS, name, result, *arguments)
        spread = read.asSpreader(handles.class_of(_ARRAY), len(arguments))
        return handles.permute(spread, _ANYTHING, _CALL, (1, 5))

    def _shown_or(self, read: Any) -> Any:
        handles = self._handles
        objects = handles.class_of("java.util.Objects")
        non_null = handles.lookup.findStatic(objects, "nonNull", handles.type_of("boolean", _ANYTHING))
        get = handles.getter(_REFERENCE, "get", _ANYTHING)
        # Java: (python, operations, shown, …) -> Objects.nonNull(shown.get()) ? shown.get() : <read>(python, …)
        return handles.invoke.MethodHandles.guardWithTest(
            handles.permute(handles.compose(get, non_null), "boolean", _CALL, (2,)),
            handles.permute(get, _ANYTHING, _CALL, (2,)),
            read,
        )

    def operations(self, python: Any, operations: Any, shown: Any) -> Any:
        """`TableOperations` that call these objects."""
        handle = self._handles.bind_arguments(self._dispatch, 0, python, operations, shown)
        return self._handles.as_proxy(_OPERATIONS, handle)


class GuardedTableOperations:
    """`TableOperations` that pass reads to the table's own operations and every other call to `gate`.

    `gate` is a Python object. It implements `commit`, `requireStrictCleanup`, and any method that a later
    Iceberg adds. `java` is the Java object for Iceberg.
    """

    def __init__(self, bridge: Bridge, gate: Any, operations: Any) -> None:
        self._bridge = bridge
        self._operations = operations
        self._shown = bridge.jvm.java.util.concurrent.atomic.AtomicReference()
        python = bridge.jvm.java.lang.reflect.Proxy.getInvocationHandler(gate)
        self.java = bridge.once(_Dispatch).operations(python, operations, self._shown)

    @contextmanager
    def showing(self, properties: Mapping[str, str]) -> Iterator[None]:
        """Inside the block the current metadata has these table properties too, unless the table sets them.

        An operation that is created in the block reads its settings from them. It commits metadata that it
        refreshes later, so the commit does not contain these properties.
        """
        metadata = self._operations.current()
        overlay = self._bridge.map({**properties, **dict(metadata.properties())}.items())
        self._shown.set(metadata.replaceProperties(overlay))
        try:
            yield
        finally:
            self._shown.set(None)
