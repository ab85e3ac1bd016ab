"""Places of the product where an operator or a constant can be changed, and a draw of them by a seed."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint_tests.qualification.mutants.mutant import PRODUCT

ROOMS = ("core", "catalog", "ledger", "removal")
SPARK = "engines/spark"
SPARK_SHARE = 2 / 15
"""Of the mutants drawn. Those of the other rooms are drawn as if from one room."""

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),  # codespell:ignore
}
MESSAGES = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
TEXT = (ast.JoinedStr, ast.List, ast.Tuple)


@dataclass(frozen=True, slots=True)
class Site:
    """One change of a file: `old`, which stands at the byte offset `start`, becomes `new`.

    `function` is the qualified name of the innermost function around it, `first` the number of its first line
    (decorators included); both are empty outside of functions.
    """

    file: str
    line: int
    start: int
    old: str
    new: str
    function: str
    first: int

    @property
    def module(self) -> str:
        return f"iceberg_maint.{self.file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"

    @property
    def key(self) -> str:
        """Names the site in results."""
        return f"{self.file}:{self.line}@{self.start} {self.old} → {self.new}"

    def changed(self) -> str:
        """The text of the file with the change."""
        source = (PRODUCT / self.file).read_bytes()
        end = self.start + len(self.old.encode())
        assert source[self.start : end].decode() == self.old, self.key
        return (source[: self.start] + self.new.encode() + source[end:]).decode()

    def lines(self) -> tuple[str, str]:
        """The line before and after the change, without its indentation."""
        before = (PRODUCT / self.file).read_text("utf-8").splitlines()[self.line - 1]
        after = self.changed().splitlines()[self.line - 1]
        return before.strip(), after.strip()


class _Finder(ast.NodeVisitor):
    """Collects the sites of a module. Left out: annotations, decorators, docstrings, text with values in it,
    asserts, what is raised or logged, `zip`'s `strict`, and `__all__`."""

    def __init__(self, file: str, source: bytes) -> None:
        self.sites: list[Site] = []
        self._file, self._source = file, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._first = 0
        self._inside = False

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _start(self, node: ast.expr) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def _add(self, start: int, old: str, new: str) -> None:
        line = self._source.count(b"\n", 0, start) + 1
        name = ".".join(self._names) if self._inside else ""
        self.sites.append(Site(self._file, line, start, old, new, name, self._first))

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """The operator between two operands, where no comment or other text hides it."""
        start = self._end(left)
        text = self._source[start : self._start(right)].decode()
        word = r"\b" if old[0].isalpha() else ""
        found = list(re.finditer(word + re.escape(old).replace(r"\ ", r"\s+") + word, text))
        if len(found) == 1 and "#" not in text:
            self._add(start + len(text[: found[0].start()].encode()), found[0].group(), new)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            self._between(left, right, *COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(self._start(node), "not", "")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sign = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}.get(type(node.op))
        if sign and not any(_is_text(side) for side in (node.left, node.right)):
            self._between(node.left, node.right, *sign)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        sign = {ast.Add: ("+=", "-="), ast.Sub: ("-=", "+=")}.get(type(node.op))
        if sign and not _is_text(node.value):
            self._between(node.target, node.value, *sign)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        old = self._source[self._start(node) : self._end(node)].decode()
        if isinstance(node.value, bool):
            self._add(self._start(node), old, str(not node.value))
        elif isinstance(node.value, int | float):
            more = node.value + 1
            self._add(self._start(node), old, repr(more if more != node.value else 2 * more))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer = self._first, self._inside
        self._names.append(node.name)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        self._inside = True
        for child in node.body:
            self.visit(child)
        self._names.pop()
        self._first, self._inside = outer

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for child in node.body:
            self.visit(child)
        self._names.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if not (isinstance(node.func, ast.Attribute) and node.func.attr in MESSAGES):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.generic_visit(node)

    def _nothing(self, node: ast.AST) -> None:
        """Leaves a node and all below it out."""

    visit_Raise = visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = _nothing


def _is_text(node: ast.expr) -> bool:
    """Whether an operand is a list or text, of which a difference cannot be taken."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, TEXT) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def sites_of(file: str) -> list[Site]:
    """All sites of a file of the package, in its order."""
    source = (PRODUCT / file).read_bytes()
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return sorted(finder.sites, key=lambda site: (site.start, site.new))


def sites_in(rooms: Sequence[str]) -> Iterator[Site]:
    """All sites of rooms, by file."""
    for room in rooms:
        for path in sorted((PRODUCT / room).rglob("*.py")):
            yield from sites_of(path.relative_to(PRODUCT).as_posix())


def drawn(count: int, seed: int) -> list[Site]:
    """As many sites as asked for. The same source, count and seed give the same sites."""
    chosen: list[Site] = []
    of_spark = round(count * SPARK_SHARE)
    for rooms, share in ((ROOMS, count - of_spark), ((SPARK,), of_spark)):
        chosen += random.Random(f"{seed} {rooms}").sample(list(sites_in(rooms)), share)
    return chosen


def by_room(sites: Sequence[Site]) -> Mapping[str, int]:
    """The number of sites of each room."""
    return {room: sum(site.file.startswith(f"{room}/") for site in sites) for room in (*ROOMS, SPARK)}
