"""Expiry of real tables through the whole loop: exactly the planned snapshots go, and no file with them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.engines.spark.commit.housekeeping import commit_expiry
from iceberg_maint.engines.spark.commit.retry import Backoff, TableAccess
from iceberg_maint.errors import FenceLostError
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.attempts.housekeeping_attempt import NOTHING_WRITTEN
from iceberg_maint.loop.settle import reconcile
from iceberg_maint_tests.support.context import commit_context
from iceberg_maint_tests.support.loop.world import Killed
from iceberg_maint_tests.support.spark.flink_job import FlinkJob
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.rewrites import READER
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]
EXPIRE = Operation.EXPIRE_SNAPSHOTS


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


@pytest.fixture
def keeper(workshop: Workshop) -> Keeper:
    return Keeper(workshop)


def grown(workshop: Workshop, commits: int, *, version: int = 2, **properties: str) -> tuple[str, Any]:
    """A table of so many appends of one row each."""
    name = workshop.new_name("expire")
    settings = {k.replace("__", "."): v for k, v in properties.items()}
    table = workshop.writers.create(name, version=version, properties=settings)
    for number in range(commits):
        append(workshop, table, number)
    return name, table


def append(workshop: Workshop, table: Any, number: int = 0, **summary: str) -> int:
    """Appends a row, with keys in the summary as a streaming writer sets them; the snapshot's id."""
    file = workshop.writers.data(table, [{"id": number, "v": "x"}])
    operation = table.newAppend().appendFile(file)
    for key, value in summary.items():
        operation.set(key.replace("__", ".").replace("_", "-"), value)
    operation.commit()
    return int(table.currentSnapshot().snapshotId())


def ids(keeper: Keeper, name: str) -> list[int]:
    return [s.snapshot_id for s in keeper.state(name).snapshots]


@pytest.mark.parametrize("version", [2, 3])
def test_expire_takes_what_is_past_its_age_and_releases_only_manifest_lists(
    keeper: Keeper, workshop: Workshop, version: int
) -> None:
    """Appends alone leave every manifest to the newest snapshot."""
    name, _ = grown(workshop, 5, version=version)
    before = ids(keeper, name)
    rows = workshop.writers.rows(name)
    folder = Path(keeper.state(name).location.removeprefix("file://"))
    lists = {Path(s.manifest_list.removeprefix("file:")) for s in keeper.state(name).snapshots[:-1]}
    files = {p for p in folder.rglob("*") if p.is_file() and "metadata.json" not in p.name}

    outcome = keeper.run(name, EXPIRE, days=1)

    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.IMPROVED, Reason.SNAPSHOTS)
    counts = outcome.batches[0].counts
    assert (counts["expired_snapshots"], counts["expired_refs"], counts["released_files"]) == (4, 0, 4)
    assert ids(keeper, name) == before[-1:]
    assert workshop.writers.rows(name) == rows
    assert files - set(folder.rglob("*")) == lists
    assert keeper.run(name, EXPIRE, days=1).reason is Reason.HEALTHY


def test_expire_keeps_to_the_plan_where_a_branch_would_expire_more(
    keeper: Keeper, workshop: Workshop
) -> None:
    """Iceberg's own action would follow the branch's shorter age and forget Flink's checkpoint."""
    name, table = grown(workshop, 2)
    flink = {"flink__job_id": "job", "flink__operator_id": "op", "flink__max_committed_checkpoint_id": "7"}
    held = append(workshop, table, 2, **flink)
    for number in range(3, 6):
        append(workshop, table, number)
    workshop.sql(f"alter table {name} create branch main2 retain 1 days with snapshot retention 1 snapshots")
    table.manageSnapshots().setMaxSnapshotAgeMs("main", 1).setMinSnapshotsToKeep("main", 1).commit()
    outcome = keeper.run(name, EXPIRE, days=0.5)
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert ids(keeper, name)[0] == held
    assert len(ids(keeper, name)) == 4


