"""The command `run`."""

from __future__ import annotations

import os
import re
import socket
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.command import command, overrides_option
from iceberg_maint.cli.context import Session, most_severe_exit, operator
from iceberg_maint.cli.pipes import pipes_option, report_to_dagster
from iceberg_maint.cli.run_result import TableResult
from iceberg_maint.core.model.ids import (
    ALL_OPERATIONS,
    DATA_OPERATIONS,
    Operation,
    PartitionKey,
    TableId,
    in_shard,
)
from iceberg_maint.errors import EXIT_DONE, EXIT_USAGE, UnknownTableError
from iceberg_maint.loop.fleet.budget import in_budget_order
from iceberg_maint.loop.maintain import Request

if TYPE_CHECKING:
    from iceberg_maint.loop.context import Context


def _parse_shard(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> tuple[int, int] | None:
    if text is None:
        return None
    shard = re.fullmatch(r"(\d+)/(\d+)", text)
    if shard is None or int(shard[1]) >= int(shard[2]):
        raise click.BadParameter(f"{text} is no share. Write I/N with I from 0 to N - 1, for example 0/4.")
    return int(shard[1]), int(shard[2])


@dataclass(frozen=True, slots=True)
class _Scope:
    """Which tables are maintained: the named ones, or those of a share of all tables that match one of the patterns."""

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    shard: tuple[int, int] | None

    def tables(self, session: Session, context: Context, codes: set[int]) -> list[TableId]:
        """Returns the tables, worst first unless they are named. Adds the exit codes of catalogs that do not answer to
        `codes`. Raises UnknownTableError ICM-126 for a name or pattern of no table."""
        if self.names:
            return [context.catalogs.find(name) for name in self.names]
        listed = session.listing(context, codes).tables
        for pattern in self.patterns:
            if not _matching(pattern, listed, context) and codes == {EXIT_DONE}:
                raise UnknownTableError(
                    "ICM-126",
                    f"no table matches --table-pattern '{pattern}'.",
                    "list the tables with 'iceberg-maint tables'.",
                )
        chosen = {t for pattern in self.patterns for t in _matching(pattern, listed, context)}
        scope = [t for t in listed if not self.patterns or t in chosen]
        return in_budget_order(context, [t for t in scope if self.shard is None or in_shard(t, *self.shard)])


def _matching(pattern: str, tables: tuple[TableId, ...], context: Context) -> list[TableId]:
    """The tables that a key of the configuration's section `tables` of this text would match."""
    from iceberg_maint.config.policy_layers import Pattern

    only_catalog = len(list(context.catalogs)) == 1
    return [t for t in tables if Pattern(pattern, {}).specificity(t, only_catalog) is not None]


@click.command()
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option(
    "--partition", "partitions", multiple=True, help="Only this partition of TABLE; may be repeated."
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    type=click.Choice([o.value for o in ALL_OPERATIONS]),
    metavar="OPERATION",
    help=f"Only this operation; may be repeated: {', '.join(o.value for o in ALL_OPERATIONS)}.",
)
@click.option(
    "--table-pattern",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Only tables such as 'lake.sales.*'; may be repeated.",
)
@click.option(
    "--shard", callback=_parse_shard, metavar="I/N", help="Only share I, from 0, of N shares of the tables."
)
@click.option("--max-batches", type=click.IntRange(min=1), help="Stop after this many batches.")
@click.option(
    "--max-seconds", type=click.IntRange(min=1), help="Start no batch and no table after this time."
)
@click.option("--until-idle", is_flag=True, help="Repeat tables that did work until none has more to start.")
@click.option("--force", is_flag=True, help="Also rewrite healthy partitions of TABLE, and ignore back-off.")
@pipes_option
@overrides_option
@command
def run(
    session: Session,
    names: tuple[str, ...],
    partitions: tuple[str, ...],
    operations: tuple[str, ...],
    patterns: tuple[str, ...],
    shard: tuple[int, int] | None,
    max_batches: int | None,
    max_seconds: int | None,
    until_idle: bool,
    force: bool,
    pipes: bool,
    overrides: dict[str, str],
) -> int:
    """Maintain tables: resume unfinished batches, then do the due work, worst first.

    Without --partition, run all operations: data, manifests, snapshots and orphan files. With it, only
    the operations on data of these partitions.
    """
    from iceberg_maint.cli.pages.run_page import draw_run
    from iceberg_maint.cli.run_tables import Limits, maintain_tables
    from iceberg_maint.wiring.adapters import end_process

    if pipes:
        from iceberg_maint.defs.runs.table_run import RunLimits

        if partitions or operations or patterns or shard or until_idle or force:
            raise click.UsageError(
                "--pipes takes --max-batches and --max-seconds; Dagster gives the partitions."
            )
        return report_to_dagster(session, names, overrides, RunLimits(max_batches, max_seconds))
    scope = _Scope(names, patterns, shard)
    chosen_operations = tuple(o for o in ALL_OPERATIONS if o.value in operations) or (
        DATA_OPERATIONS if partitions else ALL_OPERATIONS
    )
    _check_usage(scope, partitions, chosen_operations)
    if force and not names:
        raise click.UsageError("--force needs a TABLE.")
    if force and until_idle:
        raise click.UsageError("--force with --until-idle would never end.")
    context = session.context(overrides).ended_by(end_process)
    codes = {EXIT_DONE}
    tables = scope.tables(session, context, codes)
    request = Request(
        run_id=f"cli-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
        partitions=frozenset(map(PartitionKey, partitions)) or None,
        force=force,
        operations=chosen_operations,
        started_by=f"command line, {operator()}",
    )
    limits = Limits(max_batches, max_seconds, until_idle)
    results = maintain_tables(tables, request, limits, context, session)

    def draw(console: Any) -> None:
        if not tables:
            console.print("no tables")
        draw_run(console, [r.shown() for r in results])

    started = {r.table for r in results}
    document = {
        "run_id": request.run_id,
        "tables": [r.document() for r in results],
        "not_started": [str(t) for t in tables if t not in started],
    }
    session.emit(document, draw)
    return most_severe_exit(codes.union(*(_codes(r, named=bool(names)) for r in results)))


def _codes(result: TableResult, *, named: bool) -> set[int]:
    """The exit codes of a table. A table that was dropped after its catalog listed it is no error; a named one is."""
    is_dropped = result.error is not None and result.error["code"] == "ICM-126"
    return result.codes - {EXIT_USAGE} if is_dropped and not named else result.codes


def _check_usage(scope: _Scope, partitions: tuple[str, ...], operations: tuple[Operation, ...]) -> None:
    """Raises UsageError for options that exclude each other."""
    if partitions and not set(operations) <= set(DATA_OPERATIONS):
        raise click.UsageError("--partition needs operations on data.")
    if partitions and len(scope.names) != 1:
        raise click.UsageError("--partition needs exactly one TABLE.")
    if scope.names and (scope.patterns or scope.shard):
        raise click.UsageError("a TABLE excludes --table-pattern and --shard.")
