"""Real tables with a second owner: their files stay whichever catalog this one's pointer falls behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy
from iceberg_maint.core.removal.orphan_rules import UnloggedMetadata
from iceberg_maint.removal.remove_orphans import Scope
from iceberg_maint_tests.support.removal.layouts import DAY_MS, Lake, ShiftedStore
from iceberg_maint_tests.support.removal.passes import DAILY, Passes

pytestmark = [pytest.mark.slow, pytest.mark.drawn(2)]

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
POLICY = Policy(remove_orphan_files=DAILY, expire_snapshots=ExpireSnapshotsPolicy(enabled=False))
WEEK_MS = 7 * DAY_MS + 60_000
HOLD_MS = DAILY.delete_after_seconds * 1000 + 60_000


def catalog(folder: Path, name: str) -> SqlCatalog:
    """A catalog in a database of its own, over one warehouse."""
    return SqlCatalog(
        "lake",
        uri=f"sqlite:///{folder}/{name}.db",
        warehouse=f"file://{folder}/warehouse",
        pool_pre_ping="true",
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose copy `lake.kept` holds a table of twenty commits. Metadata names absolute paths, so each test gets
    the copy at the same path."""
    folder = tmp_path_factory.mktemp("second_catalog") / "lake"
    folder.mkdir()
    made = catalog(folder, "catalog")
    made.create_namespace("db")
    table = made.create_table("db.t", ROWS.schema)
    for _ in range(20):
        table.append(ROWS)
    made.close()
    folder.rename(folder.with_suffix(".kept"))
    return folder


@pytest.fixture
def tmp_path(place: Path) -> Path:
    """The lake of the tests, as it was made."""
    if place.exists():
        shutil.rmtree(place)
    shutil.copytree(place.with_suffix(".kept"), place)
    return place


@pytest.fixture
def ours(tmp_path: Path) -> Table:
    """The table of the configured catalog: twenty commits."""
    return catalog(tmp_path, "catalog").load_table("db.t")


@pytest.fixture
def theirs(tmp_path: Path, ours: Table) -> Table:
    """The same table in a catalog that is not configured."""
    other = catalog(tmp_path, "other")
    other.create_namespace("db")
    return other.register_table("db.t", ours.metadata_location)


@pytest.fixture
def passes(tmp_path: Path, ours: Table) -> Passes:
    """Passes a week later: every file that was written is of age."""
    return Passes(Lake(tmp_path), ShiftedStore(WEEK_MS), POLICY)


def later(passes: Passes) -> Passes:
    return replace(passes, store=ShiftedStore(passes.store.ahead_ms + HOLD_MS))


def message(passes: Passes, *, force: bool = False) -> str:
    """What the pass refused with."""
    outcome = passes.run(force=force)
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.REFUSED)
    return outcome.batches[0].message


def ids(table: Table) -> int:
    return table.refresh().scan().to_arrow().num_rows


def test_table_that_another_catalog_commits_to_is_refused(passes: Passes, ours: Table, theirs: Table) -> None:
    theirs.append(ROWS)
    told = message(passes)
    assert told.startswith(
        "ICM-111 lake.db.t: 1 metadata files of this table are not in its metadata log and are newer"
    )
    assert f"{ours.metadata_location} (last sequence number 20, " in told
    assert f"{theirs.metadata_location} (last sequence number 21, " in told
    assert "Fix: find the catalog that points at this file" in told
    assert (passes.lake.trashed(), ids(theirs)) == (0, 63)


def test_commit_without_rows_in_another_catalog_is_refused(
    passes: Passes, ours: Table, theirs: Table
) -> None:
    with theirs.transaction() as change:
        change.set_properties(note="theirs")
    assert "(last sequence number 20, " in message(passes).partition(theirs.refresh().metadata_location)[2]


def test_catalog_restored_to_an_older_pointer_is_refused(tmp_path: Path, passes: Passes, ours: Table) -> None:
    backup = tmp_path / "backup.db"
    shutil.copy(tmp_path / "catalog.db", backup)
    ours.append(ROWS)
    ours.append(ROWS)
    shutil.copy(backup, tmp_path / "catalog.db")
    assert "2 metadata files of this table are not in its metadata log and are newer" in message(passes)
    assert passes.lake.trashed() == 0


def test_restored_catalog_that_has_gone_on_is_refused_for_the_line_it_left(
    tmp_path: Path, passes: Passes, ours: Table
) -> None:
    backup = tmp_path / "backup.db"
    shutil.copy(tmp_path / "catalog.db", backup)
    ours.append(ROWS)
    ours.append(ROWS)
    shutil.copy(backup, tmp_path / "catalog.db")
    again = catalog(tmp_path, "catalog").load_table("db.t")
    for _ in range(3):
        again.append(ROWS)
    told = message(passes)
    assert f"{ours.metadata_location} is a version of this table that is not in its metadata log" in told
    assert "It follows" in told
    assert passes.lake.trashed() == 0
    assert len(ours.scan().to_arrow()) == 66


