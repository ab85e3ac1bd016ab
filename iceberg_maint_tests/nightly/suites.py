"""The list of suites, benches and demos, the record of their newest runs, and the page of it.

Needs nothing but Python's own library.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

LIST = Path(__file__).with_name("suites.toml")
PROJECT = LIST.parents[2]
PASSED = "passed"
VARIABLES = {"qualify": "SUITE", "bench": "BENCH", "demo": "DEMO"}
"""The variable of `make` that names one, by target."""
HEAD = """\
# Suites and benches

The newest run of every suite and bench, each within its time limit. `make nightly` runs them one after another, and adds a
row when a suite ends. A timed bench is comparable only with one on an idle machine.

| Suite | Size | Commit | Date | Minutes | Result |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite, bench or demo, or a target of `make`. `suites.toml` says what the fields mean."""

    kind: str
    name: str
    size: str = ""
    minutes: float = 0
    about: str = ""
    command: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[str] = ()
    nightly: str = ""
    programs: Sequence[str] = ()

    @property
    def title(self) -> str:
        """Its name in the record."""
        return self.name if self.kind == "make" else f"{self.kind}-{self.name}"

    def call(self) -> str:
        """How a person calls it."""
        if self.kind == "make":
            return f"make {self.name}"
        return f"make {self.kind} {VARIABLES[self.kind]}={self.name}"

    def shell(self) -> str:
        """The command line of the nightly run, at the top of the checkout."""
        return f"{self.call()} {self.nightly}".strip()

    def line(self, values: Mapping[str, str]) -> str:
        """Its command with these values of its options, and `ARGS` at the end.

        Raises ValueError for another option.
        """
        if unknown := sorted(set(values) - {*self.options, "ARGS"}):
            known = ", ".join([*self.options, "ARGS"])
            raise ValueError(f"{self.call()} has no option {', '.join(unknown)}. Fix: use one of {known}.")
        text = self.command
        for name, value in (self.options | values).items():
            text = text.replace(f"{{{name}}}", value)
        return f"{text} {values.get('ARGS', '')}".strip()

    def missing(self) -> list[str]:
        """Programs of the nightly run that are not installed."""
        return [program for program in self.programs if shutil.which(program) is None]


@dataclass(frozen=True, slots=True)
class Row:
    """The newest run of a suite: the commit of the checkout, the minute in UTC, and how it ended."""

    suite: str
    commit: str
    date: str
    minutes: float
    result: str


def load(path: Path = LIST) -> list[Suite]:
    """The entries in the order of the list."""
    kinds = tomllib.loads(path.read_text("utf-8"))
    return [Suite(kind, name, **entry) for kind, of in kinds.items() for name, entry in of.items()]


def named(kind: str, name: str, suites: Iterable[Suite]) -> Suite:
    """The suite of this kind and name. Raises ValueError if there is none."""
    of_kind = {s.name: s for s in suites if s.kind == kind}
    if name not in of_kind:
        raise ValueError(f"{VARIABLES[kind]}={name} is not in the list. Fix: `make {kind}` prints the names.")
    return of_kind[name]


def check_call(words: Sequence[str], suites: Sequence[Suite]) -> None:
    """Raises ValueError if a call such as `make qualify SUITE=kill ARGS=--fresh` names a suite or option that is not."""
    values = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    kind = words[1]
    if kind in VARIABLES and VARIABLES[kind] in values:
        named(kind, values.pop(VARIABLES[kind]), suites).line(values)


def select(
    suites: Iterable[Suite], words: Sequence[str] = (), shard: tuple[int, int] = (1, 1)
) -> list[Suite]:
    """The suites of these names, or with one of the words in their names, or all; of these one shard, (number, count),
    shortest limit first."""
    number, count = shard
    suites = [s for s in suites if s.minutes]
    titles = {s.title for s in suites}
    chosen = [
        s
        for s in suites
        if not words or any(w == s.title or (w not in titles and w in s.title) for w in words)
    ]
    return sorted(chosen, key=lambda s: s.minutes)[number - 1 :: count]


def read(record: Path) -> dict[str, Row]:
    """The rows by suite."""
    if not record.exists():
        return {}
    return {row["suite"]: Row(**row) for row in json.loads(record.read_text("utf-8"))}


def write(record: Path, rows: Mapping[str, Row], suites: Sequence[Suite]) -> None:
    """Writes the record, a line per row, and its page beside it."""
    names = [s.title for s in suites if s.title in rows]
    lines = ",\n".join(json.dumps(asdict(rows[name])) for name in names)
    record.write_text(f"[\n{lines}\n]\n" if names else "[]\n", "utf-8")
    record.with_suffix(".md").write_text(page(rows, suites), "utf-8")


def page(rows: Mapping[str, Row], suites: Sequence[Suite]) -> str:
    """A line per suite that has run, and the names of the others."""
    lines = []
    for suite in suites:
        if suite.title in rows:
            row = rows[suite.title]
            lines.append(
                f"| `{suite.title}` | {suite.size} | {row.commit} | {row.date} | {row.minutes:g} | {row.result} |\n"
            )
    others = ", ".join(f"`{s.title}`" for s in suites if s.minutes and s.title not in rows)
    return HEAD + "".join(lines) + (f"\nNot run by `make nightly` yet: {others}.\n" if others else "")


def merge(records: Iterable[Path]) -> dict[str, Row]:
    """The newest row of every suite."""
    newest: dict[str, Row] = {}
    for record in records:
        for name, row in read(record).items():
            if name not in newest or row.date > newest[name].date:
                newest[name] = row
    return newest
