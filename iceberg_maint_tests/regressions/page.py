"""The tables of docs/project/regressions.md."""

from __future__ import annotations

from iceberg_maint_tests.regressions.inventory import INVENTORY

_HEAD = "| Name | What happened | What keeps it from happening here | Tests, red without it |\n|---|---|---|---|\n"


def tables() -> str:
    """A heading and a table for each kind."""
    parts = (
        f"## {name}\n\n{_HEAD}" + "".join(f"{r.row}\n" for r in found) for name, found in INVENTORY.items()
    )
    return "\n".join(parts)
