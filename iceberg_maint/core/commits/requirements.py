"""Requirements of a commit to a REST catalog (REST specification: TableRequirement).

A REST catalog applies a commit to the table as it is when the request arrives, if the requirements of the request
hold. Iceberg's client requires little: of a new snapshot the table's UUID and the head of its branch, of an expiry
the UUID alone (`UpdateRequirements.forUpdateTable`). The requirements here say that the table is still the one that
the gate checked, as far as requirements can say it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_PARTITION_ID_SINCE = 2
"""Metadata of format v1 may lack `last-partition-id`. Client and server may then compute different ids."""
_NO_ID = -2147483648
_NO_UUID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class TableIds:
    """The ids of table metadata that requirements compare. `refs` are the snapshot ids of refs by name."""

    table_uuid: str
    format_version: int
    schema_id: int
    last_column_id: int
    spec_id: int
    last_partition_id: int
    sort_order_id: int
    refs: Mapping[str, int]


def requirements_of(base: TableIds, refs: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Returns what a commit on `base` requires, as JSON of the REST specification. Each of `refs` must still
    point at its snapshot."""
    requirements: list[dict[str, Any]] = [
        {"type": "assert-table-uuid", "uuid": base.table_uuid},
        {"type": "assert-current-schema-id", "current-schema-id": base.schema_id},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": base.last_column_id},
        {"type": "assert-default-spec-id", "default-spec-id": base.spec_id},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": base.sort_order_id},
    ]
    if base.format_version >= _PARTITION_ID_SINCE:
        requirements.append(
            {
                "type": "assert-last-assigned-partition-id",
                "last-assigned-partition-id": base.last_partition_id,
            }
        )
    for name in sorted(refs):
        requirements.append(
            {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": base.refs[name]},
        )
    return requirements


def impossible_requirements() -> list[dict[str, Any]]:
    """Returns one requirement of each type that `requirements_of` uses. No table meets them, so a request with
    them changes nothing: a catalog that knows them answers with a conflict."""
    nothing = TableIds(
        _NO_UUID, _PARTITION_ID_SINCE, _NO_ID, _NO_ID, _NO_ID, _NO_ID, _NO_ID, {"main": _NO_ID}
    )
    return requirements_of(nothing, nothing.refs)
