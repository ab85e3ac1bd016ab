"""The commands `init` and `shards`: a first configuration with a DAGSTER_HOME, and its code locations."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import textwrap
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import click

from iceberg_maint.cli.command import command
from iceberg_maint.cli.context import Session
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.machine.files import private_folder, private_opener

if TYPE_CHECKING:
    from rich.console import Console

    from iceberg_maint.config.catalogs import CatalogConfig

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
        _replace(path, _workspace_text(number))
    reload = [] if before == number else [_RELOAD]

    def draw(console: Console) -> None:
        changed = "has" if before == number else f"had {_locations(before)} and now has"
        lines = [f"{path} {changed} {_locations(number)}.", *reload]
        console.print("\n".join(lines), markup=False, soft_wrap=True)

    session.emit({"workspace": str(path), "shards": number, "shards_before": before, "next": reload}, draw)


def _workspace_text(number: int) -> str:
    """The text of the workspace file that `init` writes for this number of shards."""
    from iceberg_maint.defs.names import WORKSPACE, home_file, sharded_workspace

    return home_file(WORKSPACE) if number == 1 else sharded_workspace(number)


def _shards_of(text: str, path: Path) -> int:
    """The number of shards of a workspace file that `init` or `shards` wrote. Raises ConfigurationError ICM-100, which
    says what differs, for any other."""
    named = re.search(r"\bshard_\d+_of_(\d{1,3})\b", text)
    number = int(named[1]) if named and 1 <= int(named[1]) <= MAX_SHARDS else 1
    expected = _workspace_text(number)
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


_CONFIG = "iceberg_maint.yaml"
_HOME = "dagster_home"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--catalog-type",
    type=click.Choice(["jdbc", "rest", "hive", "glue"]),
    default="jdbc",
    show_default=True,
    help="Type of the catalog.",
)
@click.option("--uri", help="Address of the catalog; without it a jdbc catalog is a SQLite file in FOLDER.")
@click.option("--warehouse", help="Root of new tables; without it, for SQLite in FOLDER, a folder there.")
@click.option("--ledger", help="Address of the ledger; without it a SQLite file in FOLDER.")
@click.option(
    "--all", "everything", is_flag=True, help="Write every key of the configuration with its default."
)
@command
def init(
    session: Session,
    folder: Path,
    catalog_type: str,
    uri: str | None,
    warehouse: str | None,
    ledger: str | None,
    everything: bool,
) -> None:
    """Write a commented configuration and a DAGSTER_HOME into FOLDER, the working directory by default.

    The configuration has what people set; with --all, every key.

    The mode is advise: no table is changed. A value may be '{env: NAME}'. init overwrites no file. It
    creates an empty SQLite catalog in FOLDER if there is none.
    """
    from iceberg_maint.config.load import EMBEDDED_CATALOG, check_text
    from iceberg_maint.defs.names import INSTANCE, WORKSPACE, home_file

    if session.config_path is not None:
        raise click.UsageError(f"init reads no configuration: it writes {_CONFIG} into FOLDER.")
    folder = folder.resolve()
    if "?" in str(folder):
        raise ConfigurationError(
            "ICM-100",
            f"{folder} has a question mark. A SQLite address cannot name a file in it.",
            "name another folder.",
        )
    own_catalog = folder / "catalog.db" if catalog_type == "jdbc" and uri is None else None
    if own_catalog is not None:
        uri, warehouse = f"sqlite:///{own_catalog}", warehouse or (folder / "warehouse").as_uri()
    config, home = folder / _CONFIG, folder / _HOME
    ledger = ledger or f"sqlite:///{folder / 'ledger.db'}"
    text = _text(catalog_type, uri, warehouse, ledger, everything=everything)
    files = {config: text, home / INSTANCE: home_file(INSTANCE), home / WORKSPACE: home_file(WORKSPACE)}
    _refuse_existing(files)
    checked = check_text(text, config, os.environ)
    _write(files)
    written = [str(path) for path in files]
    if own_catalog is not None and not own_catalog.exists():
        _make_catalog(checked.catalogs[EMBEDDED_CATALOG])
        written.append(str(own_catalog))

    quoted = {path: shlex.quote(str(path)) for path in (config, home, home / WORKSPACE)}
    variables = f"DAGSTER_HOME={quoted[home]} ICEBERG_MAINT_CONFIG={quoted[config]}"
    commands = [
        f"iceberg-maint doctor --config {quoted[config]}",
        f"iceberg-maint observe --config {quoted[config]}",
        f"{variables} dagster dev -w {quoted[home / WORKSPACE]}",
    ]

    def draw(console: Console) -> None:
        lines = [*(f"wrote {path}" for path in written), "", "Next:", *(f"  {line}" for line in commands)]
        console.print("\n".join(lines), markup=False, soft_wrap=True)

    session.emit(
        {
            "config": str(config),
            "dagster_home": str(home),
            "files": written,
            "next": commands,
        },
        draw,
    )


def _text(catalog_type: str, uri: str | None, warehouse: str | None, ledger: str, *, everything: bool) -> str:
    """The text of the configuration file. A key without a value becomes a comment. Only the text of everything has what
    the template has between `#+` and `#=`, and only the other its lines after `#-`."""
    template = resources.files("iceberg_maint.cli").joinpath("init.yaml").read_text(encoding="utf-8")
    template = re.sub(
        r"^#\+\n(.*?)^#=\n", r"\1" if everything else "", template, flags=re.MULTILINE | re.DOTALL
    )
    template = (
        re.sub(r"^#-.*\n", "", template, flags=re.MULTILINE) if everything else template.replace("#- ", "# ")
    )
    return Template(template).substitute(
        type=catalog_type,
        uri=_entry("uri", uri),
        warehouse=_entry("warehouse", warehouse),
        ledger=_scalar(ledger),
        policy=_policy_lines() if everything else "",
    )


def _policy_lines() -> str:
    """Every key of the policy but the mode as comments: its meaning, then the key with its default."""
    from iceberg_maint.core.policy.data import policy_keys

    lines: list[str] = []
    for key in policy_keys()[1:]:
        lines += textwrap.wrap(key.doc, 110, initial_indent="  # ", subsequent_indent="  # ")
        lines.append(f"  # {key.path}: {json.dumps(key.default)}")
    return "\n".join(lines)


def _entry(key: str, value: str | None) -> str:
    return f"# {key}:" if value is None else f"{key}: {_scalar(value)}"


def _scalar(value: str) -> str:
    """A text as YAML: quoted unless it is a reference to the environment."""
    reference = re.fullmatch(r"\{env: *\w+\}", value)
    return value if reference else json.dumps(value, ensure_ascii=False)


def _refuse_existing(files: dict[Path, str]) -> None:
    existing = [path for path in files if os.path.lexists(path)]
    if not existing:
        return
    exist, moved = ("exists", "file") if len(existing) == 1 else ("exist", "files")
    raise ConfigurationError(
        "ICM-100",
        f"{', '.join(map(str, existing))} {exist}. init overwrites no file.",
        f"name another folder, or move the {moved}.",
    )


def _make_catalog(catalog: CatalogConfig) -> None:
    """Creates the database of a SQLite catalog without tables."""
    from pyiceberg.catalog import load_catalog

    load_catalog(catalog.name, **catalog.pyiceberg_properties()).close()


def _write(files: dict[Path, str]) -> None:
    """Writes all files, or none of them."""
    written: list[Path] = []
    try:
        for path, text in files.items():
            private_folder(path.parent)
            with open(path, "x", encoding="utf-8", opener=private_opener) as file:
                written.append(path)
                file.write(text)
    except OSError as why:
        for path in written:
            path.unlink()
        raise ConfigurationError(
            "ICM-100", f"{path} cannot be written: {why.strerror}.", "name another folder."
        ) from why
