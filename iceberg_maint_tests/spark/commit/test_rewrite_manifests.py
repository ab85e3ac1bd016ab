"""Manifests of real tables through the whole loop: regrouped by partition, every live entry as it was."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.commits.change import LiveEntry, MetadataReader
from iceberg_maint.core.commits.manifest_rules import Regrouping, check_regrouping
from iceberg_maint.core.decisions.manifests_decision import partition_spread
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import FENCE_PROPERTY, TOKEN_PROPERTY, Manifest
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus, Rejection
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteManifests
from iceberg_maint.core.policy.housekeeping import RewriteManifestsPolicy
from iceberg_maint.engines.spark.commit.housekeeping import commit_regrouping, single_values
from iceberg_maint.engines.spark.commit.retry import TableAccess
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.attempts.housekeeping_attempt import NOTHING_WRITTEN
from iceberg_maint_tests.support.context import commit_context
from iceberg_maint_tests.support.spark.housekeeping import KEEP_ONE, Keeper
from iceberg_maint_tests.support.spark.rewrites import NO_BACKOFF, READER
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark
REGROUP = Operation.REWRITE_MANIFESTS
EAGER = replace(KEEP_ONE, rewrite_manifests=RewriteManifestsPolicy(max_manifests=1))
UNMERGED = {"commit.manifest-merge.enabled": "false"}


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


@pytest.fixture
def keeper(workshop: Workshop) -> Keeper:
    return Keeper(workshop, EAGER)


def entries(keeper: Keeper, name: str) -> Counter[LiveEntry]:
    return Counter(e for m in keeper.state(name).manifests for e in READER.live_entries(m))


def scattered(workshop: Workshop, version: int, **properties: str) -> tuple[str, Any]:
    """Partitions a to d, each with a file of each of six commits."""
    name = workshop.new_name("regroup")
    settings = {**UNMERGED, **{k.replace("__", "."): v for k, v in properties.items()}}
    table = workshop.writers.create(
        name, "id int, p string", version=version, partitioned_by="p", properties=settings
    )
    for number in range(6):
        appending = table.newAppend()
        for p in "abcd":
            rows = [{"id": number, "p": p}, {"id": number + 10, "p": p}]
            appending.appendFile(workshop.writers.data(table, rows, partition=[p]))
        appending.commit()
    return name, table


@pytest.mark.drawn(1)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_regrouping_keeps_every_live_entry(keeper: Keeper, workshop: Workshop, version: int) -> None:
    name, _ = scattered(workshop, version)
    before, rows = entries(keeper, name), workshop.writers.rows(name)
    lineage = workshop.lineage(name) if version == 3 else None

    outcome = keeper.run(name, REGROUP)

    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.IMPROVED, Reason.MANIFESTS)
    assert dict(outcome.batches[0].counts) == {"manifests_replaced": 6, "manifests_created": 1}
    state = keeper.state(name)
    assert len(state.manifests) == 1
    assert entries(keeper, name) == before
    assert sum(before.values()) == 24
    assert workshop.writers.rows(name) == rows
    assert lineage is None or workshop.lineage(name) == lineage
    assert state.snapshot is not None
    assert {TOKEN_PROPERTY, FENCE_PROPERTY} < state.snapshot.summary.keys()
    assert keeper.run(name, REGROUP).reason is Reason.HEALTHY


def test_regrouping_makes_runs_of_partitions(keeper: Keeper, workshop: Workshop) -> None:
    """Manifests of a target that holds half of the files: no partition lies in both."""
    name, table = scattered(workshop, 2)
    size = sum(m.length_bytes for m in keeper.state(name).manifests)
    workshop.sql(
        f"alter table {name} set tblproperties ('commit.manifest.target-size-bytes'='{size // 2 + 1}')"
    )
    state = keeper.state(name)
    assert partition_spread(state.manifests, state.specs[0]) == 6
    before = entries(keeper, name)
    keeper.run(name, REGROUP, force=True)
    state = keeper.state(name)
    assert len(state.manifests) == 2
    assert partition_spread(state.manifests, state.specs[0]) == 1
    assert entries(keeper, name) == before
    table.refresh()


@pytest.mark.variant
@pytest.mark.drawn(1)
@pytest.mark.parametrize("version", [2, 3])
def test_regrouping_takes_specs_and_deletes_apart(keeper: Keeper, workshop: Workshop, version: int) -> None:
    name, table = scattered(workshop, version, write__delete__mode="merge-on-read")
    table.updateSpec().addField("id").commit()
    for number in range(3):
        row = {"id": number, "p": "e"}
        workshop.writers.append(table, [row], partition=["e", number])
    workshop.sql(f"delete from {name} where id = 1 and p = 'a'")
    table.refresh()
    workshop.writers.delete_where(table, [{"id": 2, "p": "b"}], workshop.writers.spec(table, 0), ["b"])
    workshop.sql(f"delete from {name} where id = 3 and p = 'c'")
    before, rows = entries(keeper, name), workshop.writers.rows(name)

    outcome = keeper.run(name, REGROUP, force=True)

    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert [b.counts["manifests_created"] for b in outcome.batches] == [1, 1, 1]
    classes = Counter((m.spec_id, m.is_deletes) for m in keeper.state(name).manifests)
    assert classes == {(0, False): 1, (1, False): 1, (0, True): 1}
    assert entries(keeper, name) == before
    assert workshop.writers.rows(name) == rows == workshop.rows(name)


@pytest.mark.variant
def test_manifests_without_live_files_after_a_rewrite_are_named_and_go_if_many_or_by_force(
    keeper: Keeper, workshop: Workshop
) -> None:
    """Of data and of deletes."""
    name, _ = scattered(workshop, 2, write__delete__mode="merge-on-read")
    for number in (1, 2):
        workshop.sql(f"delete from {name} where id = {number}")
    rows = workshop.writers.rows(name)
    keeper.run(name, Operation.REWRITE_DATA_FILES, force=True)
    dead = [m for m in keeper.state(name).manifests if not (m.added_files or m.existing_files)]
    assert Counter(m.is_deletes for m in dead) == {False: 6, True: 2}
    keeper.policy = KEEP_ONE
    decision = assess(TableId.parse(name), keeper.context(name, 0), (REGROUP,)).decision
    assert (decision.reason, decision.evidence) == (
        Reason.HEALTHY,
        {"manifests_without_live_files": "8 of 9"},
    )
    keeper.policy = EAGER
    assert keeper.run(name, REGROUP).outcome is OutcomeStatus.IMPROVED
    counts = [(m.is_deletes, m.added_files, m.existing_files) for m in keeper.state(name).manifests]
    assert sorted(counts) == [(False, 4, 0), (True, 0, 0), (True, 0, 0)]
    assert keeper.run(name, REGROUP, force=True).outcome is OutcomeStatus.IMPROVED
    counts = [(m.is_deletes, m.added_files, m.existing_files) for m in keeper.state(name).manifests]
    assert counts == [(False, 4, 0)]
    assert workshop.writers.rows(name) == rows == workshop.rows(name)


def test_regrouping_over_a_foreign_append_keeps_its_manifest(keeper: Keeper, workshop: Workshop) -> None:
    name, table = scattered(workshop, 2)
    keeper.before_commit = lambda _b: workshop.writers.append(table, [{"id": 9, "p": "a"}], partition=["a"])
    outcome = keeper.run(name, REGROUP)
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert len(keeper.state(name).manifests) == 2
    assert len(workshop.writers.rows(name)) == 49


@pytest.mark.variant
def test_regrouping_of_a_manifest_that_is_gone_is_planned_again(keeper: Keeper, workshop: Workshop) -> None:
    name, table = scattered(workshop, 2)
    doomed = workshop.writers.files(table)[:4]
    met: list[str] = []

    def remove(batch: Batch) -> None:
        if not met:
            met.append(batch.batch_id)
            deleting = table.newDelete()
            for file in doomed:
                deleting.deleteFile(file)
            deleting.commit()

    keeper.before_commit = remove
    outcome = keeper.run(name, REGROUP)
    assert [b.reason for b in outcome.batches] == [Reason.STALE, Reason.MANIFESTS]
    assert len(workshop.writers.rows(name)) == 40


def refused(
    keeper: Keeper, workshop: Workshop, name: str, reader: MetadataReader, check: Any = check_regrouping
) -> str:
    """Why the gate does not let a regrouping pass that it sees through this reader."""
    batch = keeper.batch(name, REGROUP)
    before = keeper.state(name)
    context = commit_context()
    result = commit_regrouping(
        TableAccess(workshop.bridge, reader, NO_BACKOFF),
        batch,
        batch.work,
        NOTHING_WRITTEN,
        context,
        check=check,
    )
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.REFUSED)
    assert keeper.state(name).metadata_location == before.metadata_location
    return result.message


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda entries: entries[1:],
        lambda entries: [*entries, entries[0]],
        lambda entries: [entries[0]._replace(data_sequence_number=99), *entries[1:]],
        lambda entries: [entries[0]._replace(first_row_id=99), *entries[1:]],
        lambda entries: [entries[0]._replace(statistics=entries[0].statistics[:-1]), *entries[1:]],
    ],
    ids=["lost", "twice", "sequence number", "row id", "statistics"],
)
def test_gate_lets_no_regrouping_pass_that_changes_an_entry(
    keeper: Keeper, workshop: Workshop, spoil: Callable[[list[LiveEntry]], list[LiveEntry]]
) -> None:
    name, _ = scattered(workshop, 3)
    known = {m.path for m in keeper.state(name).manifests}

    def live_entries(manifest: Manifest) -> list[LiveEntry]:
        found = list(READER.live_entries(manifest))
        return found if manifest.path in known else spoil(found)

    assert "entries" in refused(keeper, workshop, name, replace(READER, live_entries=live_entries))


@pytest.mark.variant
def test_gate_lets_no_regrouping_pass_into_another_spec(keeper: Keeper, workshop: Workshop) -> None:
    name, _ = scattered(workshop, 2)

    def check(batch: Batch, work: RewriteManifests, change: Regrouping) -> Any:
        assert check_regrouping(batch, work, change) == ()
        moved = replace(change.new, manifests=(replace(change.new.manifests[0], spec_id=1),))
        return check_regrouping(batch, work, replace(change, new=moved))

    assert "manifests" in refused(keeper, workshop, name, READER, check)


@pytest.mark.variant
def test_regrouping_holds_the_entries_of_one_manifest_at_a_time(keeper: Keeper, workshop: Workshop) -> None:
    class Entries(list[LiveEntry]):
        """A list whose end can be seen."""

    name, _ = scattered(workshop, 2)
    read: list[weakref.ref[Entries]] = []

    def live_entries(manifest: Manifest) -> Entries:
        assert [r for r in read if r() is not None] == []
        found = Entries(READER.live_entries(manifest))
        read.append(weakref.ref(found))
        return found

    context = commit_context()
    batch = keeper.batch(name, REGROUP)
    result = commit_regrouping(
        TableAccess(workshop.bridge, replace(READER, live_entries=live_entries), NO_BACKOFF),
        batch,
        batch.work,
        NOTHING_WRITTEN,
        context,
    )
    assert result.status is CommitStatus.COMMITTED
    assert len(read) == 7


VALUES = {
    "bigint": "500000000{n}",
    "date": "date '2020-01-0{n}'",
    "timestamp": "timestamp '1969-12-31 23:59:5{n}.5'",
    "binary": "x'0{n}ff'",
}
MORE_VALUES = {
    "string": "'ü{n}/=\\''",
    "decimal(20,4)": "1{n}.5",
    "timestamp_ntz": "timestamp_ntz '2020-01-01 00:00:0{n}'",
    "boolean": "{n} = 1",
}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("values", [VALUES, MORE_VALUES], ids=["first", "more"])
def test_runs_start_at_values_of_every_type(
    keeper: Keeper, workshop: Workshop, values: dict[str, str]
) -> None:
    """NULL in all fields, then two partitions that differ in each of them: no file is lost between runs."""
    name = workshop.new_name("regroup_types")
    columns = {f"p{n}": kind for n, kind in enumerate(values)}
    listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    table = workshop.writers.create(
        name, f"id int, {listed}", partitioned_by=", ".join(columns), properties=UNMERGED
    )
    for number in range(3):
        texts = [v.replace("{n}", str(number)) if number else "null" for v in values.values()]
        workshop.sql(f"insert into {name} values ({number}, {', '.join(texts)})")
    size = sum(m.length_bytes for m in keeper.state(name).manifests)
    table.refresh()
    table.updateProperties().set("commit.manifest.target-size-bytes", str(size // 3)).commit()
    before = entries(keeper, name)
    keeper.run(name, REGROUP, force=True)
    assert entries(keeper, name) == before
    assert len(keeper.state(name).manifests) == 3


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("long", 1 << 40, 1 << 40),
        ("date", -1, "1969-12-31"),
        ("time", 3_723_000_004, "01:02:03.000004"),
        ("timestamp", -1, "1969-12-31T23:59:59.999999"),
        ("timestamptz", 1, "1970-01-01T00:00:00.000001+00:00"),
        ("timestamp_ns", 1, "1970-01-01T00:00:00.000000001"),
        ("decimal(9, 2)", Decimal("-1.50"), "-1.50"),
        ("uuid", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("fixed[2]", b"\x00\xff", "00ff"),
        ("boolean", False, False),
    ],
)
def test_partition_value_as_json(kind: str, value: object, text: object) -> None:
    spec = PartitionSpec(0, (PartitionField(1000, 1, "p", "identity", kind),))
    assert single_values(spec, (value,)) == {"1000": text}
    assert single_values(spec, (None,)) == {}


@pytest.mark.parametrize(("kind", "value"), [("double", b"12345678"), ("date", 10**9)])
def test_partition_value_without_json_starts_no_run(kind: str, value: object) -> None:
    spec = PartitionSpec(0, (PartitionField(1000, 1, "p", "identity", kind),))
    assert single_values(spec, (value,)) is None
