"""Runs tests of `make test` with guards switched off, one mutant after the other, in one process: Spark tests share its JVM."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache

import pytest

from iceberg_maint_tests.qualification.mutants.mutant import PROJECT, Mutant, planted
from iceberg_maint_tests.support.examples import VARIABLE as EXAMPLES

IN_MAKE_TEST = "not variant"
"""The marks of the tests that `make test` runs."""


@dataclass(slots=True, eq=False)
class Result:
    """Tests by id: those that passed, those that failed with the first line of why, and those whose
    fixtures did with all of it."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when == "call":
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed[report.nodeid] = (crash.message if crash else str(report.longrepr)).split("\n")[0]
        elif report.failed:
            self.broken[report.nodeid] = report.longreprtext
        elif report.passed and report.when == "call":
            self.passed.append(report.nodeid)


def run_tests(tests: Iterable[str], sources: Mapping[str, str], *, all_of_them: bool) -> Result:
    """Runs tests on the project with these modules' texts changed; up to the first failure, or all of them.

    Raises ValueError where pytest does not get as far as to run them.
    """
    result, output = Result(), io.StringIO()
    arguments = [
        "-q",
        "-m",
        IN_MAKE_TEST,
        "-o",
        "cache_dir=.cache/pytest-mutants",
        "-o",
        "timeout_method=signal",
        "--rootdir",
        str(PROJECT),
    ]
    arguments += [] if all_of_them else ["-x"]
    with planted(sources), redirect_stdout(output), redirect_stderr(output):
        code = pytest.main([*arguments, *(str(PROJECT / t) for t in tests)], plugins=[result])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise ValueError(f"pytest ended {code!r}\n{output.getvalue()[-4000:]}")
    if result.broken:
        raise ValueError(f"fixtures fail: {result.broken}")
    return result


def left_to_variants(mutants: Iterable[Mutant]) -> list[str]:
    """The names of those mutants none of whose tests `make test` runs."""
    mutants = list(mutants)
    marked = {file for m in mutants for file in map(_file_of, m.tests) if _has_variants(file)}
    lines = _collected(marked, "-m", IN_MAKE_TEST)
    collected = {part for line in lines for part in (line, line.partition("[")[0], _file_of(line))}
    return [m.name for m in mutants if not any(t in collected or _file_of(t) not in marked for t in m.tests)]


def unknown_cases(mutants: Iterable[Mutant]) -> list[str]:
    """The tests of mutants that are named with the id of a case and do not exist."""
    named = {test for m in mutants for test in m.tests if "[" in test}
    return sorted(named - _collected(map(_file_of, named)))


def _collected(files: Iterable[str], *arguments: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments, *sorted(set(files))]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def _file_of(test: str) -> str:
    return test.partition("::")[0]


@cache
def _has_variants(file: str) -> bool:
    text = (PROJECT / file).read_text("utf-8")
    return "mark.variant" in text or "mark.drawn" in text


def living(mutants: Sequence[Mutant], numbers: Sequence[int] = ()) -> int:
    """How many of the mutants (of these numbers, or all) no test notices; told one a line as it goes.

    First the tests run on the product as it is. Raises ValueError where one of them is red then, or nothing was chosen.
    """
    chosen = [(n, m) for n, m in enumerate(mutants) if not numbers or n in numbers]
    if not chosen:
        raise ValueError("there is no such one")
    tests = sorted({test for _, mutant in chosen for test in mutant.tests})
    sources = {number: mutant.sources() for number, mutant in chosen}
    honest = run_tests(tests, {}, all_of_them=True)
    if honest.failed:
        raise ValueError(f"red without any mutant: {honest.failed}")
    print(f"{len(honest.passed)} tests are green as the product is", flush=True)
    alive = 0
    for number, mutant in chosen:
        found = run_tests(mutant.tests, sources[number], all_of_them=False)
        alive += not found.failed
        by = ", ".join(name.split("::", 1)[1] for name in found.failed)
        print(f"{number:3} {'killed' if found.failed else 'LIVES '}  {mutant.name}  ({by})", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} killed", flush=True)
    return alive


def prepare(examples: str = "all") -> None:
    """Of this process: property tests take the same examples each time, all of them or a `share`, and keep none."""
    os.environ |= {"CI": "true", EXAMPLES: examples}
    os.chdir(PROJECT)
