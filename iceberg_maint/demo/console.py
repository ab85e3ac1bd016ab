"""Code that the demos' commands share: the console and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console

from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, IcebergMaintError


def printed(demo: Callable[[Console], bool], width: int) -> int:
    """Runs a demo, which returns whether all results were as expected. Returns the exit code.

    Output that goes to no terminal has `width` columns.
    """
    try:
        good = demo(Console(width=None if sys.stdout.isatty() else width, highlight=False))
    except IcebergMaintError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return refusal.exit_code
    return EXIT_DONE if good else EXIT_FAILED
