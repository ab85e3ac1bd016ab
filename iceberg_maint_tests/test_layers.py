"""The rooms of docs/architecture, enforced: which folder imports which, what a light import costs, who reads the environment."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_maint.wiring.integrations import SECTIONS, Integration

PACKAGE = Path(__file__).resolve().parent.parent / "iceberg_maint"

DAGSTER = frozenset(
    {"dagster", "dagster_pyspark", "dagster_postgres", "dagster_webserver", "dagster_graphql"}
)
HEAVY = ("pyspark", "py4j", "dagster", "pyiceberg", "pandas", "pyarrow", "numpy", "sqlalchemy", "pydantic")

# Every room (a folder, or a module at the top) and the rooms it may import, in the order of the flow:
# a room imports only rooms above it. `core` alone stands for the modules directly in that folder.
ROOMS: dict[str, str] = {
    "__init__": "",
    "errors": "",
    "machine": "",
    "core.model": "",
    "core": "",
    "core.removal": "core.model",
    "core.policy": "core.model",
    "core.health": "core.model core.policy",
    "core.decisions": "core.model core.policy core.health",
    "core.planning": "core.model core.policy core.health core.decisions",
    "core.outcomes": "core.model core.removal core.policy core.health core.planning",
    "core.alerts": "core.model core.policy core.health core.decisions core.outcomes",
    "core.commits": "core.model core.policy core.health core.decisions core.planning core.outcomes",
    "columnar": "core.model errors machine",
    "ports": "CORE errors machine",
    "loop": "CORE errors machine ports",
    "removal": "CORE errors machine ports",
    "config": "CORE errors machine",
    "catalog.manifests": "CORE errors machine ports",
    "catalog": "CORE errors machine ports catalog.manifests",
    "ledger": "CORE errors machine ports",
    # One module per engine that runs statements. Nothing imports one: `wiring.statement_engines` loads it by its name.
    "engines": "CORE errors ports",
    "engines.spark.jvm": "CORE errors ports",
    "engines.spark.session": "CORE errors ports engines.spark.jvm",
    "engines.spark.scan": "CORE errors ports engines.spark.jvm",
    "engines.spark.health": "CORE errors ports engines.spark.jvm engines.spark.scan",
    "engines.spark.rewrite": "CORE errors ports engines.spark.jvm engines.spark.scan",
    "engines.spark.rewrite.columnar": "CORE errors machine ports columnar engines.spark.jvm engines.spark.scan engines.spark.rewrite",
    "engines.spark.deletes": "CORE errors ports engines.spark.jvm engines.spark.session engines.spark.scan",
    "engines.spark.commit": "CORE errors ports engines.spark.jvm engines.spark.scan",
    "engines.spark": "CORE errors ports engines.spark.jvm engines.spark.session engines.spark.scan engines.spark.health "
    "engines.spark.rewrite engines.spark.rewrite.columnar engines.spark.deletes "
    "engines.spark.commit",
    "report": "CORE errors ports",
    "wiring": "CORE errors machine ports loop removal config catalog catalog.manifests ledger engines engines.spark "
    "engines.spark.session",
    "defs": "CORE errors machine ports loop removal config wiring report",
    # What of `defs` it loads is in `component/test_light.py` of the tests: neither the loop nor the ledger.
    "component": "CORE errors defs report",
    "definitions": "defs",
    "cli.pages": "CORE errors ports report",
    "demo": "CORE errors ports loop config wiring report cli.pages engines.spark.jvm engines.spark.session defs __init__",
    "cli.checks": "CORE errors machine ports loop config wiring report engines.spark.session defs",
    "cli": "CORE errors machine ports loop removal config wiring report engines.spark.session defs demo "
    "cli.checks cli.pages __init__",
    # Nothing imports an integration: `wiring.integrations` and the list of commands load one by its name.
    "integrations": "",
    "integrations.frames": "CORE errors ports config ledger report",
    "integrations.telemetry": "CORE errors ports loop config wiring cli cli.pages __init__",
    "integrations.audit": "CORE errors machine ports loop config catalog catalog.manifests report wiring cli",
    "integrations.alerts": "CORE errors ports loop config wiring cli cli.pages",
    "integrations.reports": "CORE errors machine ports loop config report wiring cli",
    "__main__": "cli",
}
CORE = frozenset(room for room in ROOMS if room.split(".")[0] == "core")
NO_THIRD_PARTY = CORE | {"__init__", "errors", "ports", "loop", "removal"}
THIRD_PARTY: dict[str, frozenset[str]] = {
    **dict.fromkeys(NO_THIRD_PARTY, frozenset()),
    "config": frozenset({"pydantic", "yaml"}),
    "component": frozenset({"dagster", "dagster_pipes", "dagster_shared", "pydantic"}),
}
"""Third-party packages that a room may import. A room that is not here may import any that no rule bans."""

# Third-party packages that only these top folders may import.
RESERVED: dict[str, frozenset[str]] = {
    "pyspark": frozenset({"engines.spark", "engines.spark_connect"}),
    "py4j": frozenset({"engines.spark"}),
    "pandas": frozenset({"integrations.frames"}),
    **dict.fromkeys(
        ("prometheus_client", "opentelemetry", "datadog", "openlineage"),
        frozenset({"integrations.telemetry"}),
    ),
    **dict.fromkeys(("boto3", "botocore"), frozenset({"integrations.telemetry", "catalog"})),
    **dict.fromkeys(DAGSTER, frozenset({"defs", "component", "definitions", "demo"})),
}
BRIDGE = "iceberg_maint.engines.spark.jvm"

# These hand settings down as values; below them nobody looks at the environment.
MAY_READ_ENVIRONMENT = frozenset(
    {"config", "integrations.frames", "wiring", "cli", "component", "definitions", "defs", "demo"}
)
# These start processes of Spark as its launcher does: with the environment of this one, which holds Spark's variables.
START_PROCESSES = frozenset(
    {
        "iceberg_maint.engines.spark.session.driver_jvm",
        "iceberg_maint.engines.spark.rewrite.columnar.workers",
    }
)


def module_names() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts), path


def part_of(module: str) -> str:
    """The top folder, the engine or integration, or the module at the top, that a module belongs to."""
    parts = module.split(".")[1:3] or ["__init__"]
    return ".".join(parts if parts[0] in {"engines", "integrations"} else parts[:1])


def room_of(module: str) -> str | None:
    """The room of a module: the longest prefix of its name that is one. None where there is none."""
    parts = module.split(".")[1:] or ["__init__"]
    rooms = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((room for room in rooms if room in ROOMS), None)


def allowed_rooms(room: str) -> frozenset[str]:
    """The rooms that a room may import, itself included."""
    names = ROOMS[room].split()
    return frozenset({room, *names}) - {"CORE"} | (CORE if "CORE" in names else frozenset())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The node and the statements within it, without their expressions, which are most of a tree."""
    yield node
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for statement in getattr(node, block, ()):
            yield from statements(statement)


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level
            elif node.module and node.module.split(".")[0] == "iceberg_maint":
                # A name may be a module, or of one: `room_of` takes either.
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module


