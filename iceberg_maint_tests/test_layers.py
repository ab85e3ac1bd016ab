"""The rings of docs/architecture, enforced: who may import whom, what a light import costs, who may read the environment."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "iceberg_maint"

ADAPTERS = frozenset({"catalog", "spark", "ledger", "metrics", "audit", "alerts"})
LOOP = frozenset(
    {
        "clocks",
        "survey",
        "adopt",
        "execute",
        "heartbeat",
        "reconcile",
        "request",
        "prepare",
        "conclude",
        "ended",
        "housekeep",
        "maintain",
    }
)
BELOW_WIRING = (
    ADAPTERS | LOOP | {"core", "errors", "ports", "ledger_ports", "storage_ports", "orphans", "config"}
)
SURFACES = frozenset({"cli", "defs", "demo", "definitions", "report"})

DAGSTER = frozenset(
    {"dagster", "dagster_pyspark", "dagster_postgres", "dagster_webserver", "dagster_graphql"}
)
HEAVY = ("pyspark", "py4j", "dagster", "pyiceberg", "pandas", "pyarrow", "numpy", "sqlalchemy", "pydantic")


@dataclass(frozen=True, slots=True)
class Ring:
    """What modules of a ring may import: parts of this package, and third-party packages (None: any that no rule bans)."""

    parts: frozenset[str]
    third_party: frozenset[str] | None = None


NOTHING: frozenset[str] = frozenset()
RINGS: dict[str, Ring] = {
    "__init__": Ring(NOTHING, NOTHING),
    "errors": Ring(NOTHING, NOTHING),
    "core": Ring(frozenset({"core"}), NOTHING),
    "ports": Ring(frozenset({"core", "errors"}), NOTHING),
    "ledger_ports": Ring(frozenset({"core", "errors", "ports"}), NOTHING),
    "storage_ports": Ring(frozenset({"core"}), NOTHING),
    **{
        name: Ring(frozenset({"core", "errors", "ports", "ledger_ports", "storage_ports"}) | LOOP, NOTHING)
        for name in LOOP
    },
    "orphans": Ring(
        frozenset({"core", "errors", "ports", "ledger_ports", "storage_ports", "orphans"}), NOTHING
    ),
    "config": Ring(frozenset({"core", "errors", "config"}), frozenset({"pydantic", "yaml"})),
    # The ports name the values an adapter takes and gives, so adapters see them; never one another.
    **{
        name: Ring(frozenset({"core", "errors", "ports", "ledger_ports", "storage_ports", name}))
        for name in ADAPTERS
    },
    "wiring": Ring(BELOW_WIRING | {"wiring"}),
    "report": Ring(frozenset({"core", "errors", "ports", "ledger_ports", "report"})),
    "defs": Ring(BELOW_WIRING | {"wiring", "report", "defs"}),
    "definitions": Ring(BELOW_WIRING | {"wiring", "defs"}),
    "demo": Ring(BELOW_WIRING | {"wiring", "report", "defs", "definitions", "demo"}),
    "cli": Ring(BELOW_WIRING | SURFACES | {"wiring"}),
    "__main__": Ring(frozenset({"cli"})),
}

# Third-party packages that only these parts may import.
RESERVED: dict[str, frozenset[str]] = {
    "pyspark": frozenset({"spark"}),
    "py4j": frozenset({"spark"}),
    "pandas": SURFACES,
    **dict.fromkeys(DAGSTER, frozenset({"defs", "definitions"})),
}
BRIDGE = "iceberg_maint.spark.bridge"

# These hand settings down as values; below them nobody looks at the environment.
MAY_READ_ENVIRONMENT = frozenset({"config", "wiring", "cli", "definitions", "defs", "demo"})


def module_names() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts), path


def part_of(module: str) -> str:
    """The ring a module belongs to: the name after the package's own."""
    return module.split(".")[1] if "." in module else "__init__"


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level
            elif node.module == "iceberg_maint":
                yield from (f"iceberg_maint.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module


def import_violations(module: str, source: str) -> list[str]:
    """What the rules of this file have against the imports in `source`, one sentence each."""
    part = part_of(module)
    if part not in RINGS:
        return [f"{module} is in no ring: place {part!r} in RINGS"]
    ring = RINGS[part]
    found = []
    for name in imported_modules(ast.parse(source)):
        root = name.split(".")[0]
        if name.startswith("."):
            found.append(f"{module} imports relatively")
        elif root == "iceberg_maint":
            target = part_of(name)
            # `from iceberg_maint import __version__` is the one name the package itself offers.
            if target not in ring.parts and target != "__version__":
                found.append(f"{module} imports {name}: {part} may not import {target}")
        elif root in sys.stdlib_module_names:
            continue
        elif root in RESERVED and part not in RESERVED[root]:
            found.append(f"{module} imports {name}: only {sorted(RESERVED[root])} may import {root}")
        elif ring.third_party is not None and root not in ring.third_party:
            found.append(f"{module} imports {name}: {part} may not import {root}")
        elif root == "py4j" and module != BRIDGE:
            found.append(f"{module} imports {name}: only {BRIDGE} may import py4j")
    return found


def environment_violations(module: str, source: str) -> list[str]:
    """Reads of the process environment below the rings that may; a script's own `__main__` block is its caller."""
    if part_of(module) in MAY_READ_ENVIRONMENT:
        return []
    tree = ast.parse(source)
    scripts = {id(node) for block in tree.body if _is_script_block(block) for node in ast.walk(block)}
    return [
        f"{module}:{node.lineno} reads the environment"
        for node in ast.walk(tree)
        if id(node) not in scripts
        and isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("os", "environ"), ("os", "getenv"), ("os", "environb")}
    ]


