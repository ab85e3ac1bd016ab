"""Measures how much a reader of the project must hold in the head: `python .ci/house.py [--json]`.

Sizes come from the sources; the way of one table comes from a trace of the loop over the lake in memory.
"""

from __future__ import annotations

import ast
import io
import json
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "iceberg_maint"
FLAT_FOLDERS = ("columnar", "defs", "report", "removal", "catalog", "loop")
BEYOND_PORTS = tuple(f"{PACKAGE}/{folder}/" for folder in ("ledger", "catalog", "engines"))


def modules() -> tuple[Path, ...]:
    """The modules of the package, by path."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


def code_lines(path: Path) -> int:
    """The lines with code: no blank lines, comments or docstrings."""
    text = path.read_text()
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    skipped |= {tokenize.ENDMARKER, tokenize.ENCODING}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """(file:name, definition) of every function and method."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(PACKAGE)}:{node.name}", node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The parameters of a function, without `self` and `cls`. A command has none: click passes each option as one."""
    if any("click." in ast.unparse(decorator) for decorator in function.decorator_list):
        return 0
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([n for n in names if n not in ("self", "cls")])


def class_sizes() -> Iterator[tuple[str, int, int]]:
    """(file:name, fields, public methods) of every class."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                fields = sum(isinstance(n, ast.AnnAssign) for n in node.body)
                methods = sum(isinstance(n, ast.FunctionDef) and n.name[0] != "_" for n in node.body)
                yield f"{path.relative_to(PACKAGE)}:{node.name}", fields, methods


def words(*paths: Path) -> int:
    """The words of pages."""
    return sum(len(path.read_text().split()) for path in paths)


def way_of_one_table() -> dict[str, dict[str, int]]:
    """The files that a call of `maintain` enters until its decision is made.

    A return is a call that leads back into a file that was entered before, a climb one that leads to a room further down
    in the list of rooms. Each pair of files counts once, so that loops do not count. In order of the calls, the file entered
    last counts as the caller. As a reader follows the calls, the file of the calling frame does: nested functions are read
    where they stand, and the way ends at a port.
    """
    sys.path.insert(0, str(PROJECT))
    from iceberg_maint_tests.support.loop.world import World

    world = World("a")
    entered: list[str] = []
    calls: list[tuple[str, str]] = []
    is_open = True

    def trace(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal is_open
        name = frame.f_code.co_filename
        if not is_open or not name.startswith(f"{PACKAGE}/") or "fake" in name:
            return
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.append(name)
            if caller := caller_before_a_port(frame):
                calls.append((caller, name))
        if event == "return" and frame.f_code.co_name == "decide":
            is_open = False

    sys.setprofile(trace)
    try:
        world.run()
    finally:
        sys.setprofile(None)
    entered = entered[next(i for i, e in enumerate(entered) if e.endswith("maintain.py")) :]
    return {
        "in order of the calls": steps(zip(["", *entered], entered, strict=False)),
        "as a reader follows the calls, to the ports": steps(calls),
    }


def caller_before_a_port(frame: FrameType) -> str:
    """The file that calls this function; "" for a nested function, before `maintain` and beyond a port."""
    if "<" in frame.f_code.co_qualname:
        return ""
    caller, up = "", frame
    while up.f_code.co_qualname != "maintain":
        name = up.f_code.co_filename
        if name.startswith((*BEYOND_PORTS, f"{PACKAGE}_tests/")) or up.f_back is None:
            return ""
        up = up.f_back
        if not caller and up.f_code.co_filename.startswith(f"{PACKAGE}/"):
            caller = up.f_code.co_filename
    return caller


def steps(calls: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The files, returns and climbs of calls (calling file, called file)."""
    from iceberg_maint_tests.test_layers import ROOMS, room_of

    floors = {room: index for index, room in enumerate(ROOMS)}

    def floor(file: str) -> int:
        parts = Path(file).relative_to(PROJECT).with_suffix("").parts
        return floors[str(room_of(".".join(parts)))]

    returns: set[tuple[str, str]] = set()
    climbs: set[tuple[str, str]] = set()
    visited: set[str] = set()
    for before, file in calls:
        if file == before:
            continue
        if file in visited:
            returns.add((before, file))
        visited |= {before, file} - {""}
        if before and floor(file) > floor(before):
            climbs.add((before, file))
    return {"files": len(visited), "returns": len(returns), "climbs": len(climbs)}


def measures() -> dict[str, Any]:
    """Every measure by its name."""
    files = modules()
    code = {path: code_lines(path) for path in files}
    lines = [len(path.read_text().splitlines()) for path in files if path.name != "__init__.py"]
    classes = tuple(class_sizes())
    wide = {name: parameters(node) for name, node in functions()}
    names = Counter(path.name for path in files if path.name not in ("__init__.py", "__main__.py"))
    targets = re.findall(r"^[a-z-]+:.*## ", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    pages = [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")]
    return {
        "files with code": sum(count > 0 for count in code.values()),
        "files of a docstring alone (`__init__.py`)": sum(count == 0 for count in code.values()),
        "median lines of a file": statistics.median(lines),
        "lines": sum(len(path.read_text().splitlines()) for path in files),
        "code lines": sum(code.values()),
        **{f"way of one table, {name}": counts for name, counts in way_of_one_table().items()},
        "modules flat in a folder": {
            f: len(list((PACKAGE / f).glob("*.py"))) - 1 for f in FLAT_FOLDERS if (PACKAGE / f).is_dir()
        },
        "loose modules": len([p for p in PACKAGE.glob("*.py") if p.name != "__init__.py"]),
        "file names used more than twice": {n: count for n, count in names.items() if count > 2},
        "functions with more than six parameters": sum(n > 6 for n in wide.values()),
        "most parameters": dict(Counter(wide).most_common(3)),
        "most fields": dict(Counter({n: f for n, f, _ in classes}).most_common(5)),
        "most public methods": dict(Counter({n: m for n, _, m in classes}).most_common(5)),
        "words of docs": words(*pages),
        "words of README": words(PROJECT / "README.md"),
        "words of the changelog": words(PROJECT / "CHANGELOG.md"),
        "make targets shown": len(targets),
        "decisions": len(list((PROJECT / "docs").rglob("decisions/*.md"))),
        "files that import dagster._": sum("from dagster._" in path.read_text() for path in files),
        "lines of tests": sum(
            len(p.read_text().splitlines()) for p in (PROJECT / "iceberg_maint_tests").rglob("*.py")
        ),
    }


def main() -> None:
    """Prints the measures, one a line, or as JSON."""
    result = measures()
    if "--json" in sys.argv[1:]:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(f"{name:62} {value}")


if __name__ == "__main__":
    main()
