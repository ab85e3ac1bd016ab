"""What a table must hold: rows and deletes as plain values, applied in the order of the commits.

Nothing here knows files, sequence numbers or readers. An equality delete removes the rows that are
there when it is committed, in its scope and equal to one of its keys, null being equal to null; rows
of its own commit and of later ones stay. Whoever compacts or converts must not change that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Values = Mapping[int, Any]
"""Values of columns by field id; a column that is not among them is of a later schema."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a file is: what an equality delete of an unpartitioned spec reaches is everything."""

    spec_id: int
    partition: tuple[Any, ...]
    everywhere: bool

    def reaches(self, other: Scope) -> bool:
        """Whether a delete file here applies to a data file there."""
        return self.everywhere or (self.spec_id, self.partition) == (other.spec_id, other.partition)


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One row of one data file."""

    values: Values
    scope: Scope


@dataclass(frozen=True, slots=True)
class ModelDelete:
    """One equality delete file: the rows of its scope that have one of these values."""

    keys: Sequence[Values]
    scope: Scope


@dataclass
class Model:
    """The rows of a table. `defaults` are those of columns added later, by field id."""

    rows: list[ModelRow] = field(default_factory=list)
    defaults: dict[int, Any] = field(default_factory=dict)

    def commit(self, rows: Iterable[ModelRow], deletes: Iterable[ModelDelete]) -> int:
        """One commit of data and equality delete files; the number of rows deleted."""
        before = len(self.rows)
        for delete in deletes:
            self.rows = [row for row in self.rows if not self._deleted(row, delete)]
        removed = before - len(self.rows)
        self.rows.extend(rows)
        return removed

    def remove(self, field_id: int, values: Iterable[Any]) -> None:
        """Deletes rows for good by the value of one column, wherever they are."""
        gone = set(values)
        self.rows = [row for row in self.rows if self.value(row.values, field_id) not in gone]

    def move(self, scopes: Mapping[Any, Scope], field_id: int) -> None:
        """Rows, by their value of one column, that are in a file of another spec now."""
        for number, row in enumerate(self.rows):
            now = scopes[self.value(row.values, field_id)]
            if now.spec_id != row.scope.spec_id:
                self.rows[number] = replace(row, scope=now)

    def value(self, values: Values, field_id: int) -> Any:
        """A row's value of a column, as it reads today."""
        return values[field_id] if field_id in values else self.defaults.get(field_id)

    def read(self, field_ids: Iterable[int]) -> list[Values]:
        """The rows as these columns show them, nulls left out."""
        ids = list(field_ids)
        shown = ({i: self.value(row.values, i) for i in ids} for row in self.rows)
        return [{i: value for i, value in row.items() if value is not None} for row in shown]

    def _deleted(self, row: ModelRow, delete: ModelDelete) -> bool:
        return delete.scope.reaches(row.scope) and any(
            all(self.value(row.values, i) == value for i, value in key.items()) for key in delete.keys
        )
