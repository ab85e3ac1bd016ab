"""What Iceberg sees of a table whose commits pass a gate: Java's own operations but for the commit.

A rewrite of manifests asks for the metadata and the FileIO once per manifest and holds a lock as it
does; each answer from Python would be a way over a socket and back.
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
"""What the table's own operations answer: name, result, arguments (org.apache.iceberg.TableOperations)."""


class GuardedTableOperations:
    """`TableOperations` that hand everything to a table's own but what changes the table or asks about
    changing it (`commit`, `requireStrictCleanup`, and whatever a later Iceberg adds): that is asked of
    `gate`, a Python object that implements these. `java` is what Iceberg is given."""

    def __init__(self, bridge: Bridge, gate: Any, operations: Any) -> None:
        self._operations = operations
        self._handles = handles = MethodHandles(bridge)
        python = bridge.jvm.java.lang.reflect.Proxy.getInvocationHandler(gate)
        answer = handles.bound(
            python, "java.lang.reflect.InvocationHandler", "invoke", _ANYTHING, _ANYTHING, _METHOD, _ARRAY
        )
        name = handles.getter(_METHOD, "getName", _TEXT)
        own = {
            method: handles.bound(operations, _OPERATIONS, method, result, *takes)
            for method, result, takes in _READS
        }
        self._own_current = own["current"]
        self._current = handles.invoke.VolatileCallSite(self._own_current)
        own["current"] = self._current.dynamicInvoker()
        for method, read in own.items():
            spread = read.asSpreader(handles.class_of(_ARRAY), read.type().parameterCount())
            same = handles.bound(method, _ANYTHING, "equals", "boolean", _ANYTHING)
            asked = handles.then(name, same.asType(handles.type_of("boolean", _TEXT)))
            answer = handles.invoke.MethodHandles.guardWithTest(
                handles.after(asked, _ANYTHING),
                handles.after(spread.asType(handles.type_of(_ANYTHING, _ARRAY)), _ANYTHING, _METHOD),
                answer,
            )
        self.java = handles.as_proxy(_OPERATIONS, answer)

    @contextmanager
    def showing(self, properties: Mapping[str, str]) -> Iterator[None]:
        """Inside the block the current metadata shows these table properties, where the table has none of
        the name. For an operation that is made there and reads its settings as it is made: what it commits is
        built on metadata that it refreshes later."""
        metadata = self._operations.current()
        shown = metadata.replaceProperties(
            self._handles.bridge.map({**properties, **dict(metadata.properties())}.items())
        )
        handles = self._handles
        self._current.setTarget(handles.invoke.MethodHandles.constant(handles.class_of(_METADATA), shown))
        try:
            yield
        finally:
            self._current.setTarget(self._own_current)
