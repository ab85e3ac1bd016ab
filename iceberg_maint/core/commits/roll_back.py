"""Plans the roll-back of a commit, so that later commits are kept where Iceberg can apply them again. Nothing here runs it."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.core.model.other_writers import is_maintenance, writer_name
from iceberg_maint.core.model.table_state import Snapshot, TableState


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what it does, and the statement of Spark SQL that does it. None for a step that people do."""

    text: str
    sql: str | None = None


@dataclass(frozen=True, slots=True)
class RollBack:
    """The steps to the table without the commit. `to_snapshot_id` is the snapshot before it. `kept` later snapshots are
    applied again, `repeated` ones must be written again by their writers, and `dropped` ones changed no row."""

    to_snapshot_id: int
    steps: tuple[Step, ...]
    kept: tuple[int, ...] = ()
    repeated: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


def plan_roll_back(state: TableState, snapshot_id: int) -> RollBack | None:
    """Returns the plan to undo this snapshot of main. None if it is no ancestor of the head, or if its parent is not
    retained: then there is nothing to undo, or nothing to return to.

    Later appends are picked in their order. The first later commit that changes rows in another way ends this: it, and
    every append after it that may build on it, must be written again.
    """
    chain = state.ancestors()
    place = next((n for n, s in enumerate(chain) if s.snapshot_id == snapshot_id), None)
    if place is None or place + 1 >= len(chain):
        return None
    parent, later = chain[place + 1], chain[:place][::-1]
    kept, repeated, dropped = _sorted(later)
    head, call = chain[0].snapshot_id, f"CALL {_quoted(state.table.catalog)}.system."
    table = _text(".".join(map(_quoted, state.table.in_catalog)))
    steps = [
        Step("Stop the writers and the maintainers of the table."),
        Step(
            "Keep the present state readable under a tag.",
            f"ALTER TABLE {'.'.join(map(_quoted, state.table.parts))} CREATE TAG before_roll_back_{head} "
            f"AS OF VERSION {head}",
        ),
        Step(
            f"Roll back to snapshot {parent.snapshot_id}, the last one before the commit.",
            f"{call}rollback_to_snapshot(table => {table}, snapshot_id => {parent.snapshot_id})",
        ),
        *(
            Step(
                f"Apply the append of snapshot {s.snapshot_id} again.",
                f"{call}cherrypick_snapshot(table => {table}, snapshot_id => {s.snapshot_id})",
            )
            for s in kept
        ),
        *(
            Step(
                f"Let {writer_name(s.summary, state.location)} write snapshot {s.snapshot_id} ({s.operation}) again: "
                "Iceberg cannot apply it to other files."
            )
            for s in repeated
        ),
    ]
    return RollBack(parent.snapshot_id, tuple(steps), _ids(kept), _ids(repeated), _ids(dropped))


def _sorted(
    later: tuple[Snapshot, ...],
) -> tuple[list[Snapshot], list[Snapshot], list[Snapshot]]:
    """Later snapshots, oldest first, that can be picked, that must be written again, and that changed no row."""
    kept: list[Snapshot] = []
    repeated: list[Snapshot] = []
    dropped: list[Snapshot] = []
    for snapshot in later:
        if is_maintenance(snapshot):
            dropped.append(snapshot)
        elif snapshot.operation == "append" and not repeated:
            kept.append(snapshot)
        else:
            repeated.append(snapshot)
    return kept, repeated, dropped


def _ids(snapshots: list[Snapshot]) -> tuple[int, ...]:
    return tuple(s.snapshot_id for s in snapshots)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    """A string literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
