"""Writes docs/project/figures.md from the records of docs/project/figures: `make figures`.

A record has a section, its rows and the plots below them. Benches write their rows by `bench.record`; rows without a
format (`of`) are written by hand after a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
RECORDS = DOCS / "project" / "figures"
PAGE = DOCS / "project" / "figures.md"

_HEAD = """\
# Figures

The newest figure of each claim. Machines were shared virtual machines with two to four cores, so CPU seconds and ratios say more
than seconds. Stock is Iceberg's own action. The commit is that of the measurement, or, if it was not noted, the one that recorded it. `…` continues the row above. `bench.deletes.cdc` is run by
`python -m bench.deletes.cdc`.

`RECORD=1 make bench BENCH=health` writes the figures of a bench into its record, and `make figures` writes this page and the plots.
[Two killed runs](../transcripts/killed-run.txt) are a transcript of `iceberg_maint_tests.support.e2e.transcript`.
"""
_TABLE = "\n| What | Figure | Target | Command | Commit | Date |\n|---|---|---|---|---|---|\n"
_NUMBERS = re.compile(r"[\d,.]*\d(?:/[\d,.]*\d)*")
_LIMIT = re.compile(rf"([≤≥]) ({_NUMBERS.pattern})")


def records() -> dict[str, dict[str, Any]]:
    """Every record by its name."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(RECORDS.glob("*.json"))}


def is_missed(row: Mapping[str, Any]) -> bool:
    """Whether the first number of a figure breaks the first limit of its target. Of numbers with slashes, each has its limit."""
    limit, figure = _LIMIT.match(row["target"]), _NUMBERS.match(row["figure"])
    if limit is None or figure is None:
        return False
    pairs = zip(
        *(text.replace(",", "").split("/") for text in (figure.group(), limit.group(2))), strict=False
    )
    return any(float(v) > float(m) if limit.group(1) == "≤" else float(v) < float(m) for v, m in pairs)


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    sections: dict[str, list[dict[str, Any]]] = {}
    for record in records().values():
        sections.setdefault(record["section"], []).append(record)
    for section, of_section in sorted(sections.items()):
        parts.append(f"\n## {section}\n{_TABLE}")
        parts += [_line(row) for record in of_section for row in record["rows"]]
        parts += [
            f"\n![{title}](../images/{name})\n"
            for record in of_section
            for name, title in record.get("pictures", ())
        ]
    return "".join(parts)


def _line(row: Mapping[str, Any]) -> str:
    target = f"{row['target']}: missed" if is_missed(row) else row["target"]
    command = row["command"].removeprefix("python -m ")
    return f"| {row['what']} | {row['figure']} | {target} | `{command}` | {row['commit']} | {row['date']} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
