"""What the race prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from iceberg_maint.demo.race.verdict import Raced
from iceberg_maint.report.console import grid
from iceberg_maint.report.formatting import duration, number


def results(console: Console, raced: Sequence[Raced]) -> None:
    """Side by side: commits of the writer, commits of maintenance, rows lost and brought back."""
    shown = grid(
        "maintenance",
        "table",
        ">writer's commits",
        ">refused to it",
        ">tried",
        ">landed",
        ">rows lost",
        ">brought back",
        "the last failure",
    )
    for one in raced:
        shown.add_row(
            one.way.title,
            one.table.kind.name,
            number(one.writer.commits),
            number(one.writer.failed),
            number(one.tried),
            number(one.landed),
            _bad(one.lost),
            _bad(one.back),
            one.failure[:60],
        )
    console.print(shown)


def ending(console: Console, faults: Sequence[str], seconds: float) -> None:
    """The verdict on this project in a sentence, and what is not as it should be."""
    verdict = "[red]not good[/]" if faults else "[green]good[/]"
    console.print(f"\n{verdict}: every maintenance commit read before and after, in {duration(seconds)}.")
    for fault in faults:
        console.print(f"  [red]{fault}[/]")


def _bad(count: int) -> str:
    return f"[red]{number(count)}[/]" if count else "0"