def test_expire_removes_refs_past_their_age_with_their_snapshots(keeper: Keeper, workshop: Workshop) -> None:
    name, table = grown(workshop, 3)
    first, second, last = ids(keeper, name)
    table.manageSnapshots().createTag("short", first).setMaxRefAgeMs("short", 1000).commit()
    table.manageSnapshots().createTag("long", second).commit()
    outcome = keeper.run(name, EXPIRE, days=1)
    counts = outcome.batches[0].counts
    assert (counts["expired_snapshots"], counts["expired_refs"]) == (1, 1)
    assert ids(keeper, name) == [second, last]
    assert {r.name for r in keeper.state(name).refs} == {"main", "long"}


def test_tag_set_after_the_plan_is_respected(keeper: Keeper, workshop: Workshop) -> None:
    name, table = grown(workshop, 3)
    first, second, last = ids(keeper, name)
    tagged: list[int] = []

    def tag(_batch: Any) -> None:
        if not tagged:
            tagged.append(first)
            table.manageSnapshots().createTag("kept", first).commit()

    keeper.before_commit = tag
    outcome = keeper.run(name, EXPIRE, days=1)
    assert [b.reason for b in outcome.batches] == [Reason.STALE, Reason.SNAPSHOTS]
    assert "may no longer expire" in outcome.batches[0].message
    assert ids(keeper, name) == [first, last]
    assert second not in ids(keeper, name)


def test_concurrent_appends_do_not_stop_the_expiry(keeper: Keeper, workshop: Workshop) -> None:
    name, table = grown(workshop, 3)
    keeper.before_commit = lambda _batch: append(workshop, table, 9)
    outcome = keeper.run(name, EXPIRE, days=1)
    assert (outcome.outcome, len(outcome.batches)) == (OutcomeStatus.IMPROVED, 1)
    assert len(ids(keeper, name)) == 2
    assert len(workshop.writers.rows(name)) == 4


def test_owner_who_turns_removal_off_after_the_plan_is_respected(keeper: Keeper, workshop: Workshop) -> None:
    name, _ = grown(workshop, 3)
    keeper.before_commit = lambda _batch: workshop.sql(
        f"alter table {name} set tblproperties ('gc.enabled'='false')"
    )
    outcome = keeper.run(name, EXPIRE, days=1)
    assert [b.reason for b in outcome.batches] == [Reason.STALE]
    assert outcome.reason is Reason.GC_DISABLED
    assert len(ids(keeper, name)) == 3


def test_reader_that_is_silent_for_a_month_keeps_what_it_has_not_read(
    keeper: Keeper, workshop: Workshop
) -> None:
    name, _ = grown(workshop, 4)
    before = ids(keeper, name)
    keeper.ledger.registry.put_reader(keeper.state(name).uuid, "search index", before[1])
    keeper.run(name, EXPIRE, days=30)
    assert ids(keeper, name) == before[1:]


