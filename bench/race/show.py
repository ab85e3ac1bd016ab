"""The output of the race."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from bench.race.verdict import Raced
from iceberg_maint.cli.pages.console import grid
from iceberg_maint.report.formatting import duration, number


def results(console: Console, raced: Sequence[Raced]) -> None:
    """Prints commits of the writer, commits of maintenance, and rows lost and resurrected."""
    shown = grid(
        "maintenance",
        "table",
        ">writer's commits",
        ">refused to it",
        ">tried",
        ">committed",
        ">rows lost",
        ">resurrected",
        "last failure",
    )
    for result in raced:
        shown.add_row(
            result.way.title,
            result.table.kind.name,
            number(result.writer.commits),
            number(result.writer.failed),
            number(result.tried),
            number(result.landed),
            _bad(result.lost),
            _bad(result.back),
            result.failure[:60],
        )
    console.print(shown)


def ending(console: Console, faults: Sequence[str], seconds: float) -> None:
    """Prints the verdict on this project in a sentence, and its faults."""
    verdict = "[red]not good[/]" if faults else "[green]good[/]"
    console.print(f"\n{verdict}: every maintenance commit read before and after, in {duration(seconds)}.")
    for fault in faults:
        console.print(f"  [red]{fault}[/]")


def _bad(count: int) -> str:
    return f"[red]{number(count)}[/]" if count else "0"
