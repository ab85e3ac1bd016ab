"""Orphan files from the command line, on real files: look, set aside, put back, remove for good."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iceberg_maint.catalog import approved_io as stores
from iceberg_maint.cli import iceberg_maint
from iceberg_maint.cli.context import Session
from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.removal.released_file_rules import Release, RemovedSnapshot
from iceberg_maint.removal.remove_orphans import OrphanRemoval
from iceberg_maint.wiring.adapters import OrphanScans, SystemClock, build
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.removal.layouts import DAY_MS, LAYOUTS, ORPHANS, Lake, ShiftedStore
from iceberg_maint_tests.support.removal.passes import NoEngine, StoreClock

pytestmark = pytest.mark.seconds

ALL = ORPHANS + 1
Program = Callable[..., Result]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return LAYOUTS[0].build(tmp_path)


@pytest.fixture
def store() -> ShiftedStore:
    return ShiftedStore()


@pytest.fixture
def session(lake: Lake, store: ShiftedStore, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(stores, "open_store", lambda _io, _location: store)
    file = Path(lake.folder) / "maint.yaml"
    file.write_text(
        f"ledger: sqlite:///{lake.folder}/ledger.db\n"
        f"catalogs:\n  lake: {{type: jdbc, uri: 'sqlite:///{lake.database}', warehouse: '{lake.folder.as_uri()}'}}\n"
    )
    config = load_config(file, {"ICEBERG_MAINT_HOME": f"{lake.folder}/home"}, "")
    clock, real = StoreClock(store), build(config)
    context = changed(
        real,
        clock=clock,
        engine=NoEngine,
        orphan_files=OrphanScans(config, real.catalogs, clock, real.ledger),
    )
    monkeypatch.setattr(context.ledger.registry, "now_ms", clock.now_ms)
    return Session(load=lambda _path: config, build=lambda _config: context)


@pytest.fixture
def program(session: Session) -> Program:
    def call(*arguments: str) -> Result:
        return CliRunner().invoke(iceberg_maint, ["orphans", *arguments], obj=replace(session))

    return call


def document(result: Result, exit_code: int = 0) -> Any:
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def test_scan_deletes_caches_of_tables_that_no_pass_has_scanned_for_90_days(
    program: Program, lake: Lake, store: ShiftedStore
) -> None:
    folder = lake.folder / "home" / "orphans"
    folder.mkdir(parents=True)
    for name, days in (("metadata-dropped.db", 91), ("metadata-recent.db", 89)):
        (folder / name).touch()
        os.utime(folder / name, (StoreClock(store).now_ms() / 1000 - days * 86_400,) * 2)
    document(program("scan", "lake.db.t", "--json"))
    assert not (folder / "metadata-dropped.db").exists()
    assert (folder / "metadata-recent.db").exists()


def test_scan_reports_what_would_go_and_moves_nothing(program: Program, lake: Lake) -> None:
    output = Path(lake.folder) / "all.jsonl"
    before = {p: p.stat().st_mtime_ns for p in lake.folder.glob("warehouse/**/*") if p.is_file()}
    found = document(program("scan", "lake.db.t", "--json", "--output", str(output)))
    root = f"file://{lake.folder}/warehouse/db/t"
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert (found["orphan_files"], found["needs_approval"]) == (ALL, False)
    assert found["orphan_bytes"] == sum(map(len, lake.orphans.values()))
    assert {f["folder"]: f["files"] for f in found["folders"]} == {
        f"{root}/data": ORPHANS,
        f"{root}/metadata": 1,
    }
    assert (len(found["largest"]), found["largest"][0]["bytes"]) == (20, max(map(len, lake.orphans.values())))
    assert found["oldest_ms"] <= found["youngest_ms"]
    assert found["listed_files"] == found["orphan_files"] + sum(found["kept"].values())
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert {line["path"] for line in lines} == {f"file://{p}" for p in lake.orphans}
    assert document(program("scan", "db.t", "--json")) == found
    assert f"{ALL} of" in program("scan", "db.t").stdout
    assert list(lake.folder.glob("home/orphans/*")) == []


def test_scan_whose_output_cannot_be_written_is_refused_before_it_looks(
    program: Program, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OrphanRemoval, "scan", lambda *_, **__: pytest.fail("looked for nothing"))
    error = document(program("scan", "db.t", "--json", "--output", f"{lake.folder}/no/file"), 2)["error"]
    assert (error["code"], error["message"]) == (
        "ICM-100",
        f"--output {lake.folder}/no/file cannot be written: No such file or directory.",
    )


def test_list_says_of_a_stored_release_that_its_retention_has_not_begun(
    program: Program, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = session.context()
    table = TableId.parse("lake.db.t")
    state = context.catalogs.pin(table)
    removed = RemovedSnapshot(7, state.last_updated_ms, f"{state.location}/metadata/gone.avro")
    release = Release("batch-1", str(table), state.uuid, state.metadata_location, 0, (removed,))
    policy = context.policies.of(state).remove_orphan_files
    context.storage.orphan_files(table).record_release(state, policy, release)
    listed = document(program("list", "db.t", "--json"))
    assert (listed["trash"], listed["releases"]) == ([], [{"release_id": "batch-1", "snapshots": 1}])
    monkeypatch.setenv("COLUMNS", "200")
    assert program("list", "db.t").stdout.splitlines() == [
        "the trash is empty",
        (
            "The files that expiry batch-1 of 1 snapshot releases are not in the trash. "
            "Their retention begins with the next expire_snapshots or remove_orphan_files."
        ),
    ]
    document(program("trash", "db.t", "--json"))
    assert document(program("list", "db.t", "--json"))["releases"] == []


def test_files_go_come_back_and_stay(
    program: Program, lake: Lake, store: ShiftedStore, session: Session
) -> None:
    moved = document(program("trash", "db.t", "--json"))
    [mark] = moved["trash"]
    assert moved["operation"]["batches"][0]["counts"]["trashed_files"] == mark["files"] == ALL
    assert (mark["state"], mark["sweep_after_ms"]) == ("retained", mark["marked_ms"] + 3 * DAY_MS)
    assert (lake.remaining(), lake.lost()) == ([], [])

    early = document(program("sweep", "db.t", "--json"))
    assert early["operation"]["batches"][0]["counts"]["swept_files"] == 0
    back = document(program("restore", "db.t", "--mark", mark["mark_id"], "--json"))
    assert back["restored"] == [{"mark_id": mark["mark_id"], "restored_files": ALL, "left_files": 0}]
    assert {p: p.read_bytes() for p in lake.orphans} == lake.orphans
    assert document(program("list", "db.t", "--json"))["trash"] == back["trash"]
    assert back["trash"][0]["state"] == "restored"

    again = document(program("trash", "db.t", "--json"))
    assert again["operation"]["batches"][0]["counts"]["trashed_files"] == 0
    [restored] = [
        r
        for r in session.context().ledger.records.newest(None, 10)
        if r.outcome.message.startswith("Restored")
    ]
    assert (
        restored.outcome.message == f"Restored {ALL} files of {mark['mark_id']}. 0 files stay in the trash."
    )


def test_sweep_after_the_hold_removes_one_mark_for_good(
    program: Program, lake: Lake, store: ShiftedStore
) -> None:
    [mark] = document(program("trash", "db.t", "--json"))["trash"]
    store.ahead_ms = 3 * DAY_MS + 60_000
    lake.plant(lake.orphans, lake.folder / "warehouse/db/t/data/one-more", b"x")
    lake.age()
    [_, second] = document(program("trash", "db.t", "--json"))["trash"]
    store.ahead_ms *= 3
    swept = document(program("sweep", "db.t", "--mark", second["mark_id"], "--json"))
    assert swept["operation"]["batches"][0]["counts"]["swept_files"] == 1
    assert ([m["mark_id"] for m in swept["trash"]], lake.trashed()) == ([mark["mark_id"]], ALL)
    assert document(program("sweep", "db.t", "--json"))["trash"] == []
    assert (lake.trashed(), lake.lost()) == (0, [])


def test_sweep_waits_for_snapshots_that_are_to_expire(
    program: Program, lake: Lake, store: ShiftedStore
) -> None:
    program("trash", "db.t")
    store.ahead_ms = 4 * DAY_MS
    expires = ("--set", "expire_snapshots.min_snapshots_to_keep=1")
    waits = program("sweep", "db.t", "--json", *expires)
    assert (document(waits)["waits_for"], lake.trashed()) == ("expire_snapshots", ALL)
    assert "run expire_snapshots first" in waits.stderr


def test_abnormal_share_is_refused_until_its_digest_is_approved(program: Program, lake: Lake) -> None:
    strict = ("--set", "remove_orphan_files.max_orphan_ratio=0.01")
    refused = program("trash", "db.t", *strict)
    assert (refused.exit_code, lake.trashed()) == (3, 0)
    assert "ICM-122 21 of" in refused.stderr
    found = document(program("scan", "db.t", *strict, "--json"))
    assert found["needs_approval"]
    assert f"--approve {found['digest']}" in refused.stderr
    assert program("trash", "db.t", *strict, "--approve", "0-abc").exit_code == 3
    assert program("trash", "db.t", *strict, "--approve", found["digest"]).exit_code == 0
    assert lake.trashed() == ALL


@pytest.mark.parametrize(
    ("command", "work"),
    [("restore", "removal.remove_orphans.OrphanRemoval.restore"), ("trash", "cli.orphans.maintain")],
)
def test_termination_is_one_line_and_one_document(
    command: str, work: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_arguments: object, **_options: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(f"iceberg_maint.{work}", stopped)
    result = program(command, "db.t", "--json")
    message = "terminated by SIGTERM: every file is at its path or in the trash."
    assert document(result, 1) == {"error": {"code": None, "message": message, "fix": "run again."}}
    assert result.stderr == f"{message} Fix: run again.\n"


def test_what_cannot_go_back_stays_in_the_trash(program: Program, lake: Lake) -> None:
    program("trash", "db.t")
    taken = next(iter(lake.orphans))
    taken.write_bytes(b"somebody's")
    result = document(program("restore", "db.t", "--json"), exit_code=1)
    assert (result["restored"][0]["restored_files"], result["restored"][0]["left_files"]) == (ORPHANS, 1)
    assert (taken.read_bytes(), result["trash"][0]["state"]) == (b"somebody's", "retained")


def test_lease_of_another_run_is_waited_for_and_then_respected(
    program: Program, lake: Lake, session: Session
) -> None:
    program("trash", "db.t")
    uuid = lake.target().state.uuid
    assert session.context().ledger.leases.acquire(uuid, "lake.db.t", "somebody", 600, 0) is not None
    for call in (("trash",), ("sweep",), ("restore",)):
        assert program(*call, "db.t").exit_code == 3
    assert lake.trashed() == ALL
    assert program("scan", "db.t").exit_code == program("list", "db.t").exit_code == 0


@pytest.mark.parametrize("arguments", [("restore", "db.t", "--mark", "x"), ("sweep", "db.t", "--mark", "x")])
def test_mark_that_is_not_there_is_a_usage_error(program: Program, arguments: tuple[str, ...]) -> None:
    result = program(*arguments)
    assert result.exit_code == 2
    assert "ICM-126 lake.db.t: the trash has no mark 'x'." in result.stderr


def test_mode_advise_moves_nothing(program: Program, lake: Lake) -> None:
    result = document(program("trash", "db.t", "--set", "mode=advise", "--json"))
    assert (result["operation"]["reason"], lake.trashed()) == ("advise", 0)


def newer_version(lake: Lake, updated_ms: int, sequence_number: int) -> Path:
    """A metadata file of the table that its catalog does not know."""
    at = lake.folder / "warehouse/db/t/metadata"
    document = json.loads((at / "00009-last.metadata.json").read_text())
    document |= {"last-updated-ms": updated_ms, "last-sequence-number": sequence_number}
    place: Path = at / "00010-theirs.metadata.json"
    place.write_text(json.dumps(document))
    return place


def whole(session: Session, *arguments: str) -> Any:
    """The document of a command that is not among those of orphans."""
    result = CliRunner().invoke(iceberg_maint, [*arguments, "--json"], obj=replace(session))
    return json.loads(result.stdout)


def remembered(session: Session) -> str:
    """What `why` tells of the last pass."""
    [told] = [
        u["last_scan"]
        for u in whole(session, "why", "lake.db.t")["housekeeping"]
        if u["operation"] == "remove_orphan_files"
    ]
    return str(told)


def owners(session: Session) -> list[tuple[str, str, str]]:
    """What `doctor` tells of second owners."""
    found = whole(session, "doctor", "--no-spark")["checks"]
    return [(c["check"], c["status"], c["detail"]) for c in found if c["check"].startswith("owner")]


def test_newer_version_in_no_catalog_is_shown_by_trash_why_and_doctor(
    program: Program, lake: Lake, session: Session
) -> None:
    assert (remembered(session), owners(session)) == (
        "",
        [("owners", "ok", "1 table: no metadata file in their folders is missing from their metadata logs")],
    )
    place = newer_version(lake, 3_000, 3)
    refused = document(program("trash", "lake.db.t", "--json"), exit_code=3)
    told = refused["operation"]["batches"][0]["message"]
    assert told.startswith("ICM-111 lake.db.t: 1 metadata files of this table are not in its metadata log")
    assert f"file://{place} (last sequence number 3, last updated 1970-01-01T00:00:03.000+00:00)" in told
    assert remembered(session) == told
    for screen in (("why", "lake.db.t"), ("why", "lake.db.t", "--all")):
        assert CliRunner().invoke(iceberg_maint, screen, obj=replace(session)).stdout.count("ICM-111") == 1
    assert owners(session) == [("owner of lake.db.t", "warning", told)]
    assert lake.trashed() == 0


def test_version_beside_the_log_is_shown_by_trash_why_and_doctor(
    program: Program, lake: Lake, session: Session
) -> None:
    place = newer_version(lake, 2_000, 2)
    done = document(program("trash", "lake.db.t", "--json"))["operation"]["batches"][0]
    assert done["unlogged"] == {"files": 1, "paths": [f"file://{place}"]}
    assert done["counts"]["trashed_files"] == ALL
    told = remembered(session)
    assert told.startswith(
        f"1 metadata files in the table's folder are not in its metadata log, the newest is file://{place}"
    )
    assert owners(session) == [("owner of lake.db.t", "warning", told)]
    assert document(program("scan", "lake.db.t", "--json"))["unlogged"] == done["unlogged"]


def test_context_of_the_program_reads_the_clock_of_the_store(session: Session, store: ShiftedStore) -> None:
    state = session.context().catalogs["lake"].pin(TableId.parse("lake.db.t"))
    store.ahead_ms = 30 * 86_400_000
    told = session.context().storage.now_ms(state)
    assert told is not None
    assert abs(told - session.context().clock.now_ms()) < 60_000
    assert [p.name for p in Path(state.location.removeprefix("file://")).glob(".iceberg-maint-*")] == []


def test_uptime_goes_on_and_names_its_boot() -> None:
    clock = SystemClock()
    first, second = clock.uptime(), clock.uptime()
    if first is None or second is None:
        pytest.skip("this machine tells no uptime")
    assert first.boot == second.boot
    assert 0 <= second.ms - first.ms < 60_000


DROPPED = "00000000-0000-4000-8000-000000000007"


def plant_dropped(lake: Lake) -> Path:
    """A metadata file of a table that was dropped, in the location of the table."""
    folder = Path(lake.folder / "warehouse/db/t/metadata")
    document = json.loads((folder / "00009-last.metadata.json").read_text())
    place = folder / "00001-dropped.metadata.json"
    place.write_text(json.dumps({**document, "table-uuid": DROPPED, "last-updated-ms": 1}))
    lake.age()
    return place


def test_adopted_files_of_a_dropped_table_refuse_no_pass(
    program: Program, lake: Lake, session: Session
) -> None:
    place = plant_dropped(lake)
    refused = program("trash", "db.t")
    assert refused.exit_code == 3
    assert f"file://{place} (of the table with uuid {DROPPED})" in refused.stderr
    adopted = document(program("adopt", "db.t", DROPPED, "--note", "dropped by ada", "--json"))
    assert (adopted["table"], adopted["adopted"]) == ("lake.db.t", DROPPED)
    assert (
        document(program("trash", "db.t", "--json"))["operation"]["batches"][0]["counts"]["trashed_files"]
        == ALL
    )
    assert (place.exists(), lake.lost()) == (True, [])
    records = session.context().ledger.records.newest(None, 10)  # type: ignore[attr-defined]
    [told] = [r.outcome.message for r in records if "adopted" in r.outcome.message]
    assert told.endswith(f" adopted the files of the dropped table with uuid {DROPPED}: dropped by ada")


def test_adopt_refuses_what_is_no_uuid_and_a_table_that_exists(program: Program, lake: Lake) -> None:
    own = lake.catalog.pin(TableId.parse("lake.db.t")).uuid
    error = document(program("adopt", "db.t", own, "--json"), 3)["error"]
    assert error["code"] == "ICM-111"
    assert error["message"] == f"lake.db.t has the UUID {own}, so that table was not dropped."
    error = document(program("adopt", "db.t", "x", "--json"), 2)["error"]
    assert (error["code"], error["message"]) == ("ICM-126", "'x' is no UUID of a table.")
