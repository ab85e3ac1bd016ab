"""The table that a commit swaps: the rules of every commit on its metadata, and what a REST catalog is asked to require.

A REST catalog applies a commit to the table as it is when the request arrives, if the requirements of the request
hold (REST specification: TableRequirement). Iceberg's client requires little: of a new snapshot the table's UUID and the head of its branch, of an expiry
the UUID alone (`UpdateRequirements.forUpdateTable`). The requirements here say that the table is still the one that
the gate checked, as far as requirements can say it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.commits.change import ROW_IDS_SINCE, Rule, TableVersion, Violation
from iceberg_maint.core.decisions.waits import PublishWait

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


def check_publishes(wait: PublishWait | None) -> tuple[Violation, ...]:
    """Returns the rule that a commit to main would break while something that builds on its head is to be
    published."""
    if wait is None:
        return ()
    return (Violation(Rule.PENDING_PUBLISH, f"{wait.names} builds on main's head and is to be published"),)


def changes_only(base: TableVersion, new: TableVersion, what: str) -> Iterator[Violation]:
    """The new snapshot must follow main's head, and the commit may change only `what` in the table."""
    if new.parent_id != base.snapshot_id:
        yield Violation(
            Rule.METADATA,
            f"the new snapshot's parent is {new.parent_id}, main's head is {base.snapshot_id}",
        )
    base_facts = (base.table_uuid, base.format_version, base.schema_id, base.specs)
    if base_facts != (new.table_uuid, new.format_version, new.schema_id, new.specs):
        yield Violation(Rule.METADATA, f"the commit changes more of the table than its {what}")
    yield from assigned_ids(base, new)


def assigned_ids(base: TableVersion, new: TableVersion) -> Iterator[Violation]:
    """A commit gives ids from the base's next row id on, and raises that by at least the rows that it gives
    ids to. Otherwise two rows can have one id."""
    if base.format_version < ROW_IDS_SINCE:
        return
    if new.first_row_id != base.next_row_id:
        yield Violation(
            Rule.METADATA,
            f"the new snapshot gives row ids from {new.first_row_id}, the table's next row id is {base.next_row_id}",
        )
    if base.next_row_id is None or new.next_row_id is None:
        return
    with_ids = {m.path for m in base.manifests if m.first_row_id is not None}
    given = (m for m in new.manifests if not m.is_deletes and m.path not in with_ids)
    rows = sum((m.added_rows or 0) + (m.existing_rows or 0) for m in given)
    if new.next_row_id < base.next_row_id + rows:
        yield Violation(
            Rule.METADATA,
            f"the next row id would be {new.next_row_id}, {rows} rows get ids from {base.next_row_id}",
        )
