"""The demo lake."""

from __future__ import annotations

from typing import Any

import click

from iceberg_maint.cli.session import Session, command


@click.command()
@command
def demo(session: Session) -> Any:
    """Build a sick demo lake by real writers, heal it, print before and after."""
    from iceberg_maint.demo import run

    return run(session)
