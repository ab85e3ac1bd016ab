"""The list of suites, the record of their newest runs, and the page of it. Needs nothing but Python's own library."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

LIST = Path(__file__).with_name("suites.toml")
PROJECT = LIST.parents[2]
PASSED = "passed"
HEAD = """\
# Suites and benches

The newest run of every suite and bench, each within its time limit. `make nightly` runs them one after another, and adds a
row when a suite ends. A timed bench is comparable only with one on an idle machine.

| Suite | Size | Commit | Date | Minutes | Result |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite or bench. `minutes` is its time limit."""

    name: str
    size: str
    minutes: float
    command: str = ""
    arguments: str = ""
    needs: Sequence[str] = ()

    def shell(self) -> str:
        """The command line that runs it at the top of the checkout."""
        return self.command or f"make {self.name} {self.arguments}".strip()

    def missing(self) -> list[str]:
        """Needed programs that are not installed."""
        return [program for program in self.needs if shutil.which(program) is None]


@dataclass(frozen=True, slots=True)
class Row:
    """The newest run of a suite: the commit of the checkout, the minute in UTC, and how it ended."""

    suite: str
    commit: str
    date: str
    minutes: float
    result: str


def load(path: Path = LIST) -> list[Suite]:
    """The suites in the order of the list."""
    entries = tomllib.loads(path.read_text("utf-8"))["suites"]
    return [Suite(name, **entry) for name, entry in entries.items()]


def select(
    suites: Iterable[Suite], words: Sequence[str] = (), shard: tuple[int, int] = (1, 1)
) -> list[Suite]:
    """The suites of these names, or with one of the words in their names, or all; of these one shard, (number, count),
    shortest limit first."""
    number, count = shard
    suites = list(suites)
    names = {s.name for s in suites}
    named = [
        s for s in suites if not words or any(w == s.name or (w not in names and w in s.name) for w in words)
    ]
    return sorted(named, key=lambda s: s.minutes)[number - 1 :: count]


def read(record: Path) -> dict[str, Row]:
    """The rows by suite."""
    if not record.exists():
        return {}
    return {row["suite"]: Row(**row) for row in json.loads(record.read_text("utf-8"))}


def write(record: Path, rows: Mapping[str, Row], suites: Sequence[Suite]) -> None:
    """Writes the record, a line per row, and its page beside it."""
    names = [s.name for s in suites if s.name in rows]
    lines = ",\n".join(json.dumps(asdict(rows[name])) for name in names)
    record.write_text(f"[\n{lines}\n]\n" if names else "[]\n", "utf-8")
    record.with_suffix(".md").write_text(page(rows, suites), "utf-8")


def page(rows: Mapping[str, Row], suites: Sequence[Suite]) -> str:
    """A line per suite that has run, and the names of the others."""
    lines = []
    for suite in suites:
        if suite.name in rows:
            row = rows[suite.name]
            lines.append(
                f"| `{suite.name}` | {suite.size} | {row.commit} | {row.date} | {row.minutes:g} | {row.result} |\n"
            )
    others = ", ".join(f"`{s.name}`" for s in suites if s.name not in rows)
    return HEAD + "".join(lines) + (f"\nNot run by `make nightly` yet: {others}.\n" if others else "")


def merge(records: Iterable[Path]) -> dict[str, Row]:
    """The newest row of every suite."""
    newest: dict[str, Row] = {}
    for record in records:
        for name, row in read(record).items():
            if name not in newest or row.date > newest[name].date:
                newest[name] = row
    return newest
