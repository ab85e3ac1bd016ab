"""The documents are what docs/reference/contract.md says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from iceberg_maint_tests.cli.conftest import Lake

CONTRACT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "contract.md"


def keys_of(value: Any) -> set[str]:
    """Every key of a document, but of those subtrees whose keys are data."""
    if isinstance(value, dict):
        inner = [keys_of(v) for k, v in value.items() if k not in ("versions", "evidence", "health")]
        return set(value).union(*inner)
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    return set()


def test_every_key_of_every_document_is_in_the_contract(lake: Lake) -> None:
    lake("run", "db.sick", "--partition", "day=1")
    documents = [
        lake.json(*arguments)
        for arguments in (
            ("tables",),
            ("observe",),
            ("plan", "db.sick"),
            ("why", "db.sick"),
            ("run",),
            ("history",),
            ("report",),
            ("pause",),
            ("resume",),
            ("release", "db.sick"),
            ("reconcile",),
            ("init", str(lake.home / "new")),
            ("shards", "2", str(lake.home / "new" / "dagster_home")),
        )
    ]
    contract = set(re.findall(r'["`]([a-z_]+)["`]', CONTRACT.read_text(encoding="utf-8")))
    assert keys_of(documents) - contract == set()
