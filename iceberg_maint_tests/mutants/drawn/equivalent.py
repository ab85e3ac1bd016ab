"""Drawn mutants that no test can kill, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint_tests.mutants.drawn.sites import Site


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The line before and after the change, in a function of a file, and why both do the same."""

    file: str
    function: str
    before: str
    after: str
    reason: str


EQUIVALENT: tuple[Equivalent, ...] = ()


def reason_of(site: Site) -> str:
    """Why a mutant is equivalent; empty where it is not in the list."""
    before, after = site.lines()
    for each in EQUIVALENT:
        if (each.file, each.function, each.before, each.after) == (site.file, site.function, before, after):
            return each.reason
    return ""
