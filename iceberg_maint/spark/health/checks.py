"""Compares what Spark has read with the manifest list. The reader of manifests compares the same per manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from iceberg_maint.core.model.table_state import FileKind, TableState
from iceberg_maint.errors import UnreadableTableError


def check_entries(state: TableState, groups: Iterable[Mapping[str, Any]]) -> None:
    """Raises UnreadableTableError ICM-101 if the live files or their rows are not as many as the manifest list counts,
    or if a sequence number is below the lowest that the list states.

    `groups` have `kind`, `files`, `records` and `oldest`, the lowest sequence number. A list without counts is not
    compared.
    """
    rows = list(groups)
    for is_deletes, what in ((False, "data"), (True, "delete")):
        own = [r for r in rows if (r["kind"] != FileKind.DATA.value) is is_deletes]
        manifests = [m for m in state.manifests if m.is_deletes is is_deletes]
        files = [n for m in manifests for n in (m.added_files, m.existing_files)]
        records = [n for m in manifests for n in (m.added_rows, m.existing_rows)]
        for column, listed in (("files", files), ("records", records)):
            counted = sum(r[column] for r in own)
            if None not in listed and counted != sum(n for n in listed if n is not None):
                raise _contradiction(
                    state,
                    f"Spark reads {counted} live {column} of {what} manifests, but the manifest list counts "
                    f"{sum(n for n in listed if n is not None)}",
                )
        lowest = min((m.min_sequence_number for m in manifests), default=0)
        oldest = min((r["oldest"] for r in own), default=lowest)
        if oldest < lowest:
            raise _contradiction(
                state,
                f"a live {what} entry has sequence number {oldest}, but the manifest list says that the lowest is "
                f"{lowest}",
            )


def _contradiction(state: TableState, why: str) -> UnreadableTableError:
    return UnreadableTableError(
        "ICM-101",
        f"{state.table}: {why}. The table was not measured.",
        "find out which of the two is wrong, and repair it before the next rewrite.",
    )
