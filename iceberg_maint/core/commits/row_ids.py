"""Row ids: the gate's rules that no row gets another id (Iceberg spec, "Row Lineage").

A table that is upgraded to format v3 has no row ids before its next commit, which gives ids to all rows. A
rewrite that was planned before that commit writes rows without ids. Its commit would give them new ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from iceberg_maint.core.commits.change import Change, Rule, TableVersion, Violation
from iceberg_maint.core.commits.intent import Intent

_SINCE_VERSION = 3


def row_id_violations(intent: Intent, change: Change) -> Iterator[Violation]:
    """Yields what would give new ids to rows that have ids."""
    base = change.base
    if base.format_version < _SINCE_VERSION:
        return
    lineage = change.lineage
    planned_without = lineage.pinned_exists and lineage.pinned_first_row_id is None
    if intent.removed and planned_without and base.first_row_id is not None:
        yield Violation(Rule.ROW_IDS, "rows have had ids only since the pinned snapshot")


def assigned_ids(base: TableVersion, new: TableVersion) -> Iterator[Violation]:
    """A commit gives ids from the base's next row id on, and raises that by at least the rows that it gives
    ids to. Otherwise two rows can have one id."""
    if base.format_version < _SINCE_VERSION:
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
