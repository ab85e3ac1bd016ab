"""Writes docs/project/regressions.md: `make reference`."""

from __future__ import annotations

from iceberg_maint_tests.qualification.regressions.inventory import INVENTORY

_INTRODUCTION = """# Regressions

Failures of other systems, of released versions of Iceberg and Spark, and of earlier states of this project. The name says what
happened. `iceberg_maint_tests/qualification/regressions/` says what prevents it here, with all tests. `make qualify SUITE=regressions` switches off one
guard at a time: each of its tests must fail, and pass with the guard.
"""
_HEAD = "| Name | Reported in |\n|---|---|\n"


def page() -> str:
    """The introduction, and a heading and a table for each section."""
    sections = (
        f"## {name}\n\n{_HEAD}" + "".join(f"{r.row}\n" for r in regressions)
        for name, regressions in INVENTORY.items()
    )
    return "\n".join((_INTRODUCTION, *sections))
