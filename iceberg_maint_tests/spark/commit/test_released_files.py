"""Files that an expiry releases, on real tables: exactly those that Iceberg's own orphan action would find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.housekeeping import ReleasedRetention
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint_tests.support.loop.world import Killed
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]
EXPIRE, CLEAN = Operation.EXPIRE_SNAPSHOTS, Operation.REMOVE_ORPHAN_FILES


def _as_data_file(workshop: Workshop, table: Any, place: Path) -> Any:
    made = workshop.bridge.iceberg.DataFiles.builder(table.spec()).withPath(f"file:{place}")
    return made.withFileSizeInBytes(place.stat().st_size).withRecordCount(1).build()


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


@pytest.fixture
def keeper(workshop: Workshop) -> Keeper:
    return Keeper(workshop)


def worn(workshop: Workshop, version: int) -> str:
    """A table with files of every kind that only old snapshots reference, a tag and a branch."""
    name = workshop.new_name("released")
    writers = workshop.writers
    table = writers.create(name, version=version, properties={"write.delete.mode": "merge-on-read"})
    for number in range(3):
        writers.append(table, [{"id": 10 * number + n, "v": "x"} for n in range(4)])
    table.manageSnapshots().createTag("audit", int(table.currentSnapshot().snapshotId())).commit()
    workshop.sql(f"delete from {name} where id = 1")
    writers.delete_where(table, [{"id": 11}])
    workshop.sql(f"alter table {name} create branch side")
    workshop.sql(f"insert into {name}.branch_side values (77, 'side')")
    workshop.sql(f"delete from {name}.branch_side where id = 2")
    workshop.sql(f"insert overwrite {name} select id + 100, v from {name}")
    workshop.bridge.iceberg.spark.actions.SparkActions.get(workshop.spark._jsparkSession).rewriteManifests(
        writers.load(name)
    ).execute()
    workshop.sql(f"delete from {name} where id = 103")
    workshop.sql(f"insert overwrite {name} select id, v from {name}")
    return name


def stock_orphans(workshop: Workshop, name: str) -> set[str]:
    """What Iceberg's own action would delete at once. It skips hidden folders, as the trash is."""
    actions = workshop.bridge.iceberg.spark.actions.SparkActions.get(workshop.spark._jsparkSession)
    action = actions.deleteOrphanFiles(workshop.writers.load(name)).olderThan(1 << 50)
    nothing = _consumer_of_nothing(workshop)
    locations = action.deleteWith(nothing).execute().orphanFileLocations()
    return {Path(str(path).removeprefix("file:")).name for path in workshop.bridge.iterate(locations)}


def _consumer_of_nothing(workshop: Workshop) -> Any:
    handles = workshop.bridge.jvm.java.lang.invoke.MethodHandles
    anything = workshop.bridge.java_class("java.lang.Object")
    nothing = handles.dropArguments(handles.constant(anything, None), 0, workshop.bridge.list((anything,)))
    proxies = workshop.bridge.jvm.java.lang.invoke.MethodHandleProxies
    return proxies.asInterfaceInstance(workshop.bridge.java_class("java.util.function.Consumer"), nothing)


def files(folder: Path) -> set[str]:
    return {p.name for p in folder.rglob("*") if p.is_file() and TRASH not in p.parts}


def rows(workshop: Workshop, name: str) -> dict[str, list[Any]]:
    """The rows of every branch and tag."""
    refs = ("main", "audit", "side")
    return {
        ref: sorted(map(tuple, workshop.sql(f"select * from {name} version as of '{ref}'").collect()))
        for ref in refs
    }


def held(keeper: Keeper, hold: ReleasedRetention) -> None:
    section = replace(keeper.policy.remove_orphan_files, released_files=hold)
    keeper.policy = replace(keeper.policy, remove_orphan_files=section)


