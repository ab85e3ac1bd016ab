"""Which tests call which functions of the product: a plugin of pytest that notes it while the tests run.

python -m iceberg_maint_tests.qualification.mutants.drawn.reach FILE PYTEST-ARGUMENTS… adds a line to FILE for each test module.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from iceberg_maint_tests.qualification.mutants.mutant import PRODUCT, PROJECT
from iceberg_maint_tests.qualification.mutants.run import prepare


@dataclass(frozen=True, slots=True)
class Reach:
    """Of one test: its seconds of CPU, and the first lines of the functions it calls by file of the package."""

    seconds: float
    lines: dict[str, list[int]]


@dataclass(slots=True, eq=False)
class Recorder:
    """The plugin. A test's fixtures count as part of it. Tests that do not pass are left out."""

    file: Path
    _lines: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    _codes: dict[CodeType, tuple[str, int] | None] = field(default_factory=dict)
    _tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, bool, bool]:
        self._lines.clear()
        begin = time.process_time()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            done = yield
        finally:
            sys.settrace(None)
            threading.settrace(None)
        if item.nodeid not in self._failed:
            lines = {file: sorted(numbers) for file, numbers in self._lines.items()}
            self._tests[item.nodeid] = {"seconds": round(time.process_time() - begin, 3), "lines": lines}
        module = item.nodeid.partition("::")[0]
        if nextitem is None or nextitem.nodeid.partition("::")[0] != module:
            self._write(module)
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def _write(self, module: str) -> None:
        row = {"module": module, "digest": digest(module), "tests": self._tests}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._tests = {}

    def _call(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        try:
            place = self._codes[code]
        except KeyError:
            name = code.co_filename
            ours = name.startswith(f"{PRODUCT}/")
            place = (name.removeprefix(f"{PRODUCT}/"), code.co_firstlineno) if ours else None
            self._codes[code] = place
        if place is not None:
            self._lines[place[0]].add(place[1])


def digest(module: str) -> str:
    """Of a test module's text, by its path in the project."""
    return hashlib.sha256((PROJECT / module).read_bytes()).hexdigest()


def read(file: Path) -> Mapping[str, Mapping[str, Reach]]:
    """The tests by id, by the test modules that are as they were when they were recorded."""
    modules: dict[str, dict[str, Reach]] = {}
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        row = json.loads(line)
        if (PROJECT / row["module"]).exists() and digest(row["module"]) == row["digest"]:
            modules[row["module"]] = {test: Reach(**reach) for test, reach in row["tests"].items()}
    return modules


def main(arguments: list[str]) -> int:
    prepare(examples="share")
    file = Path(arguments[0]).resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    options = ["-q", "-o", "cache_dir=.cache/pytest-mutants", "-p", "no:randomly", "--rootdir", str(PROJECT)]
    return int(pytest.main([*options, *arguments[1:]], plugins=[Recorder(file)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