@pytest.mark.parametrize("version", [2, 3])
def test_streaming_writers_find_their_state_after_a_full_cycle(
    keeper: Keeper, workshop: Workshop, tmp_path: Path, version: int
) -> None:
    """Write-audit-publish, Flink and Kafka Connect look for their own marks in the history, and Flink for the
    manifests of what it has written since its last checkpoint."""
    name, table = grown(workshop, 2, version=version, write__wap__enabled="true")
    flink = append(
        workshop,
        table,
        2,
        flink__job_id="job",
        flink__operator_id="op",
        flink__max_committed_checkpoint_id="17",
    )
    connect = append(workshop, table, 3, **{"kafka.connect.offsets.control.group": '{"0":5}'})
    file = workshop.writers.data(table, [{"id": 99, "v": "staged"}])
    table.newAppend().appendFile(file).set("wap.id", "audit").stageOnly().commit()
    for number in range(4, 8):
        append(workshop, table, number)
    all_before = ids(keeper, name)
    keeper.run(name, Operation.REWRITE_MANIFESTS, force=True)
    assert len(keeper.state(name).manifests) == 1
    # The writers are paused for longer than a week. By default no hold lapses.
    keeper.run(name, EXPIRE, days=9)
    keeper.scratch = tmp_path / "scratch"
    folder = Path(keeper.state(name).location.removeprefix("file://"))
    pending = workshop.writers.data(table, [{"id": 98, "v": "pending"}])
    [manifest] = FlinkJob(workshop, name, table, version).checkpoint([pending], [])
    checkpoint = Path(str(manifest.path()).removeprefix("file:"))
    left = folder / "data" / "left-by-a-crash.parquet"
    left.write_bytes(b"x")
    # Kafka Connect may still commit what it wrote since its last commit: only older files may go.
    long_ago = time.time() - 30 * 86_400
    for path in folder.rglob("*"):
        os.utime(path, (long_ago, long_ago))
    lists = {Path(s.manifest_list).name for s in keeper.state(name).snapshots}
    for days, counted in ((10, "trashed_files"), (12, "swept_files")):
        passed = keeper.run(name, Operation.REMOVE_ORPHAN_FILES, days=days)
        assert (passed.outcome, passed.reason) == (OutcomeStatus.IMPROVED, Reason.ORPHAN_FILES)
        assert passed.batches[0].counts[counted] > 0
    assert (checkpoint.exists(), left.exists()) == (True, False)
    assert {p.name for p in folder.glob("metadata/snap-*.avro")} == lists

    state = keeper.state(name)
    assert {s.summary.get("flink.max-committed-checkpoint-id") for s in state.ancestors()} == {None, "17"}
    assert any("kafka.connect.offsets.control.group" in s.summary for s in state.ancestors())
    assert {flink, connect} < {s.snapshot_id for s in state.ancestors()}
    assert set(all_before) - set(ids(keeper, name)) == set(all_before[:2])
    (staged,) = [s for s in state.snapshots if s.summary.get("wap.id") == "audit"]
    workshop.sql(f"call lake.system.publish_changes('{name.partition('.')[2]}', 'audit')")
    assert staged.snapshot_id not in {s.snapshot_id for s in state.ancestors()}
    assert (99, "staged") in workshop.writers.rows(name)


def test_expiry_that_loses_its_swap_is_checked_and_tried_again(workshop: Workshop, keeper: Keeper) -> None:
    name, table = grown(workshop, 3)
    first, second, _ = ids(keeper, name)
    batch = keeper.batch(name, EXPIRE, days=1)
    asked: list[str] = []
    tried: list[str] = []

    def retention(location: str) -> Retention | None:
        asked.append(location)
        return None if len(asked) == 1 else Retention((first, second), (), (), ())

    def record_try(_base: int, location: str) -> None:
        if not tried:
            append(workshop, table)
        tried.append(location)

    context = commit_context("token", 1, "run", 3, lambda: True, record_try, retention)
    result = workshop.engine.commit(batch, NOTHING_WRITTEN, context)
    assert (result.status, result.tries) == (CommitStatus.COMMITTED, 3)
    assert asked[1:] == tried
    assert len(set(tried)) == 2
    assert len(ids(keeper, name)) == 2


