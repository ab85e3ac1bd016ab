"""Runs drawn mutants in children of one process, which has imported and collected the tests.

A child gives the functions of the changed module their new code and runs tests. For a change outside of functions it
imports the changed module in a session of its own.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from iceberg_maint_tests.qualification.mutants.drawn.reach import Reach
from iceberg_maint_tests.qualification.mutants.drawn.sites import Site
from iceberg_maint_tests.qualification.mutants.mutant import PRODUCT, PROJECT, planted

Modules = Mapping[str, Mapping[str, Reach]]
"""Tests by id, by the path of their module."""

MOST_SECONDS = {"module": 15.0, "all": 5.0}
"""Of CPU in tests as recorded, per mutant and stage."""

FLOOR_SECONDS = 6
PATIENCE_SECONDS = 240
OF_CONSTANTS = ("iceberg_maint_tests/test_docs.py::test_generated_pages_equal_what_the_code_says",)
"""Judge every change outside of functions: the pages state defaults and limits."""

OPTIONS = (
    *("-q", "-p", "no:randomly", "--rootdir", str(PROJECT), "-o", "cache_dir=.cache/pytest-mutants"),
    *("-o", "timeout_method=signal", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one mutant: the stage that killed it (`module`, `all`, `spark`, empty if none did) and the test that did,
    with how many tests ran in vain before the last stage."""

    key: str
    function: str
    before: str
    after: str
    killed_by: str
    test: str
    tests: int
    seconds: float


def stages(site: Site, modules: Modules) -> Iterator[tuple[str, list[str], float]]:
    """(stage, tests, seconds as recorded): tests of the module that reach the site's function, then all others that do.
    Those that mirror the module come first, then the quickest.

    A site outside of functions is reached by tests that call any function of its file, or import it.
    """
    own = {name for name in modules if is_of(name, site)}
    for stage, names in (("module", own), ("all", modules.keys() - own)):
        chosen: list[tuple[bool, float, str]] = []
        for name in names:
            for test, reach in modules[name].items():
                lines = reach.lines.get(site.file, ())
                if (site.first in lines) if site.function else (lines or stage == "module"):
                    chosen.append((not mirrors(name, site), reach.seconds, test))
        if stage == "all" and not site.function:
            chosen += [(False, 0.0, test) for test in OF_CONSTANTS]
        tests, total = [], 0.0
        for _, seconds, test in sorted(chosen):
            if total + seconds <= MOST_SECONDS[stage]:
                total += seconds
                tests.append(test)
        yield stage, tests, total


def as_judged(site: Site, modules: Modules) -> Site:
    """The site, as one outside of functions if no test calls its function: the import of its module may do so."""
    called = (site.first in r.lines.get(site.file, ()) for tests in modules.values() for r in tests.values())
    return site if any(called) else replace(site, function="")


def mirrors(name: str, site: Site) -> bool:
    """Whether a test module stands where the site's module does, under its name."""
    path = Path(name)
    return path.parent == folder_of_tests(site) and path.stem.startswith(f"test_{Path(site.file).stem}")


def folder_of_tests(site: Site) -> Path:
    """Where tests of the site's module stand: those of `engines/spark` in `spark`."""
    return Path("iceberg_maint_tests", site.file.removeprefix("engines/")).parent


def is_of(name: str, site: Site) -> bool:
    """Whether a test module mirrors the site's module, or imports it."""
    text = (PROJECT / name).read_text("utf-8")
    parent, _, last = site.module.rpartition(".")
    imports = f"from {site.module} import" in text or f"from {parent} import {last}" in text
    return imports or mirrors(name, site)


@dataclass(slots=True, eq=False)
class Judge:
    """A plugin of pytest that judges mutants in place of running the tests that were collected."""

    sites: Sequence[Site]
    modules: Modules
    file: Path
    _items: dict[str, pytest.Item] = field(default_factory=dict)
    _green: set[str] = field(default_factory=set)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        null = os.open(os.devnull, os.O_RDWR)
        for number, site in enumerate(self.sites, start=1):
            each = self._verdict(site, null)
            write_verdict(self.file, each)
            verdict = each.killed_by or "LIVES"
            line = f"{number:3} {verdict:6} {each.seconds:5.1f} s  {each.key}  {each.test}"
            print(line, file=sys.__stderr__, flush=True)
        return True

    def _verdict(self, site: Site, null: int) -> Verdict:
        begin, before, after = time.monotonic(), *site.lines()
        name, site, ran = site.function, as_judged(site, self.modules), 0
        killed_by = test = ""
        for stage, tests, seconds in stages(site, self.modules):
            if tests:
                work = _Patched(self._chosen(tests), site) if site.function else _Imported(tests, site)
                test = in_child(work, seconds, null)
                ran += len(tests)
                if test and self._is_green(test, tests, seconds, null, imported=not site.function):
                    killed_by = stage
                    break
                test = ""
        took = round(time.monotonic() - begin, 1)
        return Verdict(site.key, name, before, after, killed_by, test, ran, took)

    def _chosen(self, tests: Sequence[str]) -> list[pytest.Item]:
        return [self._items[test] for test in tests if test in self._items]

    def _is_green(
        self, test: str, tests: Sequence[str], seconds: float, null: int, *, imported: bool
    ) -> bool:
        """Whether the product as it is passes what the mutant failed."""
        again = [test] if "::" in test else list(tests)
        if not self._green.issuperset(again):
            work = _Imported(again, None) if imported else _Patched(self._chosen(again), None)
            if failure := in_child(work, seconds, null):
                print(f"red without any mutant: {failure}", file=sys.__stderr__, flush=True)
                return False
            self._green.update(again)
        return True


