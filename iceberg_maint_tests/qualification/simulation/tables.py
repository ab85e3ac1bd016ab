"""Tables that are due for one kind of work, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint_tests.qualification.simulation.lake import KEY, Lake
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable

_HOUR_MS = 3_600_000


def small_files(lake: Lake, table: SimTable) -> None:
    """Six small files of two rows: a bin-pack."""
    lake.append(table, "p=a", 6)


def marked_rows(lake: Lake, table: SimTable) -> None:
    """One file of enough bytes, half of its rows marked: a rewrite that applies position deletes."""
    data = lake.new_file(table, "p=a", [lake.new_key() * KEY for _ in range(20)], table.next_number())
    table.commit([data], "append")
    rows = sorted(lake.content[data.path])[:10]
    marks = lake.new_file(table, "p=a", rows, table.next_number(), FileKind.POSITION_DELETES, of=data.path)
    table.commit([*table.live, marks], "overwrite")


def small_files_under_equality_deletes(lake: Lake, table: SimTable) -> None:
    """Small files with upserted keys: an anti-join rewrite."""
    small_files(lake, table)
    lake.upsert(table, "p=a", 3)
    lake.now_ms += _HOUR_MS


def equality_deletes(lake: Lake, table: SimTable) -> None:
    """One healthy file under an equality delete: a conversion."""
    keys = [lake.new_key() for _ in range(20)]
    table.commit([lake.new_file(table, "p=a", [k * KEY for k in keys], table.next_number())], "append")
    gone = lake.new_file(table, "p=a", keys[:1], table.next_number(), FileKind.EQUALITY_DELETES)
    table.commit([*table.live, gone], "delete")
    lake.now_ms += _HOUR_MS


def dangling_equality_deletes(lake: Lake, table: SimTable) -> None:
    """An equality delete older than all data: a commit that only drops it."""
    gone = lake.new_file(table, "p=a", [1], table.next_number(), FileKind.EQUALITY_DELETES)
    table.commit([gone], "delete")
    rows = [lake.new_key() * KEY for _ in range(20)]
    table.commit([*table.live, lake.new_file(table, "p=a", rows, table.next_number())], "append")
    lake.now_ms += _HOUR_MS


def many_position_deletes(lake: Lake, table: SimTable) -> None:
    """One healthy file with three position delete files: they become one."""
    rows = [lake.new_key() * KEY for _ in range(20)]
    data = lake.new_file(table, "p=a", rows, table.next_number())
    table.commit([data], "append")
    for row in rows[:3]:
        marks = lake.new_file(
            table, "p=a", [row], table.next_number(), FileKind.POSITION_DELETES, of=data.path
        )
        table.commit([*table.live, marks], "overwrite")


WORK: dict[Callable[[Lake, SimTable], None], Operation] = {
    small_files: Operation.REWRITE_DATA_FILES,
    marked_rows: Operation.REWRITE_DATA_FILES,
    small_files_under_equality_deletes: Operation.REWRITE_DATA_FILES,
    equality_deletes: Operation.CONVERT_EQUALITY_DELETES,
    dangling_equality_deletes: Operation.CONVERT_EQUALITY_DELETES,
    many_position_deletes: Operation.REWRITE_POSITION_DELETE_FILES,
}
"""Each kind of work with the operation that does it."""
