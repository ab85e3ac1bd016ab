"""No circle of imports in the package, its tests or the benchmarks; an import for types alone counts."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.seconds

PROJECT = Path(__file__).resolve().parent.parent
TREES = ("iceberg_maint", "iceberg_maint_tests", "bench")


def sources() -> dict[str, str]:
    """The source of every module of the three trees, by its dotted name."""
    modules = {}
    for path in (p for tree in TREES for p in sorted((PROJECT / tree).rglob("*.py"))):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text("utf-8")
    return modules


def imported_modules(source: str, modules: Mapping[str, str]) -> Iterator[str]:
    """The modules of the trees that a source imports, wherever in it the import stands."""
    for node in statements(ast.parse(source).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # A name is a module, or is in the module before it.
            of_package = (f"{node.module}.{alias.name}" for alias in node.names)
            names = [name if name in modules else node.module for name in of_package]
        else:
            continue
        yield from (name for name in names if name in modules)


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements of a body and of the bodies in it. An import stands in no expression."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, part, ()))


def import_circle(modules: Mapping[str, str]) -> list[str]:
    """The modules of one circle, each after one that it imports; empty where there is none."""
    imports = {name: set(imported_modules(source, modules)) - {name} for name, source in modules.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_import_each_other_in_no_circle() -> None:
    assert import_circle(sources()) == []


@pytest.mark.parametrize(
    "back",
    [
        "import t.a",
        "from t import a",
        "from t.a import A",
        "def f():\n    from t.a import A",
        "if TYPE_CHECKING:\n    from t.a import A",
    ],
)
def test_circle_closed_by_any_import_is_found(back: str) -> None:
    assert set(import_circle({"t.a": "import t.b", "t.b": back, "t.c": "import t.a"})) == {"t.a", "t.b"}


def test_modules_without_a_circle_have_none() -> None:
    assert import_circle({"t.a": "from t.b import B\nimport t.c", "t.b": "from t import c", "t.c": ""}) == []
