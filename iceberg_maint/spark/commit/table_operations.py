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


class GuardedTableOperations:
    """`TableOperations` that pass reads to the table's own operations and every other call to `gate`.

    `gate` is a Python object. It implements `commit`, `requireStrictCleanup`, and any method that a later
    Iceberg adds. `java` is the Java object for Iceberg.
    """

    def __init__(self, bridge: Bridge, gate: Any, operations: Any) -> None:
        self._operations = operations
        self._handles = handles = MethodHandles(bridge)
        # Java: (proxy, method, arguments) -> python.invoke(proxy, method, arguments)
        python = bridge.jvm.java.lang.reflect.Proxy.getInvocationHandler(gate)
        dispatch = handles.bound(
            python, "java.lang.reflect.InvocationHandler", "invoke", _ANYTHING, _ANYTHING, _METHOD, _ARRAY
        )
        # Java: method -> method.getName()
        method_name = handles.getter(_METHOD, "getName", _TEXT)
        # Java: (arguments…) -> operations.<name>(arguments…)
        reads = {
            name: handles.bound(operations, _OPERATIONS, name, result, *arguments)
            for name, result, arguments in _READS
        }
        self._table_current = reads["current"]
        self._current = handles.invoke.VolatileCallSite(self._table_current)
        reads["current"] = self._current.dynamicInvoker()
        for name, read in reads.items():
            # Java: (proxy, method, arguments) -> "<name>".equals(method.getName())
            #           ? operations.<name>(arguments[0], …)
            #           : <the dispatch of the names before>(proxy, method, arguments)
            spread = read.asSpreader(handles.class_of(_ARRAY), read.type().parameterCount())
            equals = handles.bound(name, _ANYTHING, "equals", "boolean", _ANYTHING)
            has_name = handles.compose(method_name, equals.asType(handles.type_of("boolean", _TEXT)))
            dispatch = handles.invoke.MethodHandles.guardWithTest(
                handles.drop_arguments(has_name, _ANYTHING),
                handles.drop_arguments(spread.asType(handles.type_of(_ANYTHING, _ARRAY)), _ANYTHING, _METHOD),
                dispatch,
            )
        self.java = handles.as_proxy(_OPERATIONS, dispatch)

    @contextmanager
    def showing(self, properties: Mapping[str, str]) -> Iterator[None]:
        """Inside the block the current metadata has these table properties too, unless the table sets them.

        An operation that is created in the block reads its settings from them. It commits metadata that it
        refreshes later, so the commit does not contain these properties.
        """
        metadata = self._operations.current()
        overlay = metadata.replaceProperties(
            self._handles.bridge.map({**properties, **dict(metadata.properties())}.items())
        )
        handles = self._handles
        # Java: () -> overlay
        self._current.setTarget(handles.invoke.MethodHandles.constant(handles.class_of(_METADATA), overlay))
        try:
            yield
        finally:
            self._current.setTarget(self._table_current)
