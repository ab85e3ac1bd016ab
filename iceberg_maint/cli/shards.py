"""The command `shards`: shares the tables of an installed DAGSTER_HOME among another number of code locations."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iceberg_maint.cli.context import Session, command
from iceberg_maint.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

MAX_SHARDS = 100
_RELOAD = (
    "In Dagster: Deployment, Reload all. Or restart the web server. The daemon reads the file within a minute, or after "
    "a restart."
)


@click.command()
@click.argument("number", type=click.IntRange(1, MAX_SHARDS))
@click.argument(
    "home",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="DAGSTER_HOME",
    default=Path("dagster_home"),
)
@command
def shards(session: Session, number: int, home: Path) -> None:
    """Share the tables among NUMBER code locations of Dagster.

    It rewrites workspace.yaml in HOME, by default the folder that DAGSTER_HOME names, else dagster_home. It changes no
    other file, and refuses a workspace.yaml that init and this command did not write. Dagster must then load the file
    again.
    """
    from iceberg_maint.defs.names import WORKSPACE

    path = (home / WORKSPACE).resolve()
    before = _shards_of(_read(path), path)
    if before != number:
        _replace(path, _text(number))
    reload = [] if before == number else [_RELOAD]

    def draw(console: Console) -> None:
        changed = "has" if before == number else f"had {_locations(before)} and now has"
        lines = [f"{path} {changed} {_locations(number)}.", *reload]
        console.print("\n".join(lines), markup=False, soft_wrap=True)

    session.emit({"workspace": str(path), "shards": number, "shards_before": before, "next": reload}, draw)


def _text(number: int) -> str:
    """The text of the workspace file that `init` writes for this number of shards."""
    from iceberg_maint.defs.names import WORKSPACE, home_file, sharded_workspace

    return home_file(WORKSPACE) if number == 1 else sharded_workspace(number)


def _shards_of(text: str, path: Path) -> int:
    """The number of shards of a workspace file that `init` or `shards` wrote. Raises ConfigurationError ICM-100, which
    says what differs, for any other."""
    named = re.search(r"\bshard_\d+_of_(\d{1,3})\b", text)
    number = int(named[1]) if named and 1 <= int(named[1]) <= MAX_SHARDS else 1
    expected = _text(number)
    if text == expected:
        return number
    lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), lineterm="", n=0)
    changes = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    raise ConfigurationError(
        "ICM-100",
        f"{path} was changed since iceberg-maint wrote it, and shards replaces no line that another hand wrote. Changed "
        f"lines (- written, + there now): {'; '.join(changes) or 'the ends of the lines'}.",
        "undo the change and run the command again, or edit the code locations in the file as docs/how-to/dagster.md shows.",
    )


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as why:
        reason = why.strerror if isinstance(why, OSError) else "it is not UTF-8"
        raise ConfigurationError(
            "ICM-100",
            f"{path} cannot be read: {reason}.",
            "name the DAGSTER_HOME that iceberg-maint init wrote.",
        ) from why


def _replace(path: Path, text: str) -> None:
    """Replaces the file as a whole, or leaves it as it is."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.chmod(path.stat().st_mode & 0o777)
        unfinished.replace(path)
    except OSError as why:
        unfinished.unlink(missing_ok=True)
        raise ConfigurationError(
            "ICM-100",
            f"{path} cannot be written: {why.strerror}.",
            "run the command as the owner of the folder.",
        ) from why


def _locations(number: int) -> str:
    return "1 code location" if number == 1 else f"{number} code locations"