def test_two_catalogs_that_commit_in_turn_are_refused(passes: Passes, ours: Table, theirs: Table) -> None:
    for _ in range(2):
        theirs.append(ROWS)
        ours.append(ROWS)
    ours.append(ROWS)
    assert "is a version of this table that is not in its metadata log. It follows" in message(passes)
    assert (passes.lake.trashed(), ids(theirs)) == (0, 66)


def test_metadata_file_of_a_failed_commit_is_a_sign_and_its_files_go(
    passes: Passes, ours: Table, theirs: Table
) -> None:
    """A commit that lost its swap leaves the same: one version that no log names."""
    theirs.append(ROWS)
    ours.append(ROWS)
    outcome = passes.run()
    assert outcome.outcome is OutcomeStatus.IMPROVED
    [batch] = outcome.batches
    assert batch.unlogged is not None
    assert (batch.unlogged.files, batch.unlogged.paths) == (1, (theirs.metadata_location,))
    assert passes.lake.trashed() == 3  # a data file, a manifest and a manifest list
    assert ids(ours) == 63


def test_versions_trimmed_from_the_log_are_no_sign(tmp_path: Path, passes: Passes, ours: Table) -> None:
    with ours.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "3"})
    for _ in range(5):
        ours.append(ROWS)
    assert len(ours.metadata.metadata_log) == 3
    outcome = passes.run()
    [batch] = outcome.batches
    assert batch.outcome is OutcomeStatus.NO_OP
    assert batch.unlogged is not None
    assert batch.unlogged.files == 0


def test_sweep_of_a_table_that_another_catalog_commits_to_deletes_nothing(
    passes: Passes, ours: Table, theirs: Table
) -> None:
    orphan = Path(ours.location().removeprefix("file://")) / "data" / "orphan.parquet"
    orphan.write_bytes(b"x")
    assert passes.run().batches[0].counts["trashed_files"] == 1
    theirs.append(ROWS)
    assert "newer than its catalog's pointer" in message(later(passes), force=True)
    assert passes.lake.trashed() == 1
    ours.append(ROWS)
    assert later(passes).run(force=True).batches[0].counts["swept_files"] == 1


@pytest.mark.parametrize("rename", [
    lambda name: name.replace(".metadata.json", ".gz.metadata.json"),
    lambda _: "v21.metadata.json",
    lambda _: "v21.gz.metadata.json",
    lambda _: "v21.metadata.json.gz",
])  # fmt: skip
def test_newer_version_of_any_name_is_refused(
    passes: Passes, ours: Table, theirs: Table, rename: Callable[[str], str]
) -> None:
    import gzip

    theirs.append(ROWS)
    place = Path(theirs.metadata_location.removeprefix("file://"))
    name, data = rename(place.name), place.read_bytes()
    place.unlink()
    (place.parent / name).write_bytes(gzip.compress(data) if ".gz" in name else data)
    (place.parent / "version-hint.text").write_text("21")
    assert f"/{name} (last sequence number 21, " in message(passes)


def test_version_hint_of_a_catalog_that_was_left_is_no_sign(passes: Passes, ours: Table) -> None:
    (Path(ours.metadata_location.removeprefix("file://")).parent / "version-hint.text").write_text("21")
    assert passes.run().batches[0].outcome is OutcomeStatus.NO_OP


def test_metadata_file_that_cannot_be_read_holds_the_pass(passes: Passes, ours: Table) -> None:
    place = Path(ours.metadata_location.removeprefix("file://")).parent / "00021-torn.metadata.json"
    place.write_bytes(b'{"format-version": 2, "table-uuid": "')
    told = message(passes)
    assert f"below its location: file://{place} (unreadable: JSONDecodeError). Fix: " in told


def test_tables_that_share_a_location_are_refused(tmp_path: Path, passes: Passes, ours: Table) -> None:
    other = catalog(tmp_path, "other")
    other.create_namespace("db")
    second = other.create_table("db.second", ROWS.schema, location=ours.location())
    second.append(ROWS)
    told = message(passes)
    assert f"of the table with uuid {second.metadata.table_uuid}" in told


def test_hold_ends_when_the_metadata_file_is_removed(passes: Passes, ours: Table, theirs: Table) -> None:
    theirs.append(ROWS)
    message(passes)
    Path(theirs.metadata_location.removeprefix("file://")).unlink()
    outcome = passes.run(force=True)
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert passes.lake.trashed() == 3


def test_hold_of_a_failed_commit_ends_with_the_next_commit(
    passes: Passes, ours: Table, theirs: Table
) -> None:
    theirs.append(ROWS)
    message(passes)
    ours.append(ROWS)
    assert passes.run(force=True).outcome is OutcomeStatus.IMPROVED


def test_table_of_one_catalog_has_no_sign(passes: Passes, ours: Table) -> None:
    outcome = passes.run()
    [batch] = outcome.batches
    assert (batch.outcome, batch.counts["orphan_files"]) == (OutcomeStatus.NO_OP, 0)
    assert batch.unlogged == UnloggedMetadata(0, ())