@dataclass(frozen=True, slots=True)
class _Patched:
    """Runs tests that are collected, the functions of a module with the code of a mutant."""

    items: Sequence[pytest.Item]
    site: Site | None

    def __call__(self, folder: Path) -> str:
        """`passed`, or the test that fails."""
        if self.site is not None:
            patch(self.site)
        failures: list[str] = []
        if self.items:
            config = self.items[0].config
            config._tmp_path_factory._given_basetemp = folder / "tests"
            config.pluginmanager.register(_Failures(failures))
        for item, following in zip(self.items, [*self.items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failures:
                return failures[0]
        return "passed"


@dataclass(frozen=True, slots=True)
class _Imported:
    """Runs tests in a session of their own that imports the changed module."""

    tests: Sequence[str]
    site: Site | None

    def __call__(self, folder: Path) -> str:
        """`passed`, the test that fails, or `import` where the test modules cannot be collected."""
        failures: list[str] = []
        files = sorted({test.split("::", 1)[0] for test in self.tests})
        options = [*OPTIONS, "-x", "--basetemp", str(folder / "tests"), *files]
        plugins = [_Failures(failures), _Chosen(self.tests)]
        with planted({self.site.module: self.site.changed()} if self.site else {}):
            code = pytest.main(options, plugins=plugins)
        if failures:
            return failures[0]
        return "passed" if code == pytest.ExitCode.OK else "import"


@dataclass(frozen=True, slots=True, eq=False)
class _Failures:
    """A plugin that collects the ids of tests that fail."""

    tests: list[str]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests.append(report.nodeid)


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    """A plugin: of what is collected these tests run, in this order."""

    tests: Sequence[str]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        place = {test: number for number, test in enumerate(self.tests)}
        items[:] = sorted((i for i in items if i.nodeid in place), key=lambda item: place[item.nodeid])


def patch(site: Site) -> int:
    """Gives every function of the site's module its changed code; returns how many there are."""
    path = str(PRODUCT / site.file)
    codes: dict[tuple[str, int], CodeType] = {}

    def collect(code: CodeType) -> None:
        codes[code.co_qualname, code.co_firstlineno] = code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                collect(constant)

    collect(compile(site.changed(), path, "exec", dont_inherit=True))
    gc.unfreeze()
    count = 0
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and found.__code__.co_filename == path:
            found.__code__ = codes[found.__code__.co_qualname, found.__code__.co_firstlineno]
            count += 1
    return count


def in_child(work: Callable[[Path], str], seconds: float, null: int) -> str:
    """What fails in a child of this process: a test, `import`, `time` or `crash`; empty where all tests pass."""
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        limit = int(FLOOR_SECONDS + seconds / 2)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        for stream in (1, 2):
            os.dup2(null, stream)
        os.chdir(PROJECT)
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                os.write(write, work(folder).encode())
        finally:
            os._exit(0)
    os.close(write)
    deadline = time.monotonic() + PATIENCE_SECONDS + 10 * seconds
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read().decode()
    shutil.rmtree(folder, ignore_errors=True)
    if answer:
        return answer.removeprefix("passed")
    return "time" if os.WIFSIGNALED(status) else "crash"


def read_verdicts(file: Path) -> dict[str, Verdict]:
    """The last verdict of each mutant by its key."""
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    verdicts = (Verdict(**json.loads(line)) for line in lines)
    return {each.key: each for each in verdicts}


def write_verdict(file: Path, each: Verdict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(each), ensure_ascii=False) + "\n")


def run(sites: Sequence[Site], modules: Modules, file: Path) -> int:
    """Judges mutants one after the other and adds a verdict for each to the file."""
    return int(pytest.main([*OPTIONS, "-s", *sorted(modules)], plugins=[Judge(sites, modules, file)]))