@pytest.mark.parametrize(
    ("away", "told"), [(2, ()), (3, ("the check for lost snapshots and refs failed: ConnectionError: away",))]
)
def test_look_at_what_went_is_taken_again_where_the_catalog_is_away(
    workshop: Workshop, keeper: Keeper, away: int, told: tuple[str, ...]
) -> None:
    """One answer that is missing after a good commit had the expiry wait for a person."""
    name, _ = grown(workshop, 2)
    batch = keeper.batch(name, EXPIRE, days=1)
    allowed = Retention(batch.work.snapshots, (), (), ())
    context = commit_context(retention=lambda _location: allowed)
    loads: list[str] = []

    def load(table: str) -> Any:
        loads.append(table)
        # The first is tried on, the second shows the commit, the rest look.
        if 2 < len(loads) <= 2 + away:
            raise ConnectionError("away")
        return workshop.bridge.load_table(table)

    backoff = Backoff(0.0, 0.0, lambda: 0.0, lambda _: None)
    access = TableAccess(workshop.bridge, READER, backoff, load)
    result = commit_expiry(access, batch, batch.work, context)
    assert (result.status, result.lost) == (CommitStatus.COMMITTED, told)
    assert len(loads) == 5


def test_expiry_without_the_lease_is_not_swapped(workshop: Workshop, keeper: Keeper) -> None:
    name, _ = grown(workshop, 2)
    batch = keeper.batch(name, EXPIRE, days=1)
    allowed = Retention(batch.work.snapshots, (), (), ())
    context = commit_context("token", 1, "run", 3, lambda: False, lambda *_: None, lambda _location: allowed)
    with pytest.raises(FenceLostError):
        workshop.engine.commit(batch, NOTHING_WRITTEN, context)
    assert len(ids(keeper, name)) == 2


class Careless:
    """A Java table of a catalog that applies a commit to whatever the table is by then, as REST catalogs do
    (`CatalogHandlers.commit`); `meanwhile` is done to the table first."""

    def __init__(self, workshop: Workshop, table: Any, meanwhile: Callable[[Any], object]) -> None:
        self._workshop, self._table, self._meanwhile = workshop, table, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def operations(self) -> Any:
        return self

    def current(self) -> Any:
        return self._table.operations().current()

    def commit(self, _base: Any, metadata: Any) -> None:
        self._meanwhile(self._table)
        operations = self._table.operations()
        current = operations.refresh()
        builder = self._workshop.bridge.iceberg.TableMetadata.buildFrom(current)
        for change in self._workshop.bridge.iterate(metadata.changes()):
            change.applyTo(builder)
        operations.commit(current, builder.build())


def careless(workshop: Workshop, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Any], object]) -> None:
    """Makes the catalog one that compares nothing."""
    load_table = workshop.bridge.load_table

    def load(_bridge: Any, name: str) -> Careless:
        return Careless(workshop, load_table(name), meanwhile)

    monkeypatch.setattr(type(workshop.bridge), "load_table", load)
    monkeypatch.setattr(workshop.catalog, "checks_commit_base", False)


