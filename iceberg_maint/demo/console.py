"""What the demos' own commands share: a console to print on, and how they end."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console

from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, IcebergMaintError


def printed(demo: Callable[[Console], bool], width: int) -> int:
    """Runs a demo that tells whether all was as it should be; its exit code. What is not printed to a
    terminal is so many columns wide."""
    try:
        good = demo(Console(width=None if sys.stdout.isatty() else width, highlight=False))
    except IcebergMaintError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return refusal.exit_code
    return EXIT_DONE if good else EXIT_FAILED