def import_violations(module: str, source: str) -> list[str]:
    """The imports in `source` that break a rule of this file, one sentence each."""
    part, room = part_of(module), room_of(module)
    if room is None:
        return [f"{module} is in no room: add its folder to ROOMS"]
    allowed, third_party = allowed_rooms(room), THIRD_PARTY.get(room)
    violations = []
    for name in imported_modules(ast.parse(source)):
        root = name.split(".")[0]
        if name.startswith("."):
            violations.append(f"{module} imports relatively")
        elif root == "iceberg_maint":
            # `from iceberg_maint import __version__` is the one name the package itself offers.
            target = "__init__" if name == "iceberg_maint.__version__" else room_of(name)
            if target not in allowed and target != "__init__":
                violations.append(f"{module} imports {name}: {room} may not import {target}")
        elif root in sys.stdlib_module_names:
            continue
        elif root in RESERVED and part not in RESERVED[root]:
            violations.append(f"{module} imports {name}: only {sorted(RESERVED[root])} may import {root}")
        elif third_party is not None and root not in third_party:
            violations.append(f"{module} imports {name}: {room} may not import {root}")
        elif root == "py4j" and not module.startswith(f"{BRIDGE}."):
            violations.append(f"{module} imports {name}: only {BRIDGE} may import py4j")
    return violations


