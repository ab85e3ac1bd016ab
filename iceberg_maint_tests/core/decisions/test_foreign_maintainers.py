"""Foreign maintainers: who is one by its marks, for how long, and what is left to do beside one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.applicability import (
    ActiveMaintainer,
    active_maintainer,
    coexistence_policy,
)
from iceberg_maint.core.decisions.rules import Situation, Stop, foreign_maintainer
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.other_writers import MOST_KEPT, ForeignCommit, foreign_commits
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.model.table_state import INSTALLATION_PROPERTY, TOKEN_PROPERTY, Snapshot, TableState
from iceberg_maint.core.policy.data import Mode, Policy, Route
from iceberg_maint.core.policy.runs import ForeignMaintainersPolicy, ForeignMode, WindowsPolicy
from iceberg_maint_tests.support.core.values import NOW_MS, measured_of, small, table_of

OWN = "installation-1"
REWRITTEN = {"added-data-files": "1", "deleted-data-files": "8"}
SPARK = {"engine-name": "spark", "app-id": "local-17", "app-name": "nightly"} | REWRITTEN


def state_of(*commits: tuple[str, Mapping[str, str]], location: str = "s3://lake/db/t") -> TableState:
    """A table with these commits (operation, summary), an hour apart, the last at NOW_MS."""
    snapshots = tuple(
        Snapshot(
            i, i - 1 if i > 1 else None, i, NOW_MS - 3_600_000 * (len(commits) - i), operation, summary, "l"
        )
        for i, (operation, summary) in enumerate(commits, 1)
    )
    state = table_of(small(1)).state
    return replace(state, location=location, snapshots=snapshots, snapshot=snapshots[-1])


@pytest.mark.parametrize(
    ("summary", "name"),
    [
        (SPARK, "Apache Spark (application nightly)"),
        ({"engine-name": "spark", "app-id": "local-17"}, "Apache Spark (application local-17)"),
        ({"spark.app.id": "application_1_2"}, "Apache Spark (application application_1_2)"),
        ({"engine-name": "flink", "engine-version": "2.1.3"}, "Apache Flink"),
        ({"snapshot.producer": "OPTIMIZE"}, "Apache Amoro"),
        ({"trino_query_id": "20261121_1_a", "trino_user": "etl"}, "Trino (query 20261121_1_a)"),
        ({"maintenance": "compact_data_files", "merged-files": "2"}, "SeaweedFS (compact_data_files)"),
        ({"engine-name": "dremio"}, "dremio"),
        ({}, "an engine without a name in the summary"),
    ],
)
def test_rewrite_that_is_not_ours_is_recognised_by_its_marks(summary: dict[str, str], name: str) -> None:
    (found,) = foreign_commits(state_of(("append", {}), ("replace", summary)), OWN)
    assert (found.snapshot_id, found.timestamp_ms, found.maintainer) == (2, NOW_MS, name)


def test_foreign_commits_keep_the_newest_ten() -> None:
    commits = foreign_commits(state_of(*[("replace", SPARK)] * 12), OWN)
    assert [c.snapshot_id for c in commits] == [12, 11, 10, 9, 8, 7, 6, 5, 4, 3]


def test_unmarked_rewrite_in_a_bucket_of_s3_tables_is_theirs() -> None:
    state = state_of(("replace", REWRITTEN), location="s3://63a8e430-6e0b--table-s3")
    assert [c.maintainer for c in foreign_commits(state, OWN)] == ["Amazon S3 Tables"]


@pytest.mark.parametrize(
    ("operation", "summary"),
    [
        ("replace", {TOKEN_PROPERTY: "t"} | SPARK),
        ("append", {"engine-name": "spark", "added-data-files": "1"}),
        ("overwrite", {"engine-name": "flink", "added-delete-files": "1"}),
        ("delete", {"trino_query_id": "q", "deleted-data-files": "3"}),
        ("overwrite", {"snapshot.producer": "INGESTION"}),
        ("replace", {"engine-name": "spark", "manifests-created": "1", "manifests-replaced": "9"}),
        ("replace", {"added-data-files": "0", "changed-partition-count": "0"}),
    ],
)
def test_our_own_commits_writes_and_regrouped_manifests_are_no_foreign_maintenance(
    operation: str, summary: dict[str, str]
) -> None:
    assert foreign_commits(state_of((operation, summary)), OWN) == ()


def test_row_delta_of_amoro_s_optimizer_is_maintenance_though_it_replaces_nothing() -> None:
    summary = {"snapshot.producer": "OPTIMIZE", "added-delete-files": "2", "removed-delete-files": "2"}
    (found,) = foreign_commits(state_of(("overwrite", summary)), OWN)
    assert (found.maintainer, found.deletes) == ("Apache Amoro", True)


@pytest.mark.parametrize(("count", "deletes"), [("3", True), ("0", False)])
def test_rewrite_reports_whether_delete_files_came_or_went(count: str, deletes: bool) -> None:
    (found,) = foreign_commits(state_of(("replace", SPARK | {"removed-delete-files": count})), OWN)
    assert found.deletes is deletes


def test_only_the_newest_are_kept_newest_first() -> None:
    found = foreign_commits(state_of(*[("replace", SPARK)] * (MOST_KEPT + 5)), OWN)
    assert [c.snapshot_id for c in found] == list(range(MOST_KEPT + 5, 5, -1))


def test_rewrite_on_another_branch_does_not_count() -> None:
    state = state_of(("append", {}), ("append", {}))
    stray = Snapshot(9, 1, 9, NOW_MS, "replace", SPARK, "l")
    assert foreign_commits(replace(state, snapshots=(*state.snapshots, stray)), OWN) == ()


def test_name_that_an_engine_wrote_is_cut_and_cannot_steer_a_terminal() -> None:
    summary = {"engine-name": "x\x1b[2J\n\u202e" + "y" * 500}
    (found,) = foreign_commits(state_of(("replace", summary)), OWN)
    assert found.maintainer == "x [2J  " + "y" * 73
    assert found.maintainer.isprintable()


def commit(age_seconds: int, name: str = "Trino (query q)") -> ForeignCommit:
    return ForeignCommit(7, NOW_MS - age_seconds * 1000, name, deletes=False)


DAY = 86_400
REFUSE = ForeignMaintainersPolicy()
COEXIST = ForeignMaintainersPolicy(mode=ForeignMode.COEXIST)
IGNORE = ForeignMaintainersPolicy(mode=ForeignMode.IGNORE)


@pytest.mark.parametrize(
    ("age_seconds", "counts"), [(0, True), (2 * DAY - 1, True), (2 * DAY, False), (9 * DAY, False)]
)
def test_commit_counts_for_two_days(age_seconds: int, counts: bool) -> None:
    found = active_maintainer([commit(age_seconds)], REFUSE, NOW_MS)
    assert found == (
        ActiveMaintainer(commit(age_seconds), NOW_MS + (2 * DAY - age_seconds) * 1000) if counts else None
    )


def test_newest_commit_decides_until_when() -> None:
    found = active_maintainer([commit(5), commit(DAY, "dremio")], REFUSE, NOW_MS)
    assert found is not None
    assert found.evidence() == {
        "foreign_maintainer": "Trino (query q)",
        "foreign_snapshot": "7",
        "foreign_at_ms": str(NOW_MS - 5000),
        "foreign_until_ms": str(NOW_MS + (2 * DAY - 5) * 1000),
    }


REFUSING = Policy(foreign_maintainers=REFUSE)
COEXISTING = Policy(foreign_maintainers=COEXIST)
IGNORING = Policy(foreign_maintainers=IGNORE)


def foreign_stop(operation: Operation, commits: tuple[ForeignCommit, ...], policy: Policy) -> Stop | None:
    """The stop of an operation on a table with these commits of others."""
    measured = replace(measured_of({}), foreign=commits)
    return foreign_maintainer(operation, Situation(measured, policy, {}, NOW_MS))


@pytest.mark.parametrize("operation", DATA_OPERATIONS)
def test_rewrite_of_files_is_refused_beside_another_maintainer(operation: Operation) -> None:
    stop = foreign_stop(operation, (commit(5),), REFUSING)
    assert stop is not None
    assert (stop.verdict, stop.reason) == (Verdict.REFUSE, Reason.FOREIGN_MAINTAINER)
    assert stop.evidence["foreign_maintainer"] == "Trino (query q)"
    assert foreign_stop(operation, (commit(5),), IGNORING) is None
    assert foreign_stop(operation, (commit(2 * DAY),), REFUSING) is None
    assert foreign_stop(operation, (), REFUSING) is None


def test_policy_that_advises_is_not_stopped() -> None:
    advising = replace(REFUSING, mode=Mode.ADVISE)
    assert foreign_stop(Operation.REWRITE_DATA_FILES, (commit(5),), advising) is None


def test_only_position_deletes_are_left_to_the_other_in_coexistence() -> None:
    stops = {o: foreign_stop(o, (commit(5),), COEXISTING) for o in DATA_OPERATIONS}
    left = stops.pop(Operation.REWRITE_POSITION_DELETE_FILES)
    assert left is not None
    assert (left.verdict, left.reason) == (Verdict.SKIP, Reason.FOREIGN_MAINTAINER)
    assert set(stops.values()) == {None}


def test_operations_that_replace_no_files_go_on() -> None:
    others = [o for o in Operation if o not in DATA_OPERATIONS]
    assert all(foreign_stop(o, (commit(5),), REFUSING) is None for o in others)


@pytest.mark.parametrize(("own", "needed"), [(None, 3600), (60, 3600), (7200, 7200)])
def test_coexistence_wants_cold_partitions_and_no_conversions(own: int | None, needed: int) -> None:
    policy = replace(COEXISTING, windows=WindowsPolicy(cold_after_seconds=own))
    found = coexistence_policy(policy, [commit(5)], NOW_MS)
    assert (found.windows.cold_after_seconds, found.equality_deletes.route) == (needed, Route.REWRITE)
    assert coexistence_policy(policy, [commit(2 * DAY)], NOW_MS) is policy
    assert coexistence_policy(policy, [], NOW_MS) is policy


@pytest.mark.parametrize("policy", [REFUSING, IGNORING])
def test_policy_stays_as_it_is_in_other_modes(policy: Policy) -> None:
    assert coexistence_policy(policy, [commit(5)], NOW_MS) is policy


@pytest.mark.parametrize("summary", [{}, {INSTALLATION_PROPERTY: OWN}])
def test_commit_of_this_installation_or_without_one_is_not_foreign(summary: dict[str, str]) -> None:
    state = state_of(("replace", REWRITTEN | {TOKEN_PROPERTY: "t"} | summary))

    assert foreign_commits(state, OWN) == ()


def test_commit_of_another_installation_is_foreign_and_names_it() -> None:
    summary = REWRITTEN | {TOKEN_PROPERTY: "t", INSTALLATION_PROPERTY: "installation-2"}

    (commit,) = foreign_commits(state_of(("replace", summary)), OWN)

    assert commit.maintainer == "iceberg_maint (installation installation-2)"
