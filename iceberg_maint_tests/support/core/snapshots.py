"""Histories of snapshots to expire, by age in days."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.model.table_state import Ref, Snapshot, TableState
from iceberg_maint.core.policy.housekeeping import DAY_SECONDS, ExpireSnapshotsPolicy
from iceberg_maint_tests.support.core.values import NOW_MS, table_of

DAY_MS = DAY_SECONDS * 1000
KEEP_ONE = ExpireSnapshotsPolicy(min_snapshots_to_keep=1)


def snapshot(number: int, age_days: float, *, parent: int | None = None, **summary: str) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_id=parent,
        sequence_number=number,
        timestamp_ms=NOW_MS - int(age_days * DAY_MS),
        operation="append",
        summary={key.replace("__", ".").replace("_", "-"): value for key, value in summary.items()},
        manifest_list=f"snap-{number}.avro",
    )


def state_of(*snapshots: Snapshot, refs: tuple[Ref, ...] = (), **properties: str) -> TableState:
    """`main` is the last snapshot unless the refs say otherwise."""
    head = next((r.snapshot_id for r in refs if r.name == "main"), snapshots[-1].snapshot_id)
    return replace(
        table_of([]).state,
        snapshots=snapshots,
        snapshot=next(s for s in snapshots if s.snapshot_id == head),
        refs=refs if any(r.name == "main" for r in refs) else (Ref("main", "branch", head), *refs),
        properties={f"history.expire.{k.replace('_', '-')}": v for k, v in properties.items()},
    )


def line(count: int, *, days_apart: float = 1) -> list[Snapshot]:
    """A branch of `count` snapshots, the newest made now."""
    return [snapshot(n, (count - n) * days_apart, parent=n - 1 or None) for n in range(1, count + 1)]


def with_summary(snapshots: list[Snapshot], number: int, **summary: str) -> list[Snapshot]:
    return [replace(s, summary={**s.summary, **summary}) if s.snapshot_id == number else s for s in snapshots]


FLINK = {"flink.max-committed-checkpoint-id": "17", "flink.job-id": "j", "flink.operator-id": "o"}
CONNECT = {"kafka.connect.offsets.control.group": '{"0":5}'}
SPARK = {"spark.sql.streaming.queryId": "q", "spark.sql.streaming.epochId": "3"}
