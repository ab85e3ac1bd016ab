"""Reads docs/start/first-hour.md: its commands with the output that it promises, and what happens between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "start" / "first-hour.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```$|^<!-- do: (.*?) -->$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"\[exit (\d)\]")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, the texts that its output contains in this order, and its exit code."""

    line: str
    output: tuple[str, ...] = ()
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Deed:
    """What happens to the lake before the next command."""

    what: str


def steps(text: str) -> list[Command | Deed]:
    """The steps of the page, in order."""
    found: list[Command | Deed] = []
    for block, deed in _BLOCK.findall(text):
        found += [Deed(deed)] if deed else _commands(block)
    return found


def _commands(block: str) -> list[Command]:
    commands: list[Command] = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, *rest = part.splitlines()
        exits = [int(m[1]) for r in rest if (m := _EXIT.fullmatch(r))]
        output = tuple(r for r in rest if not _EXIT.fullmatch(r))
        commands.append(Command(line, output, exits[0] if exits else 0))
    return commands


def missing(command: Command, printed: str) -> list[str]:
    """The promised texts that the output lacks, apart from spaces and line ends. `…` stands for any text."""
    words = " ".join(printed.split())
    lacking, place = [], 0
    for promise in command.output:
        pattern = ".*?".join(re.escape(" ".join(part.split())) for part in promise.split("…"))
        if match := re.compile(pattern).search(words, place):
            place = match.end()
        else:
            lacking.append(promise)
    return lacking
