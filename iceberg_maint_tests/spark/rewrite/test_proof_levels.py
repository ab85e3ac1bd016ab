"""What each level of the proof of `columnar` finds, and what it does not: faults that are planted in the tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy, ProofLevel, RewriteStrategy
from iceberg_maint.engines.spark.rewrite.columnar import strategy
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.task_faults import (
    misdeleting,
    misnumbering,
    miswriting,
    shifting,
    swapping,
    swapping_late,
)
from iceberg_maint_tests.support.spark.unhealthy_tables import workshop
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop

pytestmark = pytest.mark.spark


def level(proof: ProofLevel, share: float = 0.0) -> Policy:
    """The strategy `columnar` with this proof, and a sample of this share of the batches."""
    rewrites = replace(
        FULL.rewrite_data_files, strategy=RewriteStrategy.COLUMNAR, proof=proof, independent_sample=share
    )
    return replace(FULL, rewrite_data_files=rewrites)


FOOTER, ARROW, SAMPLE = level(ProofLevel.FOOTER), level(ProofLevel.FULL), level(ProofLevel.FULL, 1.0)
SENTENCE = "Iceberg's reader decodes another value than in the input files at row"


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


def table_of(shop: Workshop, version: int = 2, rows: int = 10) -> str:
    """Two files with as many rows each, the 16th row of all deleted."""
    name = shop.new_name("native")
    shop.sql(
        f"create table {name} (id bigint, m decimal(9, 2)) using iceberg tblproperties "
        f"('format-version'='{version}', 'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file')"
    )
    for start in (0, rows):
        shop.sql(f"insert into {name} select id, id / 4 from range({start}, {start + rows}, 1, 1)")
    shop.sql(f"delete from {name} where id = 15")
    return name


def passes(shop: Workshop, name: str, policy: Policy) -> bool:
    """Whether the rewrite is committed. If not, its proof has failed and the table is as before."""
    before = shop.writers.load(name).currentSnapshot().snapshotId()
    outcome = Keeper(shop, policy).run(name, Operation.REWRITE_DATA_FILES, force=True)
    if outcome.outcome is OutcomeStatus.IMPROVED:
        return True
    assert [b.reason for b in outcome.batches] == [Reason.PROOF_MISMATCH]
    assert shop.writers.load(name).currentSnapshot().snapshotId() == before
    return False


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("version", "fault", "column", "row"),
    [
        (2, swapping, "id", 0),
        (3, swapping, "id", 0),
        (2, shifting, "m", 0),
        (3, shifting, "m", 0),
        (2, misdeleting, "id", 5),
        (3, misdeleting, "id", 5),
        (3, misnumbering, "_row_id", 0),
    ],
)
def test_fault_on_both_sides_of_arrows_proof_passes_it_and_fails_the_sample(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, version: int, fault: Any, column: str, row: int
) -> None:
    name = table_of(shop, version)
    rows, lineage = sorted(map(repr, shop.rows(name))), shop.lineage(name) if version == 3 else []
    monkeypatch.setattr(strategy, "rewrite_task", fault)
    outcome = Keeper(shop, SAMPLE).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert (outcome.outcome, [b.reason for b in outcome.batches]) == (
        OutcomeStatus.FAILED,
        [Reason.PROOF_MISMATCH],
    )
    assert outcome.batches[0].message.partition(": ")[2] == (
        f"column {column}, row group 0: {SENTENCE} {row} of the file"
    )
    assert sorted(map(repr, shop.rows(name))) == rows
    assert passes(shop, name, ARROW)
    after = sorted(map(repr, shop.rows(name)))
    assert after != rows or shop.lineage(name) != lineage


@pytest.mark.variant
def test_fault_outside_the_rows_of_a_sample_passes(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = table_of(shop, rows=1100)
    rows = sorted(map(repr, shop.rows(name)))
    monkeypatch.setattr(strategy, "rewrite_task", swapping_late)
    assert passes(shop, name, SAMPLE)
    assert sorted(map(repr, shop.rows(name))) != rows


def test_written_values_that_keep_counts_and_bounds_pass_level_footer_and_fail_level_full(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = table_of(shop)
    rows = sorted(map(repr, shop.rows(name)))
    monkeypatch.setattr(strategy, "rewrite_task", miswriting)
    assert not passes(shop, name, ARROW)
    assert passes(shop, name, FOOTER)
    assert sorted(map(repr, shop.rows(name))) != rows
