"""Finds habits of prose that readers stumble over, by the list in `.ci/prose.toml`: `python .ci/prose.py`.

Read are the pages of the project, and docstrings, messages and comments of the package. The rules behind the list are
in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).resolve().with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class Habit:
    """A regular expression (letter case ignored, a space is any white space) and what to write instead.
    `code` says whether the package is read too, or the pages only."""

    pattern: str
    better: str
    code: bool = False

    def lines(self, text: str) -> list[tuple[int, str]]:
        """(line number, words) of every place in a text."""
        expression = re.compile(self.pattern.replace(" ", r"\s+"), re.IGNORECASE)
        return [(text.count("\n", 0, m.start()) + 1, m.group()) for m in expression.finditer(text)]


@dataclass(frozen=True, slots=True)
class Rules:
    """The list: habits, and files that are not held to it yet (patterns of paths)."""

    habits: tuple[Habit, ...]
    exempt: tuple[str, ...]

    def sources(self) -> Iterator[tuple[Path, bool]]:
        """(file, whether it is code), by path."""
        pages = [
            *PROJECT.glob("*.md"),
            *(PROJECT / "docs").rglob("*.md"),
            *(PROJECT / ".github").rglob("*.md"),
        ]
        modules = (PROJECT / "iceberg_maint").rglob("*.py")
        for path in sorted([*pages, *modules]):
            if not any(path.relative_to(PROJECT).match(pattern) for pattern in self.exempt):
                yield path, path.suffix == ".py"

    def findings(self, text: str, *, code: bool) -> list[str]:
        """`line: words. Fix: …` for every habit in a text, by line."""
        return [
            f"{line}: '{' '.join(words.split())}'. Fix: {habit.better}"
            for line, words, habit in sorted(
                (
                    (line, words, h)
                    for h in self.habits
                    if h.code or not code
                    for line, words in h.lines(text)
                ),
                key=lambda found: found[:2],
            )
        ]


def load(text: str) -> Rules:
    """The rules that a TOML text holds."""
    document = tomllib.loads(text)
    return Rules(tuple(Habit(**entry) for entry in document["habit"]), tuple(document["exempt"]))


def prose_of_page(text: str) -> str:
    """The text without fenced blocks and code spans, every line where it was."""
    return re.sub(
        r"^```.*?^```$|`[^`\n]*`",
        lambda m: "\n" * m.group().count("\n"),
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


def prose_of_module(source: str) -> str:
    """The comments and texts of a module, each at its line, nothing else."""
    lines: list[str] = [""] * (source.count("\n") + 2)

    def put(line: int, text: str) -> None:
        for offset, part in enumerate(text.split("\n")):
            at = min(line - 1 + offset, len(lines) - 1)
            lines[at] = f"{lines[at]} {part}"

    for node in ast.walk(ast.parse(source)):
        # A text without white space is a name or a key, not prose.
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and any(map(str.isspace, node.value))
        ):
            put(node.lineno, node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            put(token.start[0], token.string.lstrip("# "))
    return "\n".join(lines)


def main() -> int:
    """Prints every finding; 1 where there is one."""
    rules = load(LIST.read_text("utf-8"))
    count = 0
    for path, code in rules.sources():
        text = path.read_text("utf-8")
        for finding in rules.findings(prose_of_module(text) if code else prose_of_page(text), code=code):
            print(f"{path.relative_to(PROJECT)}:{finding}")
            count += 1
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
