"""Clocks that disagree on real tables: no snapshot and no ref goes, by none of the clocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.housekeeping import DAY_SECONDS
from iceberg_maint.core.removal.clock_skew import FIX
from iceberg_maint_tests.support.loop.world import SetClock
from iceberg_maint_tests.support.spark.housekeeping import DAY_MS, Keeper
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark
EXPIRE = Operation.EXPIRE_SNAPSHOTS
REFS = {"main", "audit", "release"}


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


@pytest.fixture
def keeper(workshop: Workshop) -> Keeper:
    keeper = Keeper(workshop)
    keeper.with_policy(max_snapshot_age_seconds=5 * DAY_SECONDS)
    return keeper


@pytest.fixture
def young(workshop: Workshop) -> tuple[str, Any]:
    """A table of six snapshots and two refs that may stay for ten days, all of today."""
    name = workshop.new_name("clocks")
    table = workshop.writers.create(name, version=2)
    for number in range(6):
        append(workshop, table, number)
    workshop.sql(f"alter table {name} create branch audit retain 10 days")
    workshop.sql(f"alter table {name} create tag release retain 10 days")
    return name, table


def append(workshop: Workshop, table: Any, number: int) -> None:
    table.refresh()
    table.newAppend().appendFile(workshop.writers.data(table, [{"id": number, "v": "x"}])).commit()


def kept(keeper: Keeper, name: str) -> tuple[int, set[str]]:
    state = keeper.state(name)
    return len(state.snapshots), {r.name for r in state.refs}


def now_ms(keeper: Keeper, name: str) -> int:
    return keeper.state(name).last_updated_ms


@pytest.mark.drawn(1)
@pytest.mark.parametrize("days", [30, -30])
def test_machine_a_month_off_the_ledger_expires_nothing(
    keeper: Keeper, young: tuple[str, Any], days: int
) -> None:
    name, _ = young
    keeper.ledger_clock = SetClock(now_ms(keeper, name))
    outcome = keeper.run(name, EXPIRE, days=days)
    assert kept(keeper, name) == (6, REFS)
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.CLOCK_SKEW)
    assert outcome.message.startswith(f"ICM-115 {name}: the clocks of this machine and of the ledger are 2")


def test_machine_and_ledger_a_month_ahead_of_the_store_expire_nothing(
    keeper: Keeper, workshop: Workshop, young: tuple[str, Any]
) -> None:
    """The ledger is on this machine; the files are on another one, whose clock is right."""
    name, _ = young

    def store_now_ms(state: TableState) -> int:
        return open_store(workshop.catalog.io_of(state.table), state.location).now_ms(state.location)

    keeper.store_now_ms = store_now_ms
    outcome = keeper.run(name, EXPIRE, days=30)
    assert kept(keeper, name) == (6, REFS)
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.CLOCK_SKEW)
    assert "the clocks of this machine and of the store are 2" in outcome.batches[0].message
    assert keeper.run(name, EXPIRE, days=0).reason is not Reason.CLOCK_SKEW


def test_clock_set_after_the_plan_is_reported_at_the_gate(keeper: Keeper, young: tuple[str, Any]) -> None:
    """The plan was made by clocks that agreed on a month later; one of them is put right before the swap."""
    name, _ = young
    keeper.ledger_clock = SetClock(now_ms(keeper, name) + 30 * DAY_MS)

    def put_right(_batch: Batch) -> None:
        keeper.ledger_clock.ms -= 30 * DAY_MS

    keeper.before_commit = put_right
    outcome = keeper.run(name, EXPIRE, days=30)
    assert kept(keeper, name) == (6, REFS)
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.FAILED, Reason.CLOCK_SKEW)
    assert outcome.batches[0].message.startswith(f"ICM-115 {name}: ")


def test_clock_that_moved_backwards_between_two_runs_expires_nothing(
    keeper: Keeper, workshop: Workshop, young: tuple[str, Any]
) -> None:
    name, table = young
    keeper.with_policy(max_snapshot_age_seconds=0, min_snapshots_to_keep=5)
    assert keeper.run(name, EXPIRE, days=3).outcome is OutcomeStatus.IMPROVED
    append(workshop, table, 7)
    keeper.with_policy(min_snapshots_to_keep=1)
    outcome = keeper.run(name, EXPIRE, days=1)
    assert kept(keeper, name) == (6, REFS)
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.CLOCK_SKEW)
    assert "a clock moved backwards: the ledger holds a time 17" in outcome.message
    keeper.ledger.leases.accept_clock()
    assert keeper.run(name, EXPIRE, days=1, force=True).outcome is OutcomeStatus.IMPROVED


def shifted(document: Any, ms: int) -> Any:
    """Table metadata dated this much later."""
    if isinstance(document, list):
        return [shifted(part, ms) for part in document]
    if not isinstance(document, dict):
        return document
    dates = {"timestamp-ms", "last-updated-ms"}
    return {k: v + ms if k in dates else shifted(v, ms) for k, v in document.items()}


def test_rewrite_that_iceberg_would_date_before_its_base_is_of_the_clock_and_counts_no_failure(
    keeper: Keeper, workshop: Workshop, young: tuple[str, Any]
) -> None:
    """A writer's clock was three days ahead, or this machine's was set back while it worked."""
    name, table = young
    location = Path(str(table.operations().refresh().metadataFileLocation()).removeprefix("file:"))
    later = location.with_name("00099-later.metadata.json")
    later.write_text(json.dumps(shifted(json.loads(location.read_text("utf-8")), 3 * DAY_MS)), "utf-8")
    workshop.sql(f"drop table {name}")
    workshop.sql(f"call lake.system.register_table('{name.removeprefix('lake.')}', 'file:{later}')")
    for _ in range(2):
        outcome = keeper.run(name, Operation.REWRITE_DATA_FILES, days=0, force=True)
        assert (outcome.outcome, outcome.reason) == (OutcomeStatus.FAILED, Reason.CLOCK_SKEW)
        assert outcome.batches[0].message == (
            f"ICM-115 {name}: its metadata is dated more than a minute after the clock of this machine, and Iceberg commits "
            "nothing that is dated earlier (IllegalArgumentException: [BUG] Expected sorted snapshot log entries.). Fix: "
            f"{FIX} If another writer's clock was ahead, maintenance goes on by itself at the time of that metadata."
        )
    uuid = keeper.state(name).uuid
    [history] = keeper.ledger.health.history(uuid, name, Operation.REWRITE_DATA_FILES).partitions.values()
    assert (history.ineffective, history.environment_failures, history.quarantined) == (0, 2, False)


@pytest.mark.variant
def test_clocks_that_agree_on_a_month_later_expire_what_is_old(
    keeper: Keeper, young: tuple[str, Any]
) -> None:
    name, _ = young
    assert keeper.run(name, EXPIRE, days=30).outcome is OutcomeStatus.IMPROVED
    assert kept(keeper, name) == (1, {"main"})
