"""The anti-join rewrite on real tables: the rows that equality deletes delete are left out, no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark.deletes import convert
from iceberg_maint.engines.spark.rewrite import bin_pack
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.support.batches import with_work
from iceberg_maint_tests.support.spark.equality_deletes import (
    REWRITE,
    clean,
    deletes_of,
    equality_deletes,
    keys,
    other_engine,
    rows_of,
    upserted,
)
from iceberg_maint_tests.support.spark.workshop import FOOTER, FULL, Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.cleaning")
    return made


@pytest.mark.parametrize(("version", "policy"), [(2, FULL), (3, FULL), (2, FOOTER)])
def test_anti_join_leaves_the_deleted_rows_out_and_drops_all_deletes(
    shop: Workshop, version: int, policy: Policy
) -> None:
    name = upserted(shop, version)
    lineage = shop.lineage(name) if version == 3 else None
    _, written = clean(shop, name, REWRITE, policy=policy)
    proof = written.proof
    assert (proof.input_records, proof.output_records, proof.removed_records) == (20, 16, 4)
    assert (equality_deletes(shop, name), deletes_of(shop, name)) == (0, {})
    assert [f.kind for f in written.files] == [FileKind.DATA]
    assert written.memory is not None
    assert written.memory.peak_bytes > 0
    if lineage is not None:
        assert shop.lineage(name) == lineage


def test_anti_join_marks_are_scratch_of_no_commit_and_gone_when_the_batch_is_written(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = upserted(shop, 2)
    folder = Path(str(shop.writers.load(name).location()).removeprefix("file:"))
    rewrite, sizes = bin_pack.rewrite_group, []

    def look(*arguments: Any) -> Any:
        sizes.append(sum(p.stat().st_size for p in folder.rglob("*.puffin")))
        return rewrite(*arguments)

    monkeypatch.setattr(bin_pack, "rewrite_group", look)
    _, written = clean(shop, name, REWRITE)
    assert sizes == [written.scratch_bytes]
    assert written.scratch_bytes > 0
    assert [p.name for p in folder.rglob("*") if "puffin" in p.name] == []
    files = shop.spark.table(f"{name}.all_files").select("file_path").collect()
    assert not [f for f in files if f["file_path"].endswith(".puffin")]


@pytest.mark.variant
def test_anti_join_keeps_the_order_of_rows_in_a_file(shop: Workshop) -> None:
    name = shop.new_name("cleaning")
    table = shop.writers.create(name)
    order = [7, 3, 9, 1, 8, 2]
    shop.writers.append(table, rows_of(order))
    shop.writers.delete_where(table, keys(9, 2))
    clean(shop, name, REWRITE)
    assert [r["id"] for r in shop.spark.table(name).collect()] == [7, 3, 1, 8]


@pytest.mark.variant
@pytest.mark.parametrize("version", [2, 3])
def test_anti_join_of_rows_that_are_all_deleted_only_removes(shop: Workshop, version: int) -> None:
    name = shop.new_name("cleaning")
    table = shop.writers.create(name, version=version)
    shop.writers.append(table, rows_of([1, 2]))
    shop.writers.delete_where(table, keys(1, 2))
    _, written = clean(shop, name, REWRITE)
    assert (written.files, written.proof.removed_records) == ((), 2)
    assert shop.writers.tasks(shop.writers.load(name)) == []


def test_anti_join_of_deletes_that_match_no_row_keeps_older_position_deletes_applied(shop: Workshop) -> None:
    name = shop.new_name("cleaning")
    table = shop.writers.create(name)
    files = [shop.writers.append(table, rows_of([n, n + 5])) for n in (0, 1)]
    shop.writers.delete_at(table, {str(files[0].location()): [1]})
    shop.writers.delete_where(table, keys(3))
    _, written = clean(shop, name, REWRITE)
    assert (written.proof.removed_records, written.proof.output_records, written.scratch_bytes) == (1, 3, 0)


@pytest.mark.variant
def test_anti_join_of_another_process_is_committed_from_its_json(shop: Workshop) -> None:
    name = upserted(shop, 3)
    clean(shop, name, REWRITE, committer=other_engine(shop))
    assert (equality_deletes(shop, name), deletes_of(shop, name)) == (0, {})


def test_anti_join_mark_that_is_not_written_makes_the_proof_unequal(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = positions.write_deletion_vectors

    def without_one(bridge: Any, table: Any, wanted: positions.Positions, files: Any) -> Any:
        return write(bridge, table, {p: w - type(w)([w.max()]) for p, w in wanted.items()}, files)

    monkeypatch.setattr(positions, "write_deletion_vectors", without_one)
    proof = shop.engine.write(shop.cleaning(upserted(shop, 2), REWRITE), FULL).proof
    assert not proof.equal
    assert "were to be deleted" in proof.detail


def test_anti_join_marks_that_are_not_applied_make_the_proof_unequal(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = convert.scan_task
    monkeypatch.setattr(
        convert, "scan_task", lambda bridge, table, file, _deletes: real(bridge, table, file, ())
    )
    proof = shop.engine.write(shop.cleaning(upserted(shop, 2), REWRITE), FULL).proof
    assert (proof.equal, proof.detail) == (False, "4 rows are deleted, 0 were left out")


def test_native_batch_whose_files_are_under_an_equality_delete_is_refused(shop: Workshop) -> None:
    batch = shop.cleaning(upserted(shop, 2), REWRITE)
    native = with_work(batch, equality_deletes=(), memory=None)
    with pytest.raises(RefusedError) as refusal:
        shop.engine.write(native, FULL)
    assert refusal.value.code == "ICM-119"
