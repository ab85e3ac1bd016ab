"""Batches that an engine elsewhere takes: chosen, sent, found again in the table, attested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from iceberg_maint.core.decisions.statement_hazards import CannotError
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import FileKind, Snapshot, TableState
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import AttestLevel, AttestPolicy
from iceberg_maint.errors import ConfigurationError, RefusedError
from iceberg_maint.ports.engine import EnvironmentFailedError
from iceberg_maint.ports.statement_engine import Statement, StatementFailedError
from iceberg_maint_tests.support.core.values import data
from iceberg_maint_tests.support.loop.world import POLICY, Killed, Process, World


@dataclass
class Elsewhere:
    """An engine that merges the files of each partition of a batch into one. `lost` rows are not in it."""

    world: World
    cannot: str = ""
    down: Exception | None = None
    fails: Exception | None = None
    commits: bool = True
    lost: int = 0
    unseen: Exception | None = None
    found: list[tuple[str, int]] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    cancelled: int = 0
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None
    asked: Callable[[], object] = lambda: None

    def version(self, _catalog: str) -> str:
        if self.down is not None:
            raise self.down
        self.asked()
        return "476"

    def find(self, table: TableId, snapshot_id: int, _seconds: float | None = None) -> None:
        self.found.append((str(table), snapshot_id))
        if self.unseen is not None:
            raise self.unseen

    def statements(self, batch: Batch, _state: TableState) -> tuple[Statement, ...]:
        if self.cannot:
            raise CannotError(self.cannot)
        return (Statement(" ".join(batch.partitions)),)

    def run(self, statement: Statement, started: Callable[[str], None]) -> None:
        self.before()
        self.sent.append(statement.text)
        started(f"query-{len(self.sent)}")
        if self.commits:
            key = statement.text
            files = [f for f in self.world.now.live_files if f.partition == key and f.kind is FileKind.DATA]
            rows = sum(f.record_count for f in files) - self.lost
            number = self.world.now.state.last_sequence_number
            merged = data(f"{key}/merged-{number}", 60, partition=key, seq=number, records=rows)
            counts = {
                "added-data-files": "1",
                "deleted-data-files": str(len(files)),
                "added-files-size": "60",
            }
            query = {"trino_query_id": f"query-{len(self.sent)}"}
            self.world.commit([f.path for f in files], [merged], counts | query, operation="replace")
        self.after()
        if self.fails is not None:
            raise self.fails

    def made(self, snapshot: Snapshot, statement_id: str) -> bool:
        query = snapshot.summary.get("trino_query_id")
        return query is not None and statement_id in ("", query)

    def cancel(self) -> None:
        self.cancelled += 1


def policy(*engines: str, attest: AttestLevel = AttestLevel.METADATA) -> Policy:
    rewrite = replace(POLICY.rewrite_data_files, engines=engines or ("trino", "spark"))
    return replace(POLICY, rewrite_data_files=rewrite, attest=AttestPolicy(level=attest))


def world_with(partitions: str = "a", **faults: Any) -> tuple[World, Elsewhere]:
    world = World(partitions, policy())
    engine = Elsewhere(world, **faults)
    world.elsewhere = {"trino": engine}
    return world, engine


def only_batch(outcome: OperationOutcome) -> BatchOutcome:
    (batch,) = outcome.batches
    return batch


def ordered(world: World) -> tuple[int, ...]:
    attested = world.ledger.attestations.get(world.now.state.uuid)
    return () if attested is None else attested.ordered


def test_batch_that_an_engine_takes_is_sent_and_attested() -> None:
    world, engine = world_with("ab")
    outcome = world.run()
    assert engine.sent == ["p=a", "p=b"]
    assert world.writes == []
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert [(b.engine, b.snapshot_after, b.output_files, b.output_bytes) for b in outcome.batches] == [
        ("trino 476", 1002, 1, 60),
        ("trino 476", 1003, 1, 60),
    ]
    assert outcome.batches[0].message.startswith("trino 476, no gate: snapshot 1002 CONSISTENT: ")
    # Metadata alone proves no row.
    assert outcome.batches[0].proof is None
    assert ordered(world) == (1002, 1003)


def replace_table(world: World) -> None:
    """Another table has the name now."""
    world.catalog.put(replace(world.now, state=replace(world.now.state, uuid="another")))


def test_commits_in_a_table_that_was_replaced_while_the_statement_ran_are_not_taken() -> None:
    world, engine = world_with()
    engine.after = lambda: replace_table(world)
    with pytest.raises(RefusedError, match=r"^ICM-129 lake\.db\.t was dropped and created again"):
        world.run()
    assert (engine.sent, ordered(world)) == (["p=a"], ())


def test_table_that_is_replaced_before_the_engine_finds_it_gets_no_statement() -> None:
    world, engine = world_with()
    engine.asked = lambda: replace_table(world)
    with pytest.raises(RefusedError, match=r"^ICM-129 lake\.db\.t was dropped and created again"):
        world.run()
    assert (engine.found, engine.sent) == ([], [])


def test_table_that_an_engine_maintained_has_no_foreign_maintainer() -> None:
    world, _ = world_with()
    world.run()
    world.append("p=a")
    assert world.run().outcome is OutcomeStatus.IMPROVED


def test_commit_of_the_engine_that_nobody_ordered_is_foreign() -> None:
    world, engine = world_with()
    world.commit((), [], {"trino_query_id": "cron"}, operation="replace")
    assert world.run().reason is Reason.FOREIGN_MAINTAINER
    assert engine.sent == []


def test_commit_that_lost_rows_stops_the_table_for_a_person() -> None:
    world, engine = world_with("ab", lost=1)
    outcome = world.run()
    assert engine.sent == ["p=a"]
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.FAILED, Reason.NOT_ATTESTED)
    assert "snapshot 1002 RED" in only_batch(outcome).message
    assert only_batch(outcome).snapshot_after == 1002
    assert world.history("p=a").quarantined
    assert not world.history("p=b").quarantined
    health, uuid = world.ledger.health, world.now.state.uuid
    assert health.history(uuid, "lake.db.t", Operation.EXPIRE_SNAPSHOTS).of(WHOLE_TABLE).quarantined


def test_table_with_a_red_commit_is_not_given_to_an_engine() -> None:
    world, engine = world_with("ab", lost=1)
    world.run()
    outcome = world.run()
    assert engine.sent == ["p=a"]
    assert world.writes == [("p=b",)]
    assert only_batch(outcome).message == (
        "UNSUPPORTED by trino: snapshot 1002 is RED, and no person has accepted it"
    )


def test_work_that_the_engine_cannot_do_is_taken_by_the_next_one() -> None:
    world, engine = world_with(cannot="the spec has several fields")
    outcome = world.run()
    assert (engine.sent, world.writes) == ([], [("p=a",)])
    assert only_batch(outcome).engine == ""
    assert only_batch(outcome).message == "UNSUPPORTED by trino: the spec has several fields"


def test_work_that_no_engine_can_do_is_unsupported_with_each_reason() -> None:
    world, _ = world_with(cannot="the spec has several fields")
    world.policy = policy("trino")
    outcome = world.run()
    assert (world.writes, outcome.outcome, outcome.reason) == ([], OutcomeStatus.UNSUPPORTED, Reason.REFUSED)
    assert (
        "ICM-186 lake.db.t: no engine of rewrite_data_files.engines takes the batch: "
        in only_batch(outcome).message
    )
    assert "UNSUPPORTED by trino: the spec has several fields" in only_batch(outcome).message


def test_engine_that_is_not_configured_is_refused() -> None:
    world, _ = world_with()
    world.policy = policy("dremio")
    with pytest.raises(ConfigurationError, match=r"ICM-100 rewrite_data_files\.engines names dremio"):
        world.run()


@pytest.mark.parametrize(
    ("hazard", "reason"),
    [
        ("equality", "a retained snapshot has or may have equality deletes"),
        ("version", "format version 3 has row ids"),
        ("attest", "attest.level is off"),
        ("bytes", "above attest.max_bytes"),
    ],
)
def test_table_with_a_hazard_is_maintained_by_this_program(hazard: str, reason: str) -> None:
    world, engine = world_with()
    if hazard == "equality":
        world.commit((), [], {"added-equality-deletes": "1"})
    elif hazard == "version":
        state = replace(world.now.state, format_version=3, metadata_location="mem://v3")
        world.now = replace(world.now, state=state)
        world.catalog.put(world.now)
    elif hazard == "attest":
        world.policy = policy(attest=AttestLevel.OFF)
    else:
        world.policy = replace(policy(), attest=AttestPolicy(AttestLevel.FILES, max_bytes=119))
    outcome = world.run()
    assert (engine.sent, world.writes) == ([], [("p=a",)])
    assert reason in only_batch(outcome).message


def test_engine_that_is_down_is_no_failure_of_the_partition() -> None:
    world, engine = world_with(down=EnvironmentFailedError("Trino at http://h does not answer."))
    outcome = world.run()
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.FAILED, Reason.ENVIRONMENT)
    assert only_batch(outcome).message.startswith("ICM-133 Trino at http://h does not answer.")
    history = world.history("p=a")
    assert (history.ineffective, history.environment_failures) == (0, 1)
    assert (engine.sent, world.writes) == ([], [])


def test_table_of_the_same_name_in_another_lake_gets_no_statement() -> None:
    world, engine = world_with(unseen=EnvironmentFailedError("Trino at http://h does not show lake.db.t."))
    snapshot = world.now.state.snapshot
    outcome = world.run()
    assert snapshot is not None
    assert engine.found == [("lake.db.t", snapshot.snapshot_id)]
    assert (engine.sent, world.writes) == ([], [])
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.FAILED, Reason.ENVIRONMENT)


@pytest.mark.parametrize(
    ("is_conflict", "status", "reason"),
    [(True, OutcomeStatus.DEFERRED, Reason.CONFLICT), (False, OutcomeStatus.FAILED, Reason.ERROR)],
)
def test_statement_that_failed_changes_nothing(
    is_conflict: bool, status: OutcomeStatus, reason: Reason
) -> None:
    world, _ = world_with(commits=False, fails=StatementFailedError("no", is_conflict=is_conflict))
    outcome = world.run()
    assert (outcome.outcome, outcome.reason) == (status, reason)
    assert only_batch(outcome).message == "trino 476: no"


def test_statement_without_a_commit_gained_nothing() -> None:
    world, _ = world_with(commits=False)
    outcome = world.run()
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.NO_EFFECT)
    assert only_batch(outcome).message == "trino 476 made no commit"


def test_lost_answer_of_a_statement_that_committed_is_a_commit() -> None:
    world, _ = world_with(fails=TimeoutError("no end within 5 s"))
    outcome = world.run()
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert only_batch(outcome).snapshot_after == 1002


def test_lost_answer_of_a_statement_without_a_commit_is_unknown() -> None:
    world, engine = world_with("ab", commits=False, fails=TimeoutError("no end within 5 s"))
    outcome = world.run()
    assert engine.sent == ["p=a"]
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT)
    assert world.open_work()[0] == 1


def test_statement_of_a_killed_run_is_settled_as_its_commit() -> None:
    world, engine = world_with()

    def die() -> None:
        raise Killed

    engine.after = die
    with pytest.raises(Killed):
        world.run()
    assert engine.cancelled == 1
    assert ordered(world) == ()
    engine.after = lambda: None
    world.expire_leases()
    (settled,) = world.reconcile()
    assert (settled.settlement.status.value, settled.settlement.snapshot_id) == ("COMMITTED", 1002)
    assert ordered(world) == (1002,)


def test_run_killed_before_its_statement_sends_it_again() -> None:
    world, engine = world_with()
    with pytest.raises(Killed):
        world.run(Process("before:record_try"))
    assert engine.sent == []
    world.expire_leases()
    assert world.run().outcome is OutcomeStatus.IMPROVED
    assert engine.sent == ["p=a"]


def test_hazard_that_came_after_the_plan_defers_the_batch() -> None:
    world, engine = world_with()
    outcomes = []

    def late(_catalog: str) -> str:
        if not outcomes:
            outcomes.append(world.commit((), [], {"added-equality-deletes": "1"}))
        return "476"

    engine.version = late  # type: ignore[method-assign]
    outcome = world.run()
    assert (engine.sent, world.writes) == ([], [("p=a",)])
    assert outcome.batches[0].message.startswith(
        "since the plan: a retained snapshot has or may have equality deletes"
    )


def test_branch_that_waits_to_be_published_defers_the_batch() -> None:
    world, engine = world_with()

    def publish(_catalog: str) -> str:
        if len(world.now.state.refs) < 2:
            world.branch("audit")
        return "476"

    engine.version = publish  # type: ignore[method-assign]
    outcome = world.run()
    assert engine.sent == []
    assert [(b.outcome, b.reason, b.message) for b in outcome.batches] == [
        (OutcomeStatus.DEFERRED, Reason.STALE, "branch audit is to be published")
    ]
    assert outcome.reason is Reason.PENDING_PUBLISH
