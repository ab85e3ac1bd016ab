"""The audit log of the real loop: what runs write to it, and what `audit verify` and `history --audit` say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.record import REDACTED
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.integrations.audit import audit_log
from iceberg_maint.integrations.audit.chain import Kind, entry_file_name, next_entry, parse
from iceberg_maint.integrations.audit.folder import LocalFolder
from iceberg_maint.integrations.audit.log import AuditLog
from iceberg_maint_tests.cli.conftest import Lake
from iceberg_maint_tests.support.context import changed

pytestmark = pytest.mark.seconds

SICK = "lake.db.sick"


@pytest.fixture
def audited(lake: Lake, tmp_path: Path) -> Iterator[Lake]:
    lake.configure(f"audit: {{location: 'file://{tmp_path}/audit'}}\n")
    lake.context = changed(lake.context, audit=audit_log(lake.config, lake.context.ledger))
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


def test_history_reads_the_log_where_the_ledger_lost_its_rows(
    audited: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited("run", SICK)
    ledger = audited.json("history", SICK)["records"]
    monkeypatch.setattr(audited.context.ledger.records, "newest", lambda *_: ())
    result = audited("history", SICK, "--json")
    shown = json.loads(result.stdout)["records"]
    assert sorted(r["record_id"] for r in shown) == sorted(r["record_id"] for r in ledger)
    assert "the ledger has no records. These are from the audit log." in result.stderr


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


@pytest.mark.parametrize("is_folder_left", [False, True])
def test_log_of_a_table_that_was_removed_whole_is_named_by_the_ledger(
    audited: Lake, is_folder_left: bool
) -> None:
    audited("run", "db.healthy", "--force")
    audited.clock.ms += 1000
    audited("run", SICK, "--operation", "rewrite_data_files")
    removed = entries(audited)
    for file in removed:
        file.unlink()
    if not is_folder_left:
        removed[0].parent.rmdir()
    (record,) = audited.json("history", SICK)["records"]
    tables = {t["table"]: t for t in audited.json("audit", "verify", exit_code=1)["tables"]}
    assert [(f["kind"], f["name"]) for f in tables[SICK]["faults"]] == [("cut", record["record_id"])]
    assert tables["lake.db.healthy"]["faults"] == []
    assert audited("audit", "verify", SICK).exit_code == 1


def test_work_from_before_the_log_waits_for_the_next_run_of_its_table(lake: Lake, tmp_path: Path) -> None:
    lake("run", SICK, "--operation", "rewrite_data_files")
    (record,) = lake.json("history", SICK)["records"]
    lake.configure(f"audit: {{location: 'file://{tmp_path}/audit'}}\n")
    lake.context = changed(lake.context, audit=audit_log(lake.config, lake.context.ledger))
    (table,) = lake.json("audit", "verify")["tables"]
    assert (table["table"], table["waiting_records"]) == (SICK, [record["record_id"]])
    lake.clock.ms += 1000
    lake("run", "db.healthy", "--force")
    tables = {t["table"]: t for t in lake.json("audit", "verify")["tables"]}
    assert (tables[SICK]["faults"], tables[SICK]["waiting_records"]) == ([], [record["record_id"]])


def test_columns_of_the_verdict_have_plain_titles(audited: Lake) -> None:
    assert "The audit log has no entries, and the ledger has no records." in audited("audit", "verify").stdout
    audited("run", SICK)
    title = audited("audit", "verify").stdout.splitlines()[0]
    assert title.split() == ["table", "entries", "records", "open", "waiting", "faults"]


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


class Death(BaseException):
    """The process ends here."""


class DyingFolder(LocalFolder):
    """Ends the process after the given number of entries, before or after the last one is there."""

    left = 0
    after = False

    def create(self, name: str, data: bytes) -> None:
        DyingFolder.left -= 1
        if DyingFolder.left == 0 and not DyingFolder.after:
            raise Death
        super().create(name, data)
        if DyingFolder.left == 0:
            raise Death


@pytest.mark.drawn(2)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("entries_before", [1, 2, 3, 4])
def test_run_that_dies_at_an_entry_is_in_the_log_once_after_the_next_run(
    entries_before: int, after: bool, audited: Lake
) -> None:
    DyingFolder.left, DyingFolder.after = entries_before, after
    dying = AuditLog(lambda uuid: DyingFolder(audited.home / "audit" / uuid), audited.context.ledger)
    whole, audited.context = audited.context, changed(audited.context, audit=dying)
    with suppress(Death):
        audited("run", SICK)
    assert DyingFolder.left == 0
    audited.context = whole
    audited("run", SICK, "--force")
    (table,) = audited.json("audit", "verify", SICK)["tables"]
    assert (table["faults"], table["waiting_records"], table["open_intents"]) == ([], [], [])
    ledger = [r["record_id"] for r in audited.json("history", SICK)["records"]]
    logged = [r["record_id"] for r in audited.json("history", SICK, "--audit")["records"]]
    assert sorted(logged) == sorted(ledger)


@pytest.mark.parametrize("writable", [True, False])
def test_ledger_deletes_no_record_that_the_log_lacks(writable: bool, audited: Lake) -> None:
    pruned: list[str] = []
    ledger = audited.context.ledger
    inner = ledger.records.prune
    ledger.records.prune = lambda uuid, days: (pruned.append(uuid), inner(uuid, days))[1]  # type: ignore[method-assign]
    if not writable:
        (audited.home / "audit").write_text("a file where the folder should be")
    result = audited("run", SICK)
    assert result.exit_code == 0
    assert bool(pruned) is writable


def test_restrictions_that_begin_or_end_are_no_change_of_the_log(audited: Lake) -> None:
    """The ledger shows the records of a governed table without values. The log has them as they were."""
    audited("run", SICK)
    audited.context.ledger.health.mark_governed(TableId.parse(SICK))
    shown = audited.context.ledger.records.newest(SICK, 50)
    assert {key for r in shown for key, _, _ in r.outcome.partitions} == {REDACTED}
    verified = audited.json("audit", "verify")["tables"]
    assert [t["faults"] for t in verified] == [[]] * len(verified)


def test_history_of_a_damaged_log_says_so(audited: Lake) -> None:
    audited("run", SICK)
    entries(audited)[0].unlink()
    result = audited("history", SICK, "--audit", "--json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["records"]) > 0
    assert "has 1 fault. Its records may be incomplete: run iceberg-maint audit verify." in result.stderr


def test_history_omits_a_record_that_another_person_wrote(audited: Lake) -> None:
    """A person who edits an entry can also compute its hash."""
    audited("run", SICK)
    logged = len(audited.json("history", SICK, "--audit")["records"])
    last = entries(audited)[-1]
    entry = parse(last.read_bytes())
    body = {"run_id": "x", "operation": "y"}
    forged = next_entry(replace(entry, sequence=entry.sequence), Kind.RECORD, "x", 1, body)
    last.with_name(entry_file_name(forged.sequence)).write_bytes(forged.to_bytes())
    result = audited("history", SICK, "--audit", "--json")
    assert len(json.loads(result.stdout)["records"]) == logged
    assert f"{entry_file_name(forged.sequence)} is no record of this program" in result.stderr