def test_tag_that_went_with_an_expiry_is_reported_and_no_trash_is_swept(
    keeper: Keeper, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set between the check and the swap, on a snapshot that expires, where the catalog compares nothing."""
    name, _ = grown(workshop, 3)
    first, _, last = ids(keeper, name)
    with monkeypatch.context() as patch:
        careless(workshop, patch, lambda table: table.manageSnapshots().createTag("audited", first).commit())
        outcome = keeper.run(name, EXPIRE, days=1)
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.FAILED, Reason.REFS_LOST)
    assert (
        f"ICM-130 {name}: the expiry also removed tag audited on snapshot {first};"
        in outcome.batches[0].message
    )
    assert ids(keeper, name) == [last]
    folder = Path(keeper.state(name).location.removeprefix("file://"))
    passed = keeper.run(name, Operation.REMOVE_ORPHAN_FILES, days=10)
    assert passed.batches[0].counts["released_files"] == passed.batches[0].counts["trashed_files"] == 0
    assert len(list(folder.glob("metadata/snap-*.avro"))) == 3
    operations = (Operation.REMOVE_ORPHAN_FILES,)
    seen = assess(TableId.parse(name), keeper.context(name, 1), operations)
    assert not seen.sweeps


def test_tag_that_went_with_an_expiry_is_reported_by_the_run_that_settles_it(
    keeper: Keeper, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the other reader, from the metadata log as Iceberg has written it; others have committed since."""
    name, table = grown(workshop, 3)
    first, *_ = ids(keeper, name)

    def die(_batch: Batch) -> None:
        raise Killed

    keeper.after_commit = die
    with monkeypatch.context() as patch:
        careless(workshop, patch, lambda table: table.manageSnapshots().createTag("audited", first).commit())
        with pytest.raises(Killed):
            keeper.run(name, EXPIRE, days=1)
    table.refresh()
    append(workshop, table, 9)
    monkeypatch.setattr(workshop.catalog, "checks_commit_base", False)
    (settled,) = reconcile(TableId.parse(name), keeper.context(name, 1), "another run")
    assert settled.settlement.status is CommitStatus.COMMITTED
    assert settled.settlement.lost == (f"tag audited on snapshot {first}",)


def test_expiry_over_a_harmless_commit_of_a_catalog_that_compares_nothing(
    keeper: Keeper, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _ = grown(workshop, 3)
    *_, last = ids(keeper, name)
    with monkeypatch.context() as patch:
        careless(workshop, patch, lambda table: append(workshop, table, 9))
        outcome = keeper.run(name, EXPIRE, days=1)
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.IMPROVED, Reason.SNAPSHOTS)
    assert len(ids(keeper, name)) == 2
    assert ids(keeper, name)[0] == last
    assert len(workshop.writers.rows(name)) == 4


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_no_session_time_zone_makes_a_snapshot_go_too_early(
    keeper: Keeper, workshop: Workshop, zone: str
) -> None:
    """Of "an hour ago" as text of the session's zone, half a day and more would go wrong."""
    name, _ = grown(workshop, 2)
    keeper.with_policy(max_snapshot_age_seconds=3600)
    before = workshop.spark.conf.get("spark.sql.session.timeZone")
    workshop.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert keeper.run(name, EXPIRE, days=0.9 / 24).reason is Reason.HEALTHY
        assert len(ids(keeper, name)) == 2
        keeper.run(name, EXPIRE, days=1.1 / 24)
    finally:
        workshop.spark.conf.set("spark.sql.session.timeZone", before)
    assert len(ids(keeper, name)) == 1


def test_statistics_go_with_their_snapshot(keeper: Keeper, workshop: Workshop) -> None:
    name, table = grown(workshop, 2)
    file_of = workshop.bridge.iceberg.GenericStatisticsFile
    updating = table.updateStatistics()
    for number in ids(keeper, name):
        path = f"{table.location()}/metadata/{number}.stats"
        updating.setStatistics(file_of(number, path, 10, 5, workshop.bridge.list([])))
    updating.commit()
    keeper.run(name, EXPIRE, days=1)
    left = [
        int(f.snapshotId()) for f in workshop.bridge.iterate(workshop.writers.load(name).statisticsFiles())
    ]
    assert left == ids(keeper, name)


@pytest.mark.parametrize("operation", [EXPIRE, Operation.REWRITE_MANIFESTS])
def test_run_that_dies_after_its_swap_is_settled_from_the_table(
    keeper: Keeper, workshop: Workshop, operation: Operation
) -> None:
    name, _ = grown(workshop, 3)

    def die(_batch: Batch) -> None:
        raise Killed

    keeper.after_commit = die
    with pytest.raises(Killed):
        keeper.run(name, operation, days=1, force=True)
    location = keeper.state(name).metadata_location
    assert len(keeper.ledger.work.open_attempts(keeper.state(name).uuid)) == 1
    (settled,) = reconcile(TableId.parse(name), keeper.context(name, 1), "next")
    assert settled.settlement.status is CommitStatus.COMMITTED
    assert keeper.run(name, operation, days=1).reason is Reason.HEALTHY
    assert keeper.state(name).metadata_location == location
    assert len(workshop.writers.rows(name)) == 3
