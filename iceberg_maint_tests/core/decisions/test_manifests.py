"""When manifests are due, and which of them: number, size and spread, spec by spec."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.manifests_decision import (
    DueManifests,
    clusters_of,
    due_manifests,
    least_manifests,
    manifest_findings,
    manifests_without_live_files,
    partition_spread,
    target_manifest_bytes,
)
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.model.table_state import Manifest, TableState
from iceberg_maint.core.policy.housekeeping import RewriteManifestsPolicy
from iceberg_maint_tests.support.core.values import BY_P, table_of

TARGET = 100
POLICY = RewriteManifestsPolicy(max_manifests=10)
BY_DAY = PartitionSpec(0, (PartitionField(1000, 2, "day", "day", "date"),))


def manifest(
    number: int, size: int = 30, *, spec_id: int = 0, deletes: bool = False, **more: object
) -> Manifest:
    made = Manifest(f"m{number}", size, deletes, spec_id, number, number, number, 1, 0, 0, 10, 0)
    return replace(made, **more)  # type: ignore[arg-type]


def days(first: int, last: int) -> tuple[tuple[bytes | None, bytes | None], ...]:
    return ((struct.pack("<i", first), struct.pack("<i", last)),)


def state_of(*manifests: Manifest, spec: PartitionSpec = BY_P) -> TableState:
    properties = {"commit.manifest.target-size-bytes": str(TARGET)}
    return replace(
        table_of([]).state,
        manifests=manifests,
        properties=properties,
        specs={0: spec, 1: replace(BY_P, spec_id=1)},
    )


def due(
    state: TableState, policy: RewriteManifestsPolicy = POLICY, *, force: bool = False
) -> list[tuple[str, ...]]:
    return [d.paths for d in due_manifests(state, policy, force=force)]


def test_more_small_manifests_than_allowed_are_due() -> None:
    eleven = [manifest(n) for n in range(11)]
    assert due(state_of(*eleven)) == [tuple(f"m{n}" for n in range(11))]
    assert due(state_of(*eleven[:10])) == []
    (found,) = manifest_findings(state_of(*eleven), POLICY)
    assert (found.metric, found.value, found.threshold) == ("manifests", 11, 10)
    assert found.threshold_key == "rewrite_manifests.max_manifests"


def test_manifests_without_live_files_do_not_count() -> None:
    """The commit that removed their files lists them for the last time."""
    dead = [manifest(n, added_files=0, deleted_files=4) for n in range(11, 14)]
    assert due(state_of(*(manifest(n) for n in range(10)), *dead)) == []
    assert due(state_of(*(manifest(n) for n in range(11)), *dead)) == [tuple(f"m{n}" for n in range(11))]
    assert manifests_without_live_files(state_of(manifest(0), *dead)) == 3
    paths = [m.path for m in (manifest(0), *dead)]
    assert due(state_of(manifest(0), *dead), force=True) == [tuple(paths)]
    existing = replace(dead[0], existing_files=1)
    unknown = replace(dead[1], added_files=None)
    found = due(state_of(*(manifest(n) for n in range(9)), existing, unknown))
    assert found == [tuple(f"m{n}" for n in (*range(9), 11, 12))]


def test_many_manifests_without_live_files_are_due_and_no_other_manifest() -> None:
    dead = [manifest(n, added_files=0, deleted_files=4) for n in range(1, 5)]
    state = state_of(manifest(0), *dead, manifest(5, 75))
    assert due(state) == [("m1", "m2", "m3", "m4")]
    (found,) = manifest_findings(state, POLICY)
    assert (found.metric, found.value, found.threshold) == ("manifests_without_live_files", 4, 3)
    assert due(state_of(*(manifest(n) for n in range(6, 17)), *dead)) == [
        tuple(f"m{n}" for n in (*range(6, 17), *range(1, 5)))
    ]


def test_manifests_that_are_large_enough_stay_as_they_are() -> None:
    assert due(state_of(*(manifest(n, 75) for n in range(12)))) == []
    mixed = [*(manifest(n) for n in range(11)), *(manifest(n, 75) for n in range(11, 20))]
    assert due(state_of(*mixed)) == [tuple(f"m{n}" for n in range(11))]


def test_rewrite_that_would_leave_more_than_half_is_not_due() -> None:
    """Of 60 bytes each, eleven fill seven: the next measurement would find them due again."""
    assert due(state_of(*(manifest(n, 60) for n in range(11)))) == []
    assert due(state_of(*(manifest(n, 50) for n in range(11)))) == []
    assert due(state_of(*(manifest(n, 50) for n in range(12)))) == [tuple(f"m{n}" for n in range(12))]


def test_manifests_that_are_tiny_are_due_sooner() -> None:
    assert due(state_of(*(manifest(n, 24) for n in range(3)))) == [("m0", "m1", "m2")]
    assert due(state_of(*(manifest(n, 25) for n in range(3)))) == []
    assert due(state_of(*(manifest(n, 24) for n in range(2)))) == []
    (found,) = manifest_findings(state_of(*(manifest(n, 20) for n in range(4))), POLICY)
    assert (found.metric, found.value, found.threshold) == ("mean_manifest_bytes", 20, 25)


@pytest.mark.parametrize(("most", "least"), [(1, 2), (3, 2), (10, 3), (100, 30)])
def test_fewest_manifests_are_three_tenths_of_the_most(most: int, least: int) -> None:
    assert least_manifests(RewriteManifestsPolicy(max_manifests=most)) == least


def test_specs_and_kinds_are_judged_apart() -> None:
    mixed = [manifest(n, 10, spec_id=n % 2, deletes=n >= 8) for n in range(14)]
    found = due_manifests(state_of(*mixed), POLICY)
    assert [(d.spec_id, d.is_deletes, len(d.paths)) for d in found] == [
        (0, False, 4),
        (1, False, 4),
        (0, True, 3),
        (1, True, 3),
    ]


def test_force_takes_every_class_that_has_several() -> None:
    mixed = [manifest(0, 99), manifest(1, 99), manifest(2, spec_id=1), manifest(3, deletes=True)]
    assert due_manifests(state_of(*mixed), POLICY, force=True) == (DueManifests(0, False, ("m0", "m1")),)


PATIENT = RewriteManifestsPolicy(max_manifests=36)
"""Eleven small manifests are enough for a rewrite, and not too many."""


def test_scattered_manifests_are_due_below_the_largest_number() -> None:
    scattered = [manifest(n, bounds=days(0, 9)) for n in range(11)]
    (found,) = manifest_findings(state_of(*scattered, spec=BY_DAY), PATIENT)
    assert (found.metric, found.value, found.threshold) == ("manifest_partition_spread", 11, 10)
    grouped = [manifest(n, bounds=days(n, n)) for n in range(11)]
    assert due(state_of(*grouped, spec=BY_DAY), PATIENT) == []
    assert due(state_of(*scattered[:10], spec=BY_DAY), PATIENT) == []
    for most, found_due in ((39, [tuple(f"m{n}" for n in range(11))]), (40, [])):
        assert due(state_of(*scattered, spec=BY_DAY), replace(PATIENT, max_manifests=most)) == found_due


def test_scattered_manifests_that_are_full_are_not_due() -> None:
    full = [manifest(n, 90, bounds=days(0, 9)) for n in range(11)]
    assert due(state_of(*full, spec=BY_DAY), PATIENT) == []


@pytest.mark.parametrize(
    ("bounds", "spread"),
    [
        ([days(0, 0)] * 3, 3.0),
        ([days(0, 1), days(1, 2), days(2, 3)], 5 / 3),
        ([days(-5, -1), days(3, 9)], 1.0),
        ([days(0, 9), ((None, None),)], 1.0),  # only NULL
        ([days(0, 9), ()], None),  # a writer that left the summaries out
        ([((None, None),)], None),
    ],
)
def test_spread_is_how_many_manifests_hold_a_value(
    bounds: list[tuple[tuple[bytes | None, bytes | None], ...]], spread: float | None
) -> None:
    manifests = [manifest(n, bounds=b) for n, b in enumerate(bounds)]
    found = partition_spread(manifests, BY_DAY)
    assert found == (None if spread is None else pytest.approx(spread))


def test_spread_of_an_unpartitioned_spec_is_unknown() -> None:
    assert partition_spread([manifest(1)], PartitionSpec(0, ())) is None


@pytest.mark.parametrize(("value", "size"), [(None, 8 << 20), ("100", 100), ("many", 8 << 20), ("0", 1)])
def test_target_size_is_the_tables_own(value: str | None, size: int) -> None:
    properties = {} if value is None else {"commit.manifest.target-size-bytes": value}
    assert target_manifest_bytes(properties) == size


@pytest.mark.parametrize(("sizes", "clusters"), [([], 1), ([1], 1), ([50, 50], 1), ([50, 51], 2)])
def test_clusters_are_what_the_entries_fill(sizes: list[int], clusters: int) -> None:
    assert clusters_of([manifest(n, s) for n, s in enumerate(sizes)], TARGET) == clusters