def _is_script_block(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def test_every_module_imports_only_what_its_ring_may() -> None:
    found = [
        line for module, path in module_names() for line in import_violations(module, path.read_text("utf-8"))
    ]
    assert "\n".join(found) == ""


def test_no_module_below_config_reads_the_environment() -> None:
    found = [
        line
        for module, path in module_names()
        for line in environment_violations(module, path.read_text("utf-8"))
    ]
    assert "\n".join(found) == ""


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("iceberg_maint.core.plan", "import numpy", "core may not import numpy"),
        (
            "iceberg_maint.core.plan",
            "from iceberg_maint.errors import RefusedError",
            "core may not import errors",
        ),
        ("iceberg_maint.core.plan", "def f():\n    import pyspark", "only ['spark'] may import pyspark"),
        ("iceberg_maint.core.plan", "from . import state", "imports relatively"),
        (
            "iceberg_maint.catalog.list",
            "from iceberg_maint.spark import session",
            "catalog may not import spark",
        ),
        ("iceberg_maint.catalog.list", "from iceberg_maint import ledger", "catalog may not import ledger"),
        ("iceberg_maint.ledger.store", "import iceberg_maint.maintain", "ledger may not import maintain"),
        ("iceberg_maint.ledger.store", "import pandas as pd", "may import pandas"),
        ("iceberg_maint.spark.gate", "from py4j.protocol import Py4JJavaError", "may import py4j"),
        (
            "iceberg_maint.maintain",
            "from iceberg_maint.catalog import listing",
            "maintain may not import catalog",
        ),
        ("iceberg_maint.config.load", "import sqlalchemy", "config may not import sqlalchemy"),
        ("iceberg_maint.cli", "import dagster", "may import dagster"),
        ("iceberg_maint.wiring", "from iceberg_maint.defs import assets", "wiring may not import defs"),
        ("iceberg_maint.helpers", "import os", "in no ring"),
    ],
)
def test_import_across_a_ring_is_a_violation(module: str, source: str, reason: str) -> None:
    [found] = import_violations(module, source)
    assert reason in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("iceberg_maint.core.plan", "import json\nfrom iceberg_maint.core.ids import TableId"),
        ("iceberg_maint.spark.bridge", "from py4j.java_gateway import JavaObject\nimport pyspark"),
        ("iceberg_maint.ledger.store", "import sqlalchemy\nfrom iceberg_maint.core import record"),
        ("iceberg_maint.defs.assets", "import dagster\nfrom iceberg_maint import wiring, maintain"),
        ("iceberg_maint.cli", "from iceberg_maint import __version__"),
    ],
)
def test_import_within_the_rules_is_no_violation(module: str, source: str) -> None:
    assert import_violations(module, source) == []


def test_environment_read_in_a_function_is_a_violation_and_in_a_script_block_is_not() -> None:
    source = "import os\ndef f():\n    return os.environ\nif __name__ == '__main__':\n    f(os.environ)\n"
    assert environment_violations("iceberg_maint.spark.java", source) == [
        "iceberg_maint.spark.java:3 reads the environment"
    ]
    assert environment_violations("iceberg_maint.config.load", source) == []


def test_importing_core_loads_no_heavy_package() -> None:
    light = [
        module for module, _ in module_names() if part_of(module) in {"core", "errors", "ports", "maintain"}
    ]
    assert light
    code = f"""
import importlib, sys
for module in {light!r}:
    importlib.import_module(module)
print(sorted(name for name in {HEAVY!r} if name in sys.modules))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert run.stdout.strip() == "[]"
