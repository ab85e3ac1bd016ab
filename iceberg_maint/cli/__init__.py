"""The command line `iceberg-maint`: the group of all commands. A command's module is imported when the command is called."""

from __future__ import annotations

import gc
import importlib
import itertools
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from iceberg_maint import __version__
from iceberg_maint.cli.command import session_of, shared_options
from iceberg_maint.cli.context import Session
from iceberg_maint.errors import EXIT_USAGE, ConfigurationError, IcebergMaintError, log_printable_messages
from iceberg_maint.machine.without_pandas import hide_pandas

# Command → (module of `cli`, or of the package after a dot; description), in the order of use.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "Write a first configuration and a DAGSTER_HOME."),
    "tables": ("inspect", "List tables with status, backlog and estimated time."),
    "assess": ("assess", "Assess a lake on a first visit: no ledger, no Spark, one page."),
    "observe": ("inspect", "Measure health from metadata, store it and print it."),
    "plan": ("plan", "Show what a run would do and why."),
    "why": ("inspect", "Explain a table's decision: policy, metrics, thresholds, what would change it."),
    "run": ("run", "Maintain tables."),
    "history": ("history", "Show the records of maintenance."),
    "proof": ("proof", "Print the proof certificate of a run."),
    "reconcile": ("history", "Settle attempts whose process ended without a report."),
    "attest": ("attest", "Prove that maintenance commits of any tool kept every row."),
    "orphans": ("orphans", "Find orphan files, move them to the trash, restore or delete them."),
    "readers": ("readers", "Register readers of a table's changes; expiry waits for them."),
    "pause": ("pause", "Pause maintenance of a table or of the fleet."),
    "resume": ("pause", "End a pause."),
    "release": ("pause", "Release partitions from quarantine and back-off."),
    "report": (".integrations.reports", "Report on the fleet from stored health and records."),
    "alerts": (".integrations.alerts.alert_commands", "Show the open alerts, send them, test a receiver."),
    "telemetry": (
        ".integrations.telemetry.telemetry_commands",
        "Serve the metrics of the fleet to Prometheus.",
    ),
    "audit": (".integrations.audit.audit_commands", "Check the audit log."),
    "shards": ("init", "Share the tables among another number of Dagster's code locations."),
    "doctor": ("doctor", "Check environment, configuration, catalogs, versions, permissions."),
    "rights": ("rights", "Print the rights that each role needs, as IAM policies and Polaris grants."),
    "demo": ("demo", "Build an unhealthy demo lake, maintain it, print before and after."),
}

_AS_JSON = "iceberg_maint.as_json"


class _Commands(click.Group):
    """Imports a command when it is called; lists all commands from `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - same
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{COMMANDS[cmd_name][0]}", "iceberg_maint.cli")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            # click compares with loaded commands only.
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=COMMANDS, ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - same
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        # With `--json` an error of the arguments is a document too. `--json` counts at any position,
        # because the error may occur before the option is parsed.
        session = extra.get("obj") or Session()
        extra["obj"] = session
        as_json = "--json" in list(itertools.takewhile(lambda argument: argument != "--", args))
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            session.as_json = as_json
            session.misused(error)
            raise
        context.meta[_AS_JSON] = as_json
        return context

    def invoke(self, ctx: click.Context) -> Any:
        session = ctx.ensure_object(Session)
        try:
            return super().invoke(ctx)
        except IcebergMaintError as error:
            # Raised while click read the options, before the command handles errors.
            session.as_json = ctx.meta[_AS_JSON]
            session.refuse(error)
            ctx.exit(error.exit_code)
        except click.ClickException as error:
            session.as_json = ctx.meta[_AS_JSON]
            session.misused(error)
            raise


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="iceberg-maint")
@shared_options
@click.pass_context
def iceberg_maint(context: click.Context, config_path: Path | None, as_json: bool) -> None:
    """Maintain Apache Iceberg tables, and prove that no row was lost.

    Exit codes: 0 done; 1 something failed; 2 usage, configuration or unknown table; 3 refused, with
    a code ICM-nnn; 4 a commit is neither confirmed nor refuted.
    """
    session_of(context, config_path, as_json=as_json)


_NEW_OBJECTS = 20_000
"""New objects after which Python searches for garbage. After 700, its default, the searches take a twelfth of the CPU of an
import and of `tables` of a large fleet."""


PYICEBERG = "0.12."
"""How the version of PyIceberg begins that the extra `spark` brings. Another one belongs to the project beside this one."""


def require_extra(installed: str | None) -> None:
    """Raises ConfigurationError ICM-184 if the environment has another version of PyIceberg than the extra `spark`, None
    for none: then it is an environment of Dagster that has the component only."""
    if installed is None or not installed.startswith(PYICEBERG):
        found = "no PyIceberg" if installed is None else f"PyIceberg {installed}"
        raise ConfigurationError(
            "ICM-184",
            f"this Python environment ({sys.prefix}) has {found}: the extra `spark`, which maintains tables, is not installed.",
            "run `pip install 'iceberg-maint[spark]'` in an environment of its own, and use its Python.",
        )


def _pyiceberg() -> str | None:
    try:
        return version("pyiceberg")
    except PackageNotFoundError:
        return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the program."""
    try:
        require_extra(_pyiceberg())
    except ConfigurationError as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_USAGE)
    gc.set_threshold(_NEW_OBJECTS)
    hide_pandas()
    log_printable_messages()
    iceberg_maint.main(args=None if arguments is None else list(arguments), prog_name="iceberg-maint")