@pytest.mark.variant  # removal/test_in_place.py
def test_files_held_in_place_are_what_stock_finds_orphaned_and_are_deleted_after_the_hold(
    keeper: Keeper, workshop: Workshop
) -> None:
    """The run dies after the commit of the expiry, so that an orphan scan begins the retention."""
    held(keeper, ReleasedRetention.IN_PLACE)
    name = worn(workshop, 3)
    folder = Path(keeper.state(name).location.removeprefix("file://"))
    before, shown = files(folder), rows(workshop, name)

    def die(_batch: Batch) -> None:
        raise Killed

    keeper.after_commit = die
    with pytest.raises(Killed):
        keeper.run(name, EXPIRE, days=0.01)
    keeper.after_commit = lambda _batch: None
    orphaned = stock_orphans(workshop, name)

    counts = keeper.run(name, CLEAN, days=0.1).batches[0].counts
    assert (counts["released_files"], counts["released_retained_files"]) == (len(orphaned), len(orphaned))
    assert (before <= files(folder), stock_orphans(workshop, name)) == (True, orphaned)

    # A writer registers a file again that only the hold keeps.
    again = next(n for n in sorted(orphaned) if n.endswith(".parquet") and "deletes" not in n)
    [place] = folder.rglob(again)
    table = workshop.writers.load(name)
    table.newAppend().appendFile(_as_data_file(workshop, table, place)).commit()
    swept = keeper.run(name, EXPIRE, days=1.1).batches[0].counts
    assert swept["released_deleted_files"] == len(orphaned) - 1
    assert before - files(folder) == orphaned - {again}
    assert {n: r for n, r in rows(workshop, name).items() if n != "main"} == {
        n: r for n, r in shown.items() if n != "main"
    }
    # What is left is held by the second expiry.
    left = stock_orphans(workshop, name)
    assert (len(left), swept["released_files"]) == (3, 3)
    assert left.isdisjoint(orphaned)


@pytest.mark.variant
@pytest.mark.parametrize("version", [2, 3])
def test_released_files_are_what_stock_finds_orphaned_after_the_expiry(
    keeper: Keeper, workshop: Workshop, version: int
) -> None:
    name = worn(workshop, version)
    folder = Path(keeper.state(name).location.removeprefix("file://"))
    before, shown = files(folder), rows(workshop, name)
    assert stock_orphans(workshop, name) == set()

    outcome = keeper.run(name, EXPIRE, days=0.01)

    counts = outcome.batches[0].counts
    assert (outcome.outcome, outcome.batches[0].message) == (OutcomeStatus.IMPROVED, "")
    released = before - files(folder)
    assert counts["released_files"] == counts["released_retained_files"] == len(released)
    assert {Path(n).suffix for n in released} >= {".parquet", ".avro"}
    assert (stock_orphans(workshop, name), rows(workshop, name)) == (set(), shown)

    workshop.sql(f"insert into {name} values (500, 'later')")
    swept = keeper.run(name, EXPIRE, days=1.1).batches[0].counts
    assert (swept["released_deleted_files"], swept["released_deleted_bytes"]) == (
        counts["released_files"],
        counts["released_bytes"],
    )
    assert {n: r for n, r in rows(workshop, name).items() if n != "main"} == {
        n: r for n, r in shown.items() if n != "main"
    }
    assert stock_orphans(workshop, name) == set()


@pytest.mark.variant
def test_files_of_an_expiry_whose_run_died_are_removed_by_the_next_pass(
    keeper: Keeper, workshop: Workshop
) -> None:
    name = worn(workshop, 2)
    folder = Path(keeper.state(name).location.removeprefix("file://"))
    shown = rows(workshop, name)

    def die(_batch: Batch) -> None:
        raise Killed

    keeper.after_commit = die
    with pytest.raises(Killed):
        keeper.run(name, EXPIRE, days=0.01)
    keeper.after_commit = lambda _batch: None
    orphaned = stock_orphans(workshop, name)
    assert len(list(folder.glob(f"{TRASH}/releases/*"))) == 1
    passed = keeper.run(name, CLEAN, days=0.1)
    assert (passed.reason, passed.batches[0].message) == (Reason.ORPHAN_FILES, "")
    assert passed.batches[0].counts["released_files"] == len(orphaned)
    assert (stock_orphans(workshop, name), rows(workshop, name)) == (set(), shown)
    assert not list(folder.glob(f"{TRASH}/releases/*"))


@pytest.mark.variant
def test_expiry_leaves_files_alone_where_orphan_files_are_not_removed(
    keeper: Keeper, workshop: Workshop
) -> None:
    name = worn(workshop, 2)
    folder = Path(keeper.state(name).location.removeprefix("file://"))
    before = files(folder)
    keeper.policy = replace(
        keeper.policy, remove_orphan_files=replace(keeper.policy.remove_orphan_files, enabled=False)
    )
    outcome = keeper.run(name, EXPIRE, days=0.01)
    assert dict(outcome.batches[0].counts).keys() == {"expired_snapshots", "expired_refs"}
    assert before <= files(folder)
    assert not (folder / TRASH).exists()
