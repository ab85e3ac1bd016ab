"""Mutants of the product: a guard switched off in its source, and the tests that must turn red for it."""

from __future__ import annotations

import ast
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

PROJECT = Path(__file__).resolve().parents[3]
PRODUCT = PROJECT / "iceberg_maint"


@dataclass(frozen=True, slots=True)
class Edit:
    """In a file of the package `old`, which stands there once, becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """What is off, and pytest's ids of the tests that are to notice: files and tests, quickest first.

    `also` are further edits where a second guard stands behind the first.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    also: tuple[Edit, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        return (Edit(self.file, self.old, self.new), *self.also)

    def sources(self) -> dict[str, str]:
        """The changed modules' text by their dotted name. Raises ValueError where an edit's old text
        does not stand in its file exactly once, or stays as it is."""
        texts: dict[str, str] = {}
        for edit in self.edits:
            text = texts.get(edit.file) or (PRODUCT / edit.file).read_text("utf-8")
            if text.count(edit.old) != 1 or edit.old == edit.new:
                raise ValueError(
                    f"{self.name}: {edit.file} has {text.count(edit.old)} times {edit.old!r} → {edit.new!r}"
                )
            texts[edit.file] = text.replace(edit.old, edit.new)
        return {f"iceberg_maint.{file.removesuffix('.py').replace('/', '.')}": t for file, t in texts.items()}


def fault_of(mutant: Mutant) -> str:
    """What is wrong with a mutant's place in the source, or with the source that it makes; empty where nothing is."""
    try:
        sources = mutant.sources()
        for module, text in sources.items():
            compile(text, module, "exec", dont_inherit=True)
        return "" if sources else "changes no source"
    except (OSError, SyntaxError, ValueError) as error:
        return repr(error)


def missing_tests_of(mutant: Mutant) -> list[str]:
    """The tests of a mutant that do not exist. A test without a function is a whole file."""
    return [
        test
        for test in mutant.tests
        for file, _, function in [test.partition("::")]
        if not (PROJECT / file).exists()
        or (function and function.partition("[")[0] not in _functions_in(file))
    ]


@cache
def _functions_in(file: str) -> set[str]:
    tree = ast.parse((PROJECT / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


class _Loader(SourceFileLoader):
    """Loads a module from another text than its file's."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._sources:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._sources[fullname])
        return spec


def plant(sources: Mapping[str, str]) -> MetaPathFinder:
    """Imports of this process take these modules from these texts from now on."""
    finder = _Finder(sources)
    sys.meta_path.insert(0, finder)
    return finder


@contextmanager
def _planted_in_programs(sources: Mapping[str, str]) -> Iterator[None]:
    """Within the block, a Python that starts with this environment plants the sources before it runs its program."""
    variable, before = "PYTHONPATH", os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        # Python imports a module of this name at its start.
        program = f"from {__name__} import plant\n\nplant({dict(sources)!r})\n"
        (Path(folder) / "sitecustomize.py").write_text(program, "utf-8")
        os.environ[variable] = os.pathsep.join([folder, str(PROJECT), *([before] if before else [])])
        try:
            yield
        finally:
            del os.environ[variable]
            if before is not None:
                os.environ[variable] = before


@contextmanager
def planted(sources: Mapping[str, str]) -> Iterator[None]:
    """Within the block the project is imported again, these modules from these texts. Programs that start within the
    block import them so too.

    The modules of before come back at the end. Third-party modules stay as they are, and with them
    the JVM that PySpark has started.
    """
    before = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    _forget()
    finder = plant(sources)
    try:
        with _planted_in_programs(sources):
            yield
    finally:
        sys.meta_path.remove(finder)
        if workers := sys.modules.get("iceberg_maint.engines.spark.rewrite.columnar.workers"):
            workers.PARENT.stop()
        _forget()
        sys.modules.update(before)


def _forget() -> None:
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]


def _is_ours(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in ("iceberg_maint", "iceberg_maint_tests")
