"""What `plan` states of the table before and after."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from iceberg_maint.cli.plan import draw_plans, totals_of
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.table_state import LiveFile
from iceberg_maint.core.planning.plan import Plan, batch_at, make_plan
from iceberg_maint.core.planning.work import ExpireSnapshots, MetadataWork, RewriteManifests
from iceberg_maint_tests.support.core.snapshots import line, state_of
from iceberg_maint_tests.support.core.values import (
    decide,
    delete,
    measure_files,
    measured_of,
    plan,
    policy_of,
    small,
    table_of,
)


def drawn(*deletes: LiveFile) -> list[str]:
    """The line of delete files of a rewrite of six small files."""
    table, policy = table_of([*small(6), *deletes]), policy_of()
    made, measured = plan(table, policy), measure_files(table, policy.rewrite_data_files)
    text = StringIO()
    parts = [(made, decide(table, policy), None)]
    draw_plans(Console(file=text, width=200), "lake.db.t", measured, parts, (), advised=False)
    before, after = totals_of(measured, [made])
    assert (before.data_files, after.data_files) == (6, 1)
    return [" ".join(line.split()) for line in text.getvalue().splitlines() if "delete files" in line]


def test_rewrite_drops_the_deletes_of_its_data_files_alone() -> None:
    own = [delete(f"d{i}", of=f"p=a/{i}") for i in range(6)]
    assert drawn(*own) == ["delete files 6 0"]
    assert drawn(*own, delete("of-the-partition")) == ["delete files 7 1"]


STATE = state_of(*line(1))


def plan_of(operation: Operation, work: MetadataWork) -> Plan:
    return make_plan(str(STATE.table), STATE.uuid, operation, 1, (batch_at(STATE, work, frozenset()),), ())


def snapshots(before: int, *plans: Plan) -> int:
    measured = measured_of({})
    health = replace(measured.table_health, snapshots=before)
    return totals_of(replace(measured, table_health=health), plans)[1].snapshots


def test_expiry_adds_no_snapshot_and_a_rewrite_of_manifests_adds_one() -> None:
    expire = plan_of(Operation.EXPIRE_SNAPSHOTS, ExpireSnapshots(tuple(range(16)), ()))
    assert snapshots(19, expire) == 3
    regroup = plan_of(Operation.REWRITE_MANIFESTS, RewriteManifests(("m1", "m2")))
    fewer = plan_of(Operation.EXPIRE_SNAPSHOTS, ExpireSnapshots(tuple(range(7)), ()))
    assert snapshots(10, regroup, fewer) == 4
