"""The group of all commands. A command's module is imported when the command is used."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from iceberg_maint import __version__
from iceberg_maint.cli.context import Session, session_of, shared_options
from iceberg_maint.errors import IcebergMaintError

# Command → (module, what it does), in the order a person meets them.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "Write a configuration and a DAGSTER_HOME to begin with."),
    "tables": ("inspect", "List tables with status, backlog and the time it takes."),
    "observe": ("inspect", "Measure health from metadata, store it, print it."),
    "plan": ("inspect", "Show what would run and why; changes nothing."),
    "why": ("inspect", "Explain a table's decision: policy, metrics, thresholds, what would change it."),
    "run": ("run", "Maintain tables; resumes what was left."),
    "history": ("history", "Show the records of what was done."),
    "reconcile": ("history", "Settle attempts whose process never reported back."),
    "verify": ("verify", "Prove a maintenance commit again, from its files."),
    "orphans": ("orphans", "Look for files that nothing reaches; set them aside, put them back."),
    "readers": ("readers", "Who reads a table's changes; expiry waits for them."),
    "pause": ("pause", "Leave a table, or the fleet, alone."),
    "resume": ("pause", "End a pause."),
    "release": ("pause", "Release partitions from quarantine and back-off."),
    "report": ("history", "Report on the fleet from what is stored."),
    "doctor": ("doctor", "Check environment, configuration, catalogs, versions, permissions."),
    "demo": ("demo", "Build a sick demo lake, heal it, print before and after."),
}

_ASKED_JSON = "iceberg_maint.asked_json"


class _Commands(click.Group):
    """Loads a command when it is called; lists all from the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - same
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"iceberg_maint.cli.{COMMANDS[cmd_name][0]}")
        found: click.Command = getattr(module, cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - same
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        # Who reads only documents gets one also where what follows cannot be read. `--json` counts
        # wherever it stands, since an error may come before it has been parsed.
        session = extra.get("obj") or Session()
        extra["obj"] = session
        asked = "--json" in list(itertools.takewhile(lambda argument: argument != "--", args))
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            session.as_json = asked
            session.misused(error)
            raise
        context.meta[_ASKED_JSON] = asked
        return context

    def invoke(self, ctx: click.Context) -> Any:
        session = ctx.ensure_object(Session)
        try:
            return super().invoke(ctx)
        except IcebergMaintError as error:
            # Raised while options were read, before a command's own handling.
            session.as_json = ctx.meta[_ASKED_JSON]
            session.refuse(error)
            ctx.exit(error.exit_code)
        except click.ClickException as error:
            session.as_json = ctx.meta[_ASKED_JSON]
            session.misused(error)
            raise


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="iceberg-maint")
@shared_options
@click.pass_context
def iceberg_maint(context: click.Context, config_path: Path | None, as_json: bool) -> None:
    """Keep Apache Iceberg tables healthy, and prove that no row was lost.

    Exit codes: 0 done; 1 something failed; 2 usage, configuration or unknown table; 3 refused, with
    a code ICM-nnn; 4 a commit is neither confirmed nor refuted.
    """
    session_of(context, config_path, as_json=as_json)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the program."""
    iceberg_maint.main(args=None if arguments is None else list(arguments), prog_name="iceberg-maint")
