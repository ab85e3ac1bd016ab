"""What the programs are held against notices what it is there for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy, RemoveOrphanFilesPolicy
from iceberg_maint_tests.qualification.program.faults import FAULTS
from iceberg_maint_tests.qualification.program.kinds import KINDS
from iceberg_maint_tests.qualification.program.maintainer import ALL_KINDS, HOUR_MS, Keeper
from iceberg_maint_tests.qualification.program.planted import Planted
from iceberg_maint_tests.qualification.program.random_runs import Life, Lives, tally
from iceberg_maint_tests.qualification.program.retained import retained
from iceberg_maint_tests.qualification.program.wide import Wide

pytestmark = pytest.mark.slow


def _wide(keeper: Keeper) -> tuple[Wide, int]:
    """A table with every value of every kind, written by Iceberg and by Spark; the first snapshot's id."""
    columns = {f"c_{kind}": kind for kind in ALL_KINDS if kind != "struct"} | {"st": "struct"}
    twin = keeper.make(3, "days(d)", columns)
    most = max(len(KINDS[k].values) for k in ALL_KINDS)
    rows = []
    for number in range(most):
        row = {
            c: (*KINDS[k].values, None)[number % (len(KINDS[k].values) + 1)]
            for c, k in columns.items()
            if c != "st"
        }
        struct = {"st": None} if number == 0 else {"st.x": number, "st.y": None}
        rows.append({**row, **struct, "p": 1, "q": None, "d": (*KINDS["date"].values, None)[number % 4]})
    twin.append(*rows)
    twin.remember()
    first = int(twin.table.currentSnapshot().snapshotId())
    twin.insert(rows, {**columns, "p": "int", "q": "int", "d": "date"})
    twin.remember()
    return twin, first


@pytest.mark.variant
@pytest.mark.spark
def test_values_of_every_kind_read_the_same_by_three_readers(keeper: Keeper) -> None:
    twin, first = _wide(keeper)
    twin.check()
    for reader in ("duckdb", "pyiceberg"):
        twin.check_head(reader)
        twin.check_snapshot(first, reader)
    twin.check_snapshot(first, "generic")
    twin.model.rows[0].values[twin.field_id("c_float")] = "-0.0"
    for check in (lambda: twin.check_head("duckdb"), lambda: twin.check_head("pyiceberg"), twin.check):
        with pytest.raises(AssertionError):
            check()
    keeper.drop(twin)


@pytest.mark.spark
def test_orphan_that_stays_too_long_or_goes_too_early_is_noticed(keeper: Keeper) -> None:
    twin, _ = _wide(keeper)
    policy = RemoveOrphanFilesPolicy(older_than_seconds=86_400, delete_after_seconds=86_400)
    planted = Planted(keeper, twin)
    planted.check(policy)
    keeper.settle_times(twin)
    live = next(p for p in keeper.files(twin) if p.suffix == ".parquet")
    live.rename(live.with_suffix(".gone"))
    with pytest.raises(AssertionError, match="needed and gone"):
        planted.check(policy)
    live.with_suffix(".gone").rename(live)
    stray = keeper.folder(twin) / "data" / "stray.parquet"
    stray.write_bytes(b"x")
    planted.check(policy)
    keeper.pass_time(twin, 30)
    with pytest.raises(AssertionError, match="stayed, 30 h old"):
        planted.check(policy)
    keeper.drop(twin)


def test_snapshots_that_must_stay_are_those_of_refs_counts_ages_and_what_was_staged() -> None:
    def snapshot(number: int, parent: int | None) -> dict[str, int]:
        found = {"snapshot-id": number, "timestamp-ms": number * HOUR_MS}
        return found if parent is None else {**found, "parent-snapshot-id": parent}

    metadata = {
        "snapshots": [snapshot(n, n - 1 if n > 1 else None) for n in range(1, 9)] + [snapshot(20, 4)],
        "refs": {
            "main": {"snapshot-id": 8, "type": "branch"},
            "kept": {"snapshot-id": 2, "type": "tag"},
            "past": {"snapshot-id": 3, "type": "tag", "max-ref-age-ms": HOUR_MS},
        },
    }
    now_ms = 30 * HOUR_MS
    two = ExpireSnapshotsPolicy(max_snapshot_age_seconds=0, min_snapshots_to_keep=2)
    assert retained(metadata, two, now_ms, []) == ({2, 7, 8}, {"main", "kept"})
    assert retained(metadata, two, now_ms, [20]) == ({2, 4, 5, 6, 7, 8, 20}, {"main", "kept"})
    aged = ExpireSnapshotsPolicy(max_snapshot_age_seconds=24 * 3600, min_snapshots_to_keep=1)
    assert retained(metadata, aged, now_ms, []) == ({2, 6, 7, 8, 20}, {"main", "kept"})


def test_lives_of_this_very_code_are_not_lived_again(tmp_path: Path) -> None:
    record = tmp_path / "lives.jsonl"
    life = Life(7, 50, {"writes": 45, "maintain": 5}, None, 12.5)
    Lives(record).add(life)
    assert Lives(record).of(7) == life
    assert Lives(record).of(8) is None
    assert Lives(None).of(7) is None
    row = json.loads(record.read_text())
    assert row["commit"]
    record.write_text(json.dumps({**row, "code": "other"}) + "\n")
    assert Lives(record).of(7) is None


def test_tally_counts_steps_lives_and_differences() -> None:
    lives = [Life(1, 50, {"writes": 45}, None, 10.0), Life(3, 10, {"writes": 9}, "lost", 2.0)]
    assert list(tally(lives)) == ["60 steps in 2 lives, 1 differences [3], 0.20 s a step", "      54 writes"]


def test_each_fault_changes_the_source() -> None:
    assert [len(fault.sources()) for _, fault in FAULTS] == [1, 2, 1]