@pytest.mark.parametrize("folder", ["meta2", "_meta"])
def test_sweep_with_a_second_owner_in_another_folder_deletes_nothing(
    passes: Passes, ours: Table, theirs: Table, folder: str
) -> None:
    orphan = Path(ours.location().removeprefix("file://")) / "data" / "orphan.parquet"
    orphan.write_bytes(b"x")
    assert passes.run().batches[0].counts["trashed_files"] == 1
    with theirs.transaction() as change:
        change.set_properties({"write.metadata.path": f"{theirs.location()}/{folder}"})
    assert f"/{folder}/" in theirs.metadata_location
    sweep = replace(later(passes), scope=Scope(marks=False))
    assert "newer than its catalog's pointer" in message(sweep, force=True)
    assert passes.lake.trashed() == 1


def test_second_owner_with_a_hidden_metadata_folder_is_refused(
    passes: Passes, ours: Table, theirs: Table
) -> None:
    with theirs.transaction() as change:
        change.set_properties({"write.metadata.path": f"{theirs.location()}/_meta"})
    theirs.append(ROWS)
    assert "newer than its catalog's pointer" in message(passes)
    assert passes.lake.trashed() == 0


@pytest.mark.parametrize("kept", ["3", "1"])
def test_second_owner_older_than_the_log_of_the_pointer_is_refused(
    passes: Passes, ours: Table, theirs: Table, kept: str
) -> None:
    for _ in range(2):
        theirs.append(ROWS)
    with ours.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": kept})
    for _ in range(6):
        ours.append(ROWS)
    assert len(ours.metadata.metadata_log) == int(kept)
    assert "is a version of this table that is not in its metadata log. It follows" in message(passes)
    assert passes.lake.trashed() == 0


def test_second_owner_older_than_deleted_metadata_is_a_sign(
    passes: Passes, ours: Table, theirs: Table
) -> None:
    theirs.append(ROWS)
    with ours.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "2"})
    for _ in range(4):
        ours.append(ROWS)
    logged = {entry.metadata_file for entry in ours.metadata.metadata_log}
    kept = {ours.metadata_location, theirs.metadata_location, *logged}
    folder = Path(ours.metadata_location.removeprefix("file://")).parent
    for path in folder.glob("*.metadata.json"):
        if f"file://{path}" not in kept:
            path.unlink()

    batch = passes.run().batches[0]

    assert batch.unlogged is not None, batch.message
    assert theirs.metadata_location in batch.unlogged.paths


def recreated(tmp_path: Path, passes: Passes) -> tuple[str, Table]:
    """The UUID of the table, which is dropped, and a table of the same name and location."""
    lake = catalog(tmp_path, "catalog")
    uuid = str(lake.load_table("db.t").metadata.table_uuid)
    lake.drop_table("db.t")
    table = lake.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    return uuid, table


def test_files_of_a_dropped_table_that_the_ledger_does_not_know_are_counted_by_owner(
    tmp_path: Path, passes: Passes, ours: Table
) -> None:
    uuid, table = recreated(tmp_path, passes)
    told = message(passes)
    assert (
        f"lake.db.t (uuid {table.metadata.table_uuid}) has metadata files of other tables below its location: "
        in told
    )
    assert f" and 19 more (of the table with uuid {uuid})" in told
    assert told.count(".metadata.json") == 2
    assert f"run `iceberg-maint orphans adopt lake.db.t {uuid}`" in told


def test_table_of_this_name_that_the_ledger_knows_is_no_second_owner(
    tmp_path: Path, passes: Passes, ours: Table
) -> None:
    known = replace(passes, around={"name_of": passes.ledger.leases.last_leased_name})
    assert known.run().batches[0].counts["orphan_files"] == 0
    recreated(tmp_path, passes)
    known = replace(known, policy=replace(POLICY, remove_orphan_files=replace(DAILY, max_orphan_ratio=1.0)))
    counts = known.run(force=True).batches[0].counts
    # 20 data files, 20 manifests and 20 manifest lists. Metadata files are never removed.
    assert (counts["trashed_files"], passes.lake.trashed()) == (60, 60)
    assert known.run(force=True).outcome is OutcomeStatus.NO_OP


def test_commit_to_the_dropped_table_after_the_new_one_is_refused(
    tmp_path: Path, passes: Passes, ours: Table, theirs: Table
) -> None:
    known = replace(passes, around={"name_of": passes.ledger.leases.last_leased_name})
    known.run()
    uuid, table = recreated(tmp_path, passes)
    theirs.append(ROWS)
    told = message(known, force=True)
    assert (
        f"is of the table with uuid {uuid}, which had this name before. It was last updated later than "
        in told
    )
    table.append(ROWS)
    assert f"{theirs.metadata_location} is of the table" not in str(known.run(force=True).batches[0].message)
