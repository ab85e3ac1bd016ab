"""A regression: a failure seen elsewhere, the guard that prevents it here, and the tests that are red without the guard."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iceberg_maint_tests.qualification.mutants.lists import LISTS
from iceberg_maint_tests.qualification.mutants.mutant import Edit, Mutant


@dataclass(frozen=True, slots=True)
class Regression:
    """`upstream`: where it was reported. `happened`: the failure. `guard`: what prevents it here. `off`: the
    source without the guard, with the tests that then fail."""

    key: str
    upstream: str
    happened: str
    guard: str
    off: Mutant

    @property
    def row(self) -> str:
        """Its row of docs/project/regressions.md."""
        source = "this project" if self.upstream.startswith("found") else self.upstream
        return f"| `{self.key}` | {source} |"


def known(of: str, name: str, *tests: str) -> Mutant:
    """A hand-written mutant by its list and name, with the tests that must fail."""
    [found] = [m for m in LISTS[of] if m.name == name]
    return replace(found, tests=_paths(tests))


def off(file: str, old: str, new: str, *tests: str, also: tuple[Edit, ...] = ()) -> Mutant:
    """The module `file` with a guard switched off, and with it the guards behind it."""
    return Mutant(f"{file}: {old}", file, old, new, _paths(tests), also)


def _paths(tests: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"iceberg_maint_tests/{test}" for test in tests)
