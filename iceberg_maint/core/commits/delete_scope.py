"""DeleteIndex: finds which delete file applies to which data file (Iceberg spec, "Scan Planning").

Position deletes and deletion vectors apply up to their own sequence number: by path if they name one
file, else in their spec and partition. Equality deletes apply strictly below their sequence number: in
their spec and partition or, if their spec is unpartitioned, everywhere.

This is the second implementation of the rule that `core.model.table_state` states for planning. It imports
nothing of it on purpose: the gate judges plans, so a mistake of the planner must not be one of the gate too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iceberg_maint.core.commits.change import Entry, Scope
from iceberg_maint.core.model.table_state import FileKind, Manifest


def covers(delete: Entry, scope: Scope, unpartitioned: frozenset[int]) -> bool:
    """Returns whether a delete file's scope contains data files of this scope, regardless of sequence
    numbers. Not for deletes scoped to one file."""
    is_global = delete.kind is FileKind.EQUALITY_DELETES and delete.scope[0] in unpartitioned
    return is_global or delete.scope == scope


class DeleteIndex:
    """An index over delete files. It finds a delete that applies to a data file without a loop over all
    deletes."""

    def __init__(self, deletes: Iterable[Entry], unpartitioned: frozenset[int]) -> None:
        self._everywhere: Entry | None = None
        self._keys: dict[Scope, Entry] = {}
        self._positions: dict[Scope, Entry] = {}
        self._of_file: dict[str, list[Entry]] = {}
        for delete in deletes:
            if delete.kind is FileKind.EQUALITY_DELETES and delete.scope[0] in unpartitioned:
                self._everywhere = _newer(self._everywhere, delete)
            elif delete.kind is FileKind.EQUALITY_DELETES:
                self._keys[delete.scope] = _newer(self._keys.get(delete.scope), delete)
            elif delete.referenced_data_file is not None:
                self._of_file.setdefault(delete.referenced_data_file, []).append(delete)
            else:
                self._positions[delete.scope] = _newer(self._positions.get(delete.scope), delete)
        self._newest_keys = _newest_by_spec(self._keys)
        self._newest_positions = _newest_by_spec(self._positions)
        self._newest_of_file = max(
            (d.data_sequence_number for of_one in self._of_file.values() for d in of_one), default=-1
        )

    def find(self, data: Entry) -> Entry | None:
        """Returns a delete file that applies to this data file, None if there is none."""
        sequence_number = data.data_sequence_number
        for delete in (self._everywhere, self._keys.get(data.scope)):
            if delete is not None and sequence_number < delete.data_sequence_number:
                return delete
        shared = self._positions.get(data.scope)
        if shared is not None and sequence_number <= shared.data_sequence_number:
            return shared
        for delete in self._of_file.get(data.path, ()):
            if sequence_number <= delete.data_sequence_number:
                return delete
        return None

    def may_match(self, manifest: Manifest, *, checked: bool = True) -> bool:
        """Returns whether a manifest may list data files that a delete applies to, by the facts in the
        manifest list. If its `min_sequence_number` is not `checked` with its entries, they may have any
        number."""
        if manifest.is_deletes:
            return False
        oldest = manifest.min_sequence_number if checked else 0
        if self._everywhere is not None and oldest < self._everywhere.data_sequence_number:
            return True
        return (
            oldest < self._newest_keys.get(manifest.spec_id, -1)
            or oldest <= self._newest_positions.get(manifest.spec_id, -1)
            or oldest <= self._newest_of_file
        )


def dropped_deletes(removed: Sequence[Entry], added: Iterable[Entry]) -> list[Entry]:
    """Returns the removed delete files that may still apply to a live file. Excluded are deletes of one
    data file that is also removed, or that gets a deletion vector with at least as many positions."""
    removed_data = {e.path for e in removed if e.kind is FileKind.DATA}
    renewed = {e.referenced_data_file: e.record_count for e in added if e.kind is FileKind.DELETION_VECTOR}
    return [
        e
        for e in removed
        if e.kind is not FileKind.DATA
        and e.referenced_data_file not in removed_data
        and (e.referenced_data_file is None or renewed.get(e.referenced_data_file, -1) < e.record_count)
    ]


def _newer(current: Entry | None, delete: Entry) -> Entry:
    if current is None or current.data_sequence_number < delete.data_sequence_number:
        return delete
    return current


def _newest_by_spec(deletes: dict[Scope, Entry]) -> dict[int, int]:
    newest: dict[int, int] = {}
    for (spec_id, _), delete in deletes.items():
        newest[spec_id] = max(newest.get(spec_id, -1), delete.data_sequence_number)
    return newest
