"""A regression: what befell others, the guard that keeps it from befalling us, and the test that is red without it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iceberg_maint_tests.mutants.lists import LISTS
from iceberg_maint_tests.mutants.mutant import Mutant


@dataclass(frozen=True, slots=True)
class Regression:
    """`key` names it, `upstream` says where it was reported, `happened` what to whom; `guard` is ours,
    `off` is the guard switched off, with the tests that turn red for it."""

    key: str
    upstream: str
    happened: str
    guard: str
    off: Mutant

    @property
    def row(self) -> str:
        """Its line of docs/project/regressions.md."""
        tests = "<br>".join(f"`{test.removeprefix('iceberg_maint_tests/')}`" for test in self.off.tests)
        return f"| `{self.key}` | {self.happened} ({self.upstream}) | {self.guard} | {tests} |"


def known(of: str, name: str, *tests: str) -> Mutant:
    """A hand-written mutant by its list and name, with the tests that are to notice."""
    [found] = [m for m in LISTS[of] if m.name == name]
    return replace(found, tests=_paths(tests))


def off(file: str, old: str, new: str, *tests: str) -> Mutant:
    """A guard of this module switched off."""
    return Mutant(f"{file}: {old}", file, old, new, _paths(tests))


def _paths(tests: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"iceberg_maint_tests/{test}" for test in tests)
