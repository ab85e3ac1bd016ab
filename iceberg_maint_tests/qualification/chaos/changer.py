"""Changes tables: columns come, go, get other names and wider types, specs change, tags are set and dropped."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from iceberg_maint_tests.qualification.chaos.journal import Answer
from iceberg_maint_tests.qualification.chaos.lake import ChaosTable
from iceberg_maint_tests.qualification.chaos.role import Role, note_of, start

PAUSE_SECONDS = 8.0
_TAGS = 3
"""Tags a table keeps at a time."""
_COLUMNS = 2
"""Columns a table keeps besides those it was made with."""


class Changer:
    """Evolves schemas and specs, and tags."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._numbers = itertools.count(1)
        self._tags: dict[str, deque[str]] = defaultdict(deque)
        self._columns: dict[str, deque[str]] = defaultdict(deque)

    def step(self, table: ChaosTable) -> None:
        """One change."""
        steps = (self._tag, self._tag, self._column, self._rename, self._widen, self._spec)
        self._role.rng.choice(steps)(str(table))

    def _tag(self, name: str) -> None:
        tags = self._tags[name]
        if len(tags) >= _TAGS:
            old = tags.popleft()
            self._change(name, "tag", lambda t: t.manageSnapshots().removeTag(old), {"drop_tag": old})
            return
        head = self._role.writers.load(name).currentSnapshot()
        if head is None:
            return
        snapshot, tag = int(head.snapshotId()), f"chaos-{next(self._numbers)}"
        made = {"tag": tag, "snapshot": snapshot}
        if self._change(name, "tag", lambda t: t.manageSnapshots().createTag(tag, snapshot), made):
            tags.append(tag)

    def _column(self, name: str) -> None:
        columns = self._columns[name]
        if len(columns) >= _COLUMNS:
            old = columns.popleft()
            dropped = {"drop_column": old}
            self._change(name, "schema", lambda t: t.updateSchema().deleteColumn(old), dropped)
            return
        column = f"extra_{next(self._numbers)}"
        kind = self._role.writers.iceberg.types.Types.fromPrimitiveString("long")
        if self._change(
            name, "schema", lambda t: t.updateSchema().addColumn(column, kind), {"column": column}
        ):
            columns.append(column)

    def _rename(self, name: str) -> None:
        now = note_of(self._role.writers.load(name))
        new = "remark" if now == "note" else "note"
        self._change(name, "schema", lambda t: t.updateSchema().renameColumn(now, new), {"rename": new})

    def _widen(self, name: str) -> None:
        table = self._role.writers.load(name)
        if str(table.schema().findType("v").toString()) == "int":
            wider = self._role.writers.iceberg.types.Types.fromPrimitiveString("long")
            self._change(name, "schema", lambda t: t.updateSchema().updateColumn("v", wider), {"widen": "v"})

    def _spec(self, name: str) -> None:
        """From no partitions by `p` to `p` and `g`, and back, one step at a time."""
        fields = [str(f.name()) for f in self._role.writers.load(name).spec().fields()]
        if fields in ([], ["p"]) and self._role.rng.random() < 0.7:
            more = "g" if fields else "p"
            self._change(name, "spec", lambda t: t.updateSpec().addField(more), {"spec": f"+{more}"})
        elif fields:
            less = fields[-1]
            self._change(name, "spec", lambda t: t.updateSpec().removeField(less), {"spec": f"-{less}"})

    def _change(self, name: str, kind: str, of: Callable[[Any], Any], change: dict[str, Any]) -> bool:
        def do(_token: str) -> None:
            of(self._role.writers.load(name)).commit()

        return self._role.journal.commit(name, kind, do, change=change) is not Answer.FAILED


def main(role: Role) -> None:
    role.run(Changer(role).step)


if __name__ == "__main__":
    start("changer", PAUSE_SECONDS, main)
