"""Commits to a REST catalog with the requirements of `core.commits.table_rules`.

Iceberg's `RESTTableOperations.commit` computes its requirements from the changes and takes no others. This module
sends the same request with more requirements: to the same path, with the same client, headers and error handler. A
catalog that refuses the request as one that it does not understand gets Iceberg's own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from iceberg_maint.core.commits.table_rules import TableIds, impossible_requirements, requirements_of
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import OBJECT, STRING, MethodHandles
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, cause_classes, one_line

_log = logging.getLogger(__name__)

_REST_OPERATIONS = "org.apache.iceberg.rest.RESTTableOperations"
_RESPONSE = "org.apache.iceberg.rest.responses.LoadTableResponse"
EXCEPTIONS = "org.apache.iceberg.exceptions."
LOST_SWAP = EXCEPTIONS + "CommitFailedException"
_NOT_UNDERSTOOD = frozenset(
    {
        EXCEPTIONS + "BadRequestException",
        "java.lang.IllegalArgumentException",
        "java.lang.UnsupportedOperationException",
    }
)
"""What the client raises for the answers 400, 405, 406 and 501. The catalog has changed nothing then."""


def commit_with_requirements(
    bridge: Bridge, operations: Any, base: Any, metadata: Any, *, all_refs: bool
) -> None:
    """Commits `metadata` on `base`. In a REST catalog the schema, the specs, the sort order and the last column
    must still be those of `base`, with `all_refs` all its refs too.

    Raises what `TableOperations.commit` raises.
    """
    if str(operations.getClass().getName()) != _REST_OPERATIONS:
        operations.commit(base, metadata)
        return
    ids = _table_ids(base)
    requirements = _parsed(bridge, requirements_of(ids, ids.refs if all_refs else ()))
    updates = metadata.changes()
    requirements.addAll(bridge.iceberg.UpdateRequirements.forUpdateTable(base, updates))
    try:
        _post(bridge, operations, requirements, updates)
    except JVM_ERRORS as why:
        if not _NOT_UNDERSTOOD.intersection(cause_classes(why)[:1]):
            raise
        _log.warning("the catalog refuses the requirements of a commit (%s)", one_line(why))
        operations.commit(base, metadata)


def refusal(bridge: Bridge, operations: Any) -> str | None:
    """Why the catalog of these operations does not take the requirements; None if it takes them, or is no REST
    catalog. The request that asks changes nothing: no table meets its requirements."""
    if str(operations.getClass().getName()) != _REST_OPERATIONS:
        return None
    try:
        _post(bridge, operations, _parsed(bridge, impossible_requirements()), bridge.list(()))
    except JVM_ERRORS as why:
        return None if cause_classes(why)[:1] == (LOST_SWAP,) else one_line(why)
    return "it accepted a commit with requirements that no table meets"


def _table_ids(base: Any) -> TableIds:
    """The ids of a Java `TableMetadata`."""
    refs: Mapping[str, Any] = base.refs()
    return TableIds(
        table_uuid=str(base.uuid()),
        format_version=int(base.formatVersion()),
        schema_id=int(base.currentSchemaId()),
        last_column_id=int(base.lastColumnId()),
        spec_id=int(base.defaultSpecId()),
        last_partition_id=int(base.lastAssignedPartitionId()),
        sort_order_id=int(base.defaultSortOrderId()),
        refs={str(name): int(refs[name].snapshotId()) for name in refs},
    )


def _parsed(bridge: Bridge, requirements: list[dict[str, Any]]) -> Any:
    parse = bridge.static("org.apache.iceberg.UpdateRequirementParser", "fromJson")
    return bridge.list(parse(json.dumps(requirement)) for requirement in requirements)


def _post(bridge: Bridge, operations: Any, requirements: Any, updates: Any) -> None:
    rest = bridge.iceberg.rest
    request = rest.requests.UpdateTableRequest(requirements, updates)
    client, path, headers = (
        _field(bridge, operations, name) for name in ("client", "path", "mutationHeaders")
    )
    client.post(path, request, bridge.java_class(_RESPONSE), headers, rest.ErrorHandlers.tableCommitHandler())


def _field(bridge: Bridge, operations: Any, name: str) -> Any:
    field = bridge.java_class(_REST_OPERATIONS).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(operations)


_OPERATIONS = "org.apache.iceberg.TableOperations"
_METADATA = "org.apache.iceberg.TableMetadata"
_METHOD, _ARRAY = "java.lang.reflect.Method", "[Ljava.lang.Object;"
_HANDLER = "java.lang.reflect.InvocationHandler"
_REFERENCE = "java.util.concurrent.atomic.AtomicReference"
_CALL = (_HANDLER, _OPERATIONS, _REFERENCE, OBJECT, _METHOD, _ARRAY)
"""Arguments of a call: the gate, the table's operations, the metadata to show, and proxy, method and arguments of
the call itself."""

_READS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("io", "org.apache.iceberg.io.FileIO", ()),
    ("current", _METADATA, ()),
    ("refresh", _METADATA, ()),
    ("encryption", "org.apache.iceberg.encryption.EncryptionManager", ()),
    ("metadataFileLocation", STRING, (STRING,)),
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
        invoke = handles.method(_HANDLER, "invoke", OBJECT, OBJECT, _METHOD, _ARRAY)
        dispatch = handles.permute(invoke, OBJECT, _CALL, (0, 3, 4, 5))
        # Java: method -> method.getName()
        method_name = handles.method(_METHOD, "getName", STRING)
        for name, result, arguments in _READS:
            # Java: (python, operations, shown, proxy, method, arguments) -> "<name>".equals(method.getName())
            #           ? <the read>(python, operations, shown, proxy, method, arguments)
            #           : <the dispatch of the names before>(python, operations, shown, proxy, method, arguments)
            equals = handles.bound(name, OBJECT, "equals", "boolean", OBJECT)
            has_name = handles.compose(method_name, equals.asType(handles.type_of("boolean", STRING)))
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
        return handles.permute(spread, OBJECT, _CALL, (1, 5))

    def _shown_or(self, read: Any) -> Any:
        handles = self._handles
        non_null = handles.static_method("java.util.Objects", "nonNull", "boolean", OBJECT)
        get = handles.method(_REFERENCE, "get", OBJECT)
        # Java: (python, operations, shown, …) -> Objects.nonNull(shown.get()) ? shown.get() : <read>(python, …)
        return handles.invoke.MethodHandles.guardWithTest(
            handles.permute(handles.compose(get, non_null), "boolean", _CALL, (2,)),
            handles.permute(get, OBJECT, _CALL, (2,)),
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
