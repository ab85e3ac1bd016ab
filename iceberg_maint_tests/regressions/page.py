"""Writes docs/project/regressions.md."""

from __future__ import annotations

from iceberg_maint_tests.regressions.inventory import INVENTORY

_INTRODUCTION = """# Regressions

Failures of other systems, of released versions of Iceberg and Spark, and of earlier versions of this project. Each row
names the failure, the guard that prevents it here, and tests. `make test-regressions` switches off one guard at a time and
requires that each of its tests fails, and that it passes with the guard.
"""
_HEAD = "| Name | What happened | What prevents it here | Tests that fail without the guard |\n|---|---|---|---|\n"


def page() -> str:
    """The introduction, and a heading and a table for each section."""
    sections = (
        f"## {name}\n\n{_HEAD}" + "".join(f"{r.row}\n" for r in regressions)
        for name, regressions in INVENTORY.items()
    )
    return "\n".join((_INTRODUCTION, *sections))
