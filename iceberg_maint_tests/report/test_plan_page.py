"""What `plan` states of the table before and after."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from iceberg_maint.core.model.table_state import LiveFile
from iceberg_maint.report.plan_page import draw_plans, totals_of
from iceberg_maint_tests.support.core.values import (
    decide,
    delete,
    measure_files,
    plan,
    policy_of,
    small,
    table_of,
)


def drawn(*deletes: LiveFile) -> list[str]:
    """The line of delete files of a rewrite of six small files."""
    table, policy = table_of([*small(6), *deletes]), policy_of()
    made, measured = plan(table, policy), measure_files(table, policy.rewrite_data_files)
    text = StringIO()
    parts = [(made, decide(table, policy), None)]
    draw_plans(Console(file=text, width=200), "lake.db.t", measured, parts, advised=False)
    before, after = totals_of(measured, [made])
    assert (before.data_files, after.data_files) == (6, 1)
    return [" ".join(line.split()) for line in text.getvalue().splitlines() if "delete files" in line]


def test_rewrite_drops_the_deletes_of_its_data_files_alone() -> None:
    own = [delete(f"d{i}", of=f"p=a/{i}") for i in range(6)]
    assert drawn(*own) == ["delete files 6 0"]
    assert drawn(*own, delete("of-the-partition")) == ["delete files 7 1"]
