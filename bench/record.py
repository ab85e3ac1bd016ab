"""The record of a bench: docs/project/figures/NAME.json, from which `make figures` writes the page of figures."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
RECORDS = PROJECT / "docs" / "project" / "figures"


def publish(name: str, document: Mapping[str, Any]) -> None:
    """Prints the figures of a bench as one line of JSON. With `RECORD=1` in the environment, for a run of the default size,
    they also go into its record."""
    print(json.dumps(document), flush=True)
    if os.environ.get("RECORD") == "1":
        path = RECORDS / f"{name}.json"
        now = datetime.now(UTC).date().isoformat()
        path.write_text(
            written(updated(json.loads(path.read_text("utf-8")), document, _commit(), now)), "utf-8"
        )


def updated(record: Mapping[str, Any], document: Mapping[str, Any], commit: str, day: str) -> dict[str, Any]:
    """The record with the figures of the rows whose format (`of`) the document fills; the others stay."""
    rows = []
    for row in record["rows"]:
        try:
            figure = row["of"].format_map(document)
        except KeyError:  # a row by hand, or of another part of the bench
            rows.append(row)
        else:
            rows.append({**row, "figure": figure, "commit": commit, "date": day})
    return {**record, "rows": rows}


def written(record: Mapping[str, Any]) -> str:
    """The record as JSON, a row on each line."""
    head = json.dumps({k: v for k, v in record.items() if k != "rows"}, ensure_ascii=False)[:-1]
    rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in record["rows"])
    return f'{head},\n"rows": [\n{rows}\n]}}\n'


def _commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout.strip()
