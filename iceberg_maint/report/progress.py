"""A progress bar per table of `run`, on a terminal only."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from iceberg_maint.report.formatting import escape_control_chars


class _NotedProgress(Progress):
    """A progress bar with a line of text below it, which may be longer than the bar leaves room for."""

    note = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.note:
            yield Text(f"  {self.note}")


class RunProgress:
    """Progress bars of batches on `console`; shows nothing if `console` is no terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = _NotedProgress(
            TextColumn("{task.description}"),
            BarColumn(20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, name: str, total: int | None, note: str = "") -> None:
        """Replaces the current bar by a new one."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(escape(escape_control_chars(name)), total=total)
        self.note(note)

    def note(self, text: str) -> None:
        """Shows the current work."""
        self._progress.note = escape_control_chars(text)
        self._progress.refresh()

    def total(self, count: int) -> None:
        """Sets the number of steps."""
        if self._task is not None:
            self._progress.update(self._task, total=count)

    def step(self) -> None:
        """Advances the bar by one step."""
        if self._task is not None:
            self._progress.advance(self._task)
