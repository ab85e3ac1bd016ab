"""The command `demo`."""

from __future__ import annotations

from pathlib import Path

import click

from iceberg_maint.cli.command import command
from iceberg_maint.cli.context import Session
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, ConfigurationError


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Folder of the lake, its ledger and its Dagster instance.",
)
@click.option("--fresh", is_flag=True, help="Remove the lake in the folder and build a new one.")
@click.option("--build-only", is_flag=True, help="Build the lake if it is missing, and do not maintain it.")
@click.option("--small", is_flag=True, help="Build the lake with few rows.")
@click.option(
    "--store",
    type=click.Choice(["local", "s3"]),
    default="local",
    show_default=True,
    help="Where the tables are: in the folder, or in a local S3 server, which ends with the command.",
)
@command
def demo(session: Session, data: Path, *, fresh: bool, build_only: bool, small: bool, store: str) -> int:
    """Build an unhealthy demo lake with real writers, maintain it, print before and after."""
    from iceberg_maint.demo.main import open_lake, run
    from iceberg_maint.demo.store import StoreName
    from iceberg_maint.demo.tables import SMALL

    scale = SMALL if small else None
    console = session.logs() if session.as_json else session.console()
    if build_only:
        if store != StoreName.LOCAL:
            raise ConfigurationError(
                "ICM-100",
                f"--build-only with --store {store} leaves no lake: its server ends with the command.",
                "omit one of the two options.",
            )
        _, place = open_lake(data, console, fresh=fresh, scale=scale)
        session.emit({"data": str(place.root), "config": str(place.config)}, lambda _console: None)
        return EXIT_DONE
    report = run(data, console, fresh=fresh, scale=scale, store=StoreName(store))
    session.emit(report.document(), lambda _console: None)
    return EXIT_DONE if report.good else EXIT_FAILED
