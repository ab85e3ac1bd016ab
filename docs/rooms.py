"""Draws docs/images/rooms.svg: the package's rooms in floors, from the imports of the code.

    python docs/rooms.py

A room is a folder, with its sub-folders unless `_DEPTHS` says otherwise, or a module at the top. It stands one floor above the highest room that it imports.
An arrow is an import; arrows that follow from others are left out.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "iceberg_maint"
PICTURE = PROJECT / "docs" / "images" / "rooms.svg"

_WIDTH, _FLOOR, _BOX, _GAP, _CHARACTER = 1240, 76, 30, 14, 7.6
_COLORS = {
    "core": "#e8f0fe",
    "engines": "#fdeee0",
    "catalog": "#e9f7ec",
    "defs": "#f4eafd",
    "demo": "#f3f3f3",
}
_STYLE = """text{font:13px system-ui,sans-serif;fill:#1f2328}
rect{stroke:#8c959f}path{stroke:#8c959f;fill:none;opacity:.55}#h path{fill:#8c959f;opacity:1}"""

# How many folders deep the rooms of a top folder are.
_DEPTHS = {"core": 2, "integrations": 2, "catalog": 2, "cli": 2, "engines": 4}

Rooms = Mapping[str, frozenset[str]]


def imports() -> Rooms:
    """The rooms that each room imports."""
    modules = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    rooms: dict[str, set[str]] = defaultdict(set)
    lines: dict[str, int] = defaultdict(int)
    for module, path in modules.items():
        text = path.read_text("utf-8")
        room = _room(module, modules)
        lines[room] += text.count("\n")
        for node in _statements(ast.parse(text)):
            for name in _imported(node):
                target = name if name in modules else name.rpartition(".")[0]
                if target in modules and _room(target, modules) != room:
                    rooms[room].add(_room(target, modules))
    # A folder of folders has no code of its own, only a docstring.
    return {room: frozenset(rooms[room]) for room in lines if lines[room] > 2 and room != "iceberg_maint"}


def floors(rooms: Rooms) -> list[list[str]]:
    """The rooms of each floor, from the ground up."""
    floor: dict[str, int] = {}

    def of(room: str) -> int:
        if room not in floor:
            floor[room] = 1 + max((of(below) for below in rooms[room] if below in rooms), default=0)
        return floor[room]

    return [sorted(r for r in rooms if of(r) == level) for level in range(1, 1 + max(map(of, rooms)))]


def arrows(rooms: Rooms) -> list[tuple[str, str]]:
    """The imports that do not follow from others."""

    @cache
    def reached(room: str) -> set[str]:
        below = rooms.get(room, frozenset())
        return set(below).union(*(reached(other) for other in below))

    return [
        (room, below)
        for room in sorted(rooms)
        for below in sorted(rooms[room])
        if below in rooms and not any(below in reached(other) for other in rooms[room] - {below})
    ]


def draw(rooms: Rooms) -> str:
    """The picture as SVG."""
    levels = floors(rooms)
    height = len(levels) * _FLOOR + 20
    place: dict[str, tuple[float, float, float]] = {}
    for level, members in enumerate(levels):
        widths = [_CHARACTER * max(len(m), 9) + 18 for m in members]
        x = (_WIDTH - sum(widths) - _GAP * (len(widths) - 1)) / 2
        for member, width in zip(members, widths, strict=True):
            place[member] = (x, height - (level + 1) * _FLOOR, width)
            x += width + _GAP
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            'aria-label="Rooms of the package in floors">'
        ),
        f"<style>{_STYLE}</style>",
        (
            '<defs><marker id="h" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'
        ),
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff" style="stroke:none"/>',
    ]
    for room, below in arrows(rooms):
        (x, y, width), (to_x, to_y, to_width) = place[room], place[below]
        start, end = x + width / 2, to_x + to_width / 2
        middle = (y + _BOX + to_y) / 2
        parts.append(
            f'<path marker-end="url(#h)" d="M{start:.0f} {y + _BOX:.0f}C{start:.0f} {middle:.0f} '
            f'{end:.0f} {middle:.0f} {end:.0f} {to_y:.0f}"/>'
        )
    for room, (x, y, width) in place.items():
        color = _COLORS.get(room.split("/")[0], "#ffffff")
        parts += [
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{_BOX}" rx="5" fill="{color}"/>',
            f'<text x="{x + width / 2:.0f}" y="{y + 19:.0f}" text-anchor="middle">{escape(room)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _name(path: Path) -> str:
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str, modules: Mapping[str, Path]) -> str:
    parts = module.split(".")[1:]
    folder = parts if modules[module].name == "__init__.py" else parts[:-1]
    if not folder:
        return parts[-1] if parts else "iceberg_maint"
    depth = _DEPTHS.get(folder[0], 1)
    return "/".join(folder[:depth])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The node and the statements within it, without their expressions, which are most of a tree."""
    yield node
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for statement in getattr(node, block, ()):
            yield from _statements(statement)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


if __name__ == "__main__":
    PICTURE.write_text(draw(imports()), "utf-8")