def environment_violations(module: str, source: str) -> list[str]:
    """Reads of the process environment below the rings that may; a script's own `__main__` block is its caller."""
    if part_of(module) in MAY_READ_ENVIRONMENT or module in START_PROCESSES:
        return []
    if not re.search("environ|getenv", source):
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


def test_rooms_no_room_imports_one_below_it() -> None:
    order = list(ROOMS)
    below = [
        (room, other)
        for room in ROOMS
        for other in allowed_rooms(room)
        if order.index(other) > order.index(room)
    ]
    assert below == []


def test_rooms_no_room_imports_an_integration() -> None:
    importers = {
        room
        for room in ROOMS
        for other in allowed_rooms(room)
        if other != room and other.startswith("integrations")
    }
    assert importers == set()


def test_integration_of_each_section_has_the_interface() -> None:
    for name in SECTIONS:
        module = importlib.import_module(f"iceberg_maint.integrations.{name}")
        assert isinstance(module.INTEGRATION, Integration)


def test_rooms_every_folder_is_in_one() -> None:
    assert [module for module, _ in module_names() if room_of(module) is None] == []


def test_every_module_imports_only_what_its_room_may() -> None:
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
        ("iceberg_maint.core.planning.plan", "import numpy", "core.planning may not import numpy"),
        (
            "iceberg_maint.core.planning.plan",
            "from iceberg_maint.errors import RefusedError",
            "core.planning may not import errors",
        ),
        (
            "iceberg_maint.core.planning.plan",
            "def f():\n    import pyspark",
            "only ['engines.spark', 'engines.spark_connect'] may import pyspark",
        ),
        ("iceberg_maint.core.planning.plan", "from . import state", "imports relatively"),
        (
            "iceberg_maint.catalog.list",
            "from iceberg_maint.engines.spark import session",
            "catalog may not import engines.spark",
        ),
        ("iceberg_maint.catalog.list", "from iceberg_maint import ledger", "catalog may not import ledger"),
        (
            "iceberg_maint.ledger.store",
            "import iceberg_maint.loop.maintain",
            "ledger may not import loop",
        ),
        ("iceberg_maint.ledger.store", "import pandas as pd", "may import pandas"),
        (
            "iceberg_maint.engines.spark.commit.gate",
            "from py4j.protocol import Py4JJavaError",
            "may import py4j",
        ),
        (
            "iceberg_maint.loop.maintain",
            "from iceberg_maint.catalog import listing",
            "loop may not import catalog",
        ),
        ("iceberg_maint.config.load", "import sqlalchemy", "config may not import sqlalchemy"),
        ("iceberg_maint.cli", "import dagster", "may import dagster"),
        (
            "iceberg_maint.wiring.adapters",
            "from iceberg_maint.defs.assets import asset_definitions",
            "wiring may not import defs",
        ),
        ("iceberg_maint.helpers", "import os", "in no room"),
    ],
)
def test_import_across_rooms_is_a_violation(module: str, source: str, reason: str) -> None:
    [found] = import_violations(module, source)
    assert reason in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("iceberg_maint.core.planning.plan", "import json\nfrom iceberg_maint.core.model.ids import TableId"),
        (
            "iceberg_maint.engines.spark.jvm.bridge",
            "from py4j.java_gateway import JavaObject\nimport pyspark",
        ),
        ("iceberg_maint.ledger.store", "import sqlalchemy\nfrom iceberg_maint.core.outcomes import record"),
        (
            "iceberg_maint.defs.assets.asset_definitions",
            "import dagster\nfrom iceberg_maint import wiring\nfrom iceberg_maint.loop import maintain",
        ),
        ("iceberg_maint.cli", "from iceberg_maint import __version__"),
    ],
)
def test_import_within_the_rules_is_no_violation(module: str, source: str) -> None:
    assert import_violations(module, source) == []


def test_environment_read_in_a_function_is_a_violation_and_in_a_script_block_is_not() -> None:
    source = "import os\ndef f():\n    return os.environ\nif __name__ == '__main__':\n    f(os.environ)\n"
    assert environment_violations("iceberg_maint.engines.spark.session.java", source) == [
        "iceberg_maint.engines.spark.session.java:3 reads the environment"
    ]
    assert environment_violations("iceberg_maint.config.load", source) == []


def test_importing_core_loads_no_heavy_package() -> None:
    light = [module for module, _ in module_names() if part_of(module) in {"core", "errors", "ports", "loop"}]
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
