"""The reproductions of faults of others: each is complete, imports nothing of this project, and is on the page."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from iceberg_maint_tests.qualification.regressions.inventory import INVENTORY

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "upstream"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.name != "run.py")
LIBRARIES = {"chdb", "dagster", "py4j", "pyarrow", "pyiceberg", "pyspark", "sqlalchemy"}
ROW = re.compile(
    r"^\| (?P<title>[^|]+) \| `(?P<script>\w+\.py)` \| (?P<known>[^|]+) \| "
    r"(?P<seen>(?:fault|fixed)[^|]*) \| (?P<ours>[^|]+) \| (?P<guards>[^|]+) \|$",
    re.MULTILINE,
)


def rows() -> list[re.Match[str]]:
    return list(ROW.finditer((FOLDER / "index.md").read_text("utf-8")))


def imports(tree: ast.Module) -> set[str]:
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_reproduction_stands_alone_and_says_what_it_shows(script: Path) -> None:
    text = script.read_text("utf-8")
    tree = ast.parse(text, script.name)
    doc = ast.get_docstring(tree) or ""
    title, *paragraphs = doc.split("\n\n")
    assert "\n" not in title
    fields = [paragraph.partition(":")[0] for paragraph in paragraphs]
    assert fields == ["Versions", "Expected", "Spec", "Actual"]
    assert re.search(r'^Spec: ".+" \(.+\)$', paragraphs[2].replace("\n", " "))
    assert {name.partition(".")[0] for name in imports(tree)} <= LIBRARIES | sys.stdlib_module_names
    assert len(text.splitlines()) <= 100
    assert text.endswith(
        'print(f"FAULT: {fault}" if fault else "fixed")\nraise SystemExit(1 if fault else 0)\n'
    )


def test_page_lists_every_reproduction_once_with_a_known_guard() -> None:
    assert sorted(row["script"] for row in rows()) == [path.name for path in SCRIPTS]
    known = {regression.key for group in INVENTORY.values() for regression in group}
    named = {name for row in rows() for name in re.findall(r"`([a-z0-9-]+)`", row["guards"])}
    assert named - known == set()
