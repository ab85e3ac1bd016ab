"""The audit log of the real loop: what runs write to it, and what `audit verify` and `history --audit` say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint.config import load_config
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.wiring import audit_log
from iceberg_maint_tests.cli.conftest import Lake

SICK = "lake.db.sick"


@pytest.fixture
def audited(lake: Lake, tmp_path: Path) -> Iterator[Lake]:
    lake.configure(f"audit: {{location: 'file://{tmp_path}/audit'}}\n")
    lake.runtime = replace(lake.runtime, audit=audit_log(lake.config, lake.runtime.ledger))
    return lake


def entries(lake: Lake) -> list[Path]:
    (folder,) = (f for f in (lake.home / "audit").iterdir() if SICK in next(f.iterdir()).read_text())
    return sorted(folder.iterdir())


def test_run_writes_intents_and_records_and_verify_finds_no_fault(audited: Lake) -> None:
    assert audited("run").exit_code == 0
    records = audited.json("history", SICK)["records"]
    tables = {t["table"]: t for t in audited.json("audit", "verify")["tables"]}
    assert tables[SICK]["records"] == len(records) > 0
    assert (tables[SICK]["faults"], tables[SICK]["open_intents"]) == ([], [])
    documents = [json.loads(f.read_text()) for f in entries(audited)]
    intent = next(d for d in documents if d["kind"] == "intent")
    assert intent["body"]["table"] == SICK
    assert intent["body"]["reasons"] == ["small_files"]
    assert intent["body"]["input_files"] == 18
    assert documents.index(intent) < next(n for n, d in enumerate(documents) if d["kind"] == "record")


def test_history_reads_the_same_records_from_the_log(audited: Lake) -> None:
    audited("run", SICK)
    shown = audited.json("history", SICK, "--audit")["records"]
    ledger = audited.json("history", SICK)["records"]
    assert sorted(shown, key=lambda r: r["record_id"]) == sorted(ledger, key=lambda r: r["record_id"])


def test_edited_entry_is_named_and_exits_1(audited: Lake) -> None:
    audited("run", SICK)
    changed = entries(audited)[0]
    changed.write_text(changed.read_text().replace("small_files", "large_files"))
    result = audited("audit", "verify")
    assert result.exit_code == 1
    assert f"ICM-143 {SICK}: changed: {changed.name}: the entry was changed" in result.stderr


def test_removed_entry_is_named_and_exits_1(audited: Lake) -> None:
    audited("run", SICK)
    entries(audited)[0].unlink()
    result = audited("audit", "verify", SICK)
    assert result.exit_code == 1
    assert f"ICM-143 {SICK}: missing: 000000000001.json: 1 entry is gone." in result.stderr


def test_end_that_was_cut_is_named_by_the_ledger(audited: Lake) -> None:
    audited("run", SICK, "--operation", "rewrite_data_files")
    entries(audited)[-1].unlink()
    (record,) = audited.json("history", SICK)["records"]
    document = audited.json("audit", "verify", SICK, exit_code=1)
    (fault,) = document["tables"][0]["faults"]
    assert (fault["kind"], fault["name"]) == ("cut", record["record_id"])


def test_configuration_without_an_audit_log_is_refused(lake: Lake) -> None:
    result = lake("audit", "verify")
    assert result.exit_code == 2
    assert "ICM-100 the configuration has no section audit." in result.stderr


@pytest.mark.parametrize("location", ["/var/audit", "audit", "s3://", "file:///a/../b", "file://"])
def test_location_without_scheme_or_with_dots_is_refused(location: str, tmp_path: Path) -> None:
    file = tmp_path / "maint.yaml"
    file.write_text(
        "catalogs:\n  lake: {type: jdbc, uri: 'sqlite:////x/c.db', warehouse: 'file:///x/w'}\n"
        f"audit: {{location: '{location}'}}\n"
    )
    with pytest.raises(ConfigurationError, match=r"ICM-100.*audit\.location"):
        load_config(file, {}, "")
