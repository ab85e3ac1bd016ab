"""Commits to a REST catalog with the requirements of `core.commits.requirements`.

Iceberg's `RESTTableOperations.commit` computes its requirements from the changes and takes no others. This module
sends the same request with more requirements: to the same path, with the same client, headers and error handler. A
catalog that refuses the request as one that it does not understand gets Iceberg's own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from iceberg_maint.core.commits.requirements import TableIds, impossible_requirements, requirements_of
from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge, cause_classes, one_line

_log = logging.getLogger(__name__)

_OPERATIONS = "org.apache.iceberg.rest.RESTTableOperations"
_RESPONSE = "org.apache.iceberg.rest.responses.LoadTableResponse"
_EXCEPTIONS = "org.apache.iceberg.exceptions."
_LOST_SWAP = _EXCEPTIONS + "CommitFailedException"
_NOT_UNDERSTOOD = frozenset(
    {
        _EXCEPTIONS + "BadRequestException",
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
    if str(operations.getClass().getName()) != _OPERATIONS:
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
    if str(operations.getClass().getName()) != _OPERATIONS:
        return None
    try:
        _post(bridge, operations, _parsed(bridge, impossible_requirements()), bridge.list(()))
    except JVM_ERRORS as why:
        return None if cause_classes(why)[:1] == (_LOST_SWAP,) else one_line(why)
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
    field = bridge.java_class(_OPERATIONS).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(operations)
