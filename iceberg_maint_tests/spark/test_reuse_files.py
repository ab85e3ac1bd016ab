"""Files of a dead run, on real tables: the next process commits these very files and writes none."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import update

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OutcomeStatus
from iceberg_maint.core.policy.data import (
    EqualityDeletesPolicy,
    LayoutPolicy,
    Policy,
    RewriteDataFilesPolicy,
    RewritePositionDeleteFilesPolicy,
    RewriteStrategy,
    Route,
)
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.ledger.schema import lease as lease_table
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.ports.engine import Written, WrittenFile
from iceberg_maint.wiring.adapters import SystemClock
from iceberg_maint_tests.support.context import context_with
from iceberg_maint_tests.support.fakes.ledger import memory_ledger, with_parts
from iceberg_maint_tests.support.spark.equality_deletes import keys, other_engine, rows_of
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(2)]

REWRITE, CONVERT = Operation.REWRITE_DATA_FILES, Operation.CONVERT_EQUALITY_DELETES
MERGE = Operation.REWRITE_POSITION_DELETE_FILES
SMALL = replace(FULL, rewrite_data_files=RewriteDataFilesPolicy(min_input_files=2))


class KilledError(BaseException):
    """The process is gone."""


class MortalPart:
    """A part of the real ledger of a process that dies when its files are written down, or once it has said
    that it is about to commit. `after` is the last call; `dead` has it once it was made."""

    def __init__(self, part: Any, after: str, dead: set[str]) -> None:
        self._part, self._after, self._dead = part, after, dead

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self._dead:
                raise KilledError
            result = getattr(self._part, name)(*args)
            if name == self._after:
                self._dead.add(name)
                raise KilledError
            return result

        return call


class Case:
    """A table that is due for one operation."""

    def __init__(self, shop: Workshop, name: str, operation: Operation, policy: Policy) -> None:
        self.shop, self.name, self.operation, self.policy = shop, name, operation, policy
        self.ledger = memory_ledger()
        self.uuid = shop.catalog.pin(TableId.parse(name)).uuid

    def run(self, engine: SparkEngine, ledger: Any = None) -> tuple[BatchOutcome, ...]:
        context = context_with(
            {"lake": self.shop.catalog},
            ledger or self.ledger,
            SystemClock(),
            lambda _table, _properties: self.policy,
            lambda: engine,
        )
        request = Request("dead" if ledger else "next", operations=(self.operation,), force=True)
        [outcome] = maintain(TableId.parse(self.name), request, context)
        return outcome.batches

    def dies(self, after: str) -> tuple[WrittenFile, ...]:
        """What a run had written when it died."""
        dead: set[str] = set()
        mortal = with_parts(self.ledger, lambda part: MortalPart(part, after, dead))
        with pytest.raises(KilledError):
            self.run(self.shop.engine, mortal)
        with self.ledger.work._database.write(self.uuid) as conn:
            conn.execute(update(lease_table).values(expires_ms=0))
        [attempt] = self.ledger.work.open_attempts(self.uuid)
        assert attempt.files
        return attempt.files

    def stored(self) -> set[str]:
        """Data and delete files of the table on disk, live or not."""
        place = Path(self.shop.catalog.pin(TableId.parse(self.name)).location.removeprefix("file:"))
        return {str(p) for p in (place / "data").rglob("*") if p.is_file() and not p.name.startswith(".")}

    def live(self) -> set[str]:
        frame = self.shop.spark.table(f"{self.name}.files").select("file_path")
        return {row.file_path for row in frame.collect()}


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.adoption")
    return made


def sorted_with_lineage(shop: Workshop) -> Case:
    name = shop.new_name("adoption")
    table = shop.writers.create(name, version=3)
    for start in (0, 1):
        shop.writers.append(table, rows_of(range(start, 20, 2)))
    return Case(shop, name, REWRITE, replace(SMALL, layout=LayoutPolicy(sort_by=("id",))))


def under_equality_deletes(shop: Workshop, version: int, route: Route) -> tuple[str, Policy]:
    name = shop.new_name("adoption")
    table = shop.writers.create(name, version=version)
    for start in (0, 10):
        shop.writers.append(table, rows_of(range(start, start + 10)))
    shop.writers.delete_where(shop.writers.load(name), keys(2, 13))
    return name, replace(SMALL, equality_deletes=EqualityDeletesPolicy(route=route))


def columnar(shop: Workshop) -> Case:
    name = shop.new_name("adoption")
    table = shop.writers.create(name, version=3)
    for start in (0, 1):
        shop.writers.append(table, rows_of(range(start, 20, 2)))
    rewrite = replace(SMALL.rewrite_data_files, strategy=RewriteStrategy.COLUMNAR)
    return Case(shop, name, REWRITE, replace(SMALL, rewrite_data_files=rewrite))


def anti_joined(shop: Workshop) -> Case:
    name, policy = under_equality_deletes(shop, 2, Route.REWRITE)
    return Case(shop, name, REWRITE, policy)


def converted(shop: Workshop) -> Case:
    name, policy = under_equality_deletes(shop, 3, Route.CONVERT)
    return Case(shop, name, CONVERT, policy)


def merged(shop: Workshop) -> Case:
    name = shop.new_name("adoption")
    table = shop.writers.create(name)
    path = str(shop.writers.append(table, rows_of(range(10))).location())
    for position in (1, 4, 7):
        shop.writers.delete_at(shop.writers.load(name), {path: [position]})
    policy = RewritePositionDeleteFilesPolicy(min_input_files=2)
    return Case(shop, name, MERGE, replace(SMALL, rewrite_position_delete_files=policy))


def file_counts(outcome: BatchOutcome) -> dict[str, int]:
    """The counts of a batch without the time of its swap."""
    return {name: count for name, count in outcome.counts.items() if name != "base_to_swap_ms"}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("make", "after"),
    [
        (sorted_with_lineage, "record_intent"),
        (columnar, "record_intent"),
        (anti_joined, "record_try"),
        (converted, "record_intent"),
        (merged, "record_intent"),
    ],
)
def test_files_of_a_dead_run_are_committed_by_another_process_as_they_are(
    shop: Workshop, make: Callable[[Workshop], Case], after: str
) -> None:
    case = make(shop)
    rows = shop.writers.rows(case.name)
    lineage = shop.lineage(case.name) if make in (sorted_with_lineage, columnar) else None
    files = case.dies(after)
    stored = case.stored()
    [outcome] = case.run(other_engine(shop))
    assert outcome.outcome is OutcomeStatus.IMPROVED, outcome.message
    assert file_counts(outcome) == {"adopted_files": len(files)}
    assert case.stored() == stored
    assert {f.path for f in files} <= case.live()
    assert shop.writers.rows(case.name) == rows
    assert lineage is None or shop.lineage(case.name) == lineage
    assert case.ledger.work.open_attempts(case.uuid) == ()


@pytest.mark.variant  # loop/test_reuse_files.py
def test_files_of_a_dead_run_whose_inputs_have_changed_are_refused_and_planned_again(shop: Workshop) -> None:
    case = sorted_with_lineage(shop)
    files = case.dies("record_try")
    shop.sql(f"delete from {case.name} where id = 3")
    rows = shop.writers.rows(case.name)
    [outcome] = case.run(other_engine(shop))
    assert (outcome.outcome, file_counts(outcome)) == (OutcomeStatus.IMPROVED, {})
    assert {f.path for f in files}.isdisjoint(case.live())
    assert shop.writers.rows(case.name) == rows
    # Not in flight any more: the orphan scan takes them when they are old enough.
    assert case.ledger.work.open_attempts(case.uuid) == ()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("make", [sorted_with_lineage, columnar])
def test_files_are_adopted_only_if_they_hold_what_their_proof_says(
    shop: Workshop, make: Callable[[Workshop], Case]
) -> None:
    case = make(shop)
    files = case.dies("record_intent")
    [attempt] = case.ledger.work.open_attempts(case.uuid)
    [stored] = case.ledger.work.open_batches(case.uuid, REWRITE)
    assert attempt.proof is not None
    assert attempt.proof.fingerprint is not None
    engine = other_engine(shop)
    written = Written(files, attempt.proof)
    assert engine.reuse_files(stored.batch, written)
    other = attempt.proof.fingerprint.replace(":20:", ":21:")
    assert not engine.reuse_files(
        stored.batch, replace(written, proof=replace(attempt.proof, fingerprint=other))
    )
    place = Path(files[0].path.removeprefix("file:"))
    os.truncate(place, place.stat().st_size - 1)
    assert not engine.reuse_files(stored.batch, written)
    place.unlink()
    rows = shop.writers.rows(case.name)
    [outcome] = case.run(engine)
    assert (outcome.outcome, file_counts(outcome)) == (OutcomeStatus.IMPROVED, {})
    assert shop.writers.rows(case.name) == rows
