"""Which source measures a table: by the policy, or by the size in the manifest list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.health.state_facts import choose_source, indistinct_fields, measuring_bytes
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.model.table_state import LayoutOrder, Manifest, SortColumn, TableState
from iceberg_maint.core.policy.housekeeping import HealthPolicy, HealthSource
from iceberg_maint_tests.support.core.values import table_of

AUTO, MANIFESTS, SPARK = HealthSource.AUTO, HealthSource.MANIFESTS, HealthSource.SPARK


def manifest(added: int | None, existing: int | None, *, is_deletes: bool = False) -> Manifest:
    return Manifest("m", 8000, is_deletes, 0, 1, 1, 1, added, existing, 7, 10, 0)


def listing(*manifests: Manifest) -> TableState:
    return replace(table_of([]).state, manifests=manifests)


def test_estimate_counts_live_data_and_delete_files_and_measured_columns() -> None:
    state = listing(manifest(3, 2), manifest(4, 0, is_deletes=True))
    assert measuring_bytes(state) == 5 * 400 + 4 * 2_000
    column = SortColumn("c", 1, "long")
    ordered = replace(state, order=LayoutOrder((column, column), (column, column), sort_order_id=1))
    assert measuring_bytes(ordered) == 5 * (400 + 2 * 150) + 4 * 2_000


def test_estimate_of_a_list_without_counts_is_by_the_size_of_the_manifest() -> None:
    assert measuring_bytes(listing(manifest(None, 2))) == 8000 // 40 * 400


@pytest.mark.parametrize(
    ("policy", "source"),
    [
        (HealthPolicy(AUTO, 2000), MANIFESTS),
        (HealthPolicy(AUTO, 1999), SPARK),
        (HealthPolicy(MANIFESTS, 1999), MANIFESTS),
        (HealthPolicy(SPARK, 2000), SPARK),
    ],
)
def test_source_of_five_files_is_that_of_the_policy_or_of_the_memory(
    policy: HealthPolicy, source: HealthSource
) -> None:
    assert choose_source(policy, listing(manifest(3, 2))) is source


@pytest.mark.parametrize(
    ("transform", "kind", "names"),
    [
        ("identity", "double", ("p",)),
        ("identity", "uuid", ("p",)),
        ("bucket[4]", "int", ()),
        ("void", "double", ()),
    ],
)
def test_auto_keeps_tables_that_spark_confuses_on_manifests(
    transform: str, kind: str, names: tuple[str, ...]
) -> None:
    field = PartitionField(1000, 1, "p", transform, kind)
    state = replace(listing(manifest(3, 2)), specs={0: PartitionSpec(0, (field,))})
    assert indistinct_fields(state) == names
    assert choose_source(HealthPolicy(AUTO, 1), state) is (MANIFESTS if names else SPARK)
