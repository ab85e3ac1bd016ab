"""The loop under faults: foreign commits, and every answer a commit can give."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.decisions.table_decision import Standing, verdict_on
from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.outcomes.outcome import OutcomeStatus, Rejection
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint.errors import IcebergMaintError, RefusedError, StaleBatchError, UnknownTableError
from iceberg_maint.loop.maintain import BatchEnded, Request, maintain
from iceberg_maint.ports.engine import EnvironmentFailedError
from iceberg_maint_tests.loop.test_crashes import check_healed
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.core.values import data, delete, policy_of, rewrite_policy
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Killed, Process, World

pytestmark = pytest.mark.seconds


def test_run_heals_every_due_partition_and_records_it() -> None:
    world = World()
    rows = world.rows()
    found = world.run()
    check_healed(world, rows)
    assert (found.outcome, found.reason) == (OutcomeStatus.IMPROVED, Reason.SMALL_FILES)
    assert [b.partitions for b in found.batches] == [("p=a",), ("p=b",)]
    assert [(b.input_files, b.output_files) for b in found.batches] == [(6, 1), (6, 1)]
    (record,) = world.ledger.records.newest(str(TABLE), 10)
    assert record.outcome == found
    assert loads(Record, dumps(record)) == record
    before, after = next((e.before, e.after) for e in world.events if isinstance(e, BatchEnded))
    assert (before["p=a"].data_files, after["p=a"].data_files) == (6, 1)


def test_commit_of_a_later_batch_follows_the_one_before_it() -> None:
    first, second = World().run().batches
    assert first.snapshot_after is not None
    assert first.snapshot_before != first.snapshot_after
    assert second.snapshot_before == first.snapshot_after


def test_run_of_a_healthy_table_does_nothing() -> None:
    world = World()
    world.run()
    writes = len(world.writes)
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.HEALTHY)
    assert len(world.writes) == writes
    assert len(world.ledger.records.newest(str(TABLE), 10)) == 1


def test_stale_batch_is_planned_again_in_the_same_run() -> None:
    world = World("a")

    def foreign(_batch: Batch) -> None:
        world.before_commit = lambda _batch: None
        world.commit(["p=a/0"], ())

    world.before_commit = foreign
    found = world.run()
    assert [(b.outcome, b.reason) for b in found.batches] == [
        (OutcomeStatus.DEFERRED, Reason.STALE),
        (OutcomeStatus.IMPROVED, Reason.SMALL_FILES),
    ]
    assert found.outcome is OutcomeStatus.IMPROVED
    assert world.history("p=a").ineffective == 0
    assert world.open_work() == (0, 0)


def test_batches_planned_again_after_a_conflict_are_smaller() -> None:
    windows = replace(POLICY.windows, max_bytes_per_batch=1600)
    world = World("", replace(POLICY, windows=windows))
    world.commit((), [data(f"a/{i}", 20, seq=2) for i in range(80)])
    planned: list[int] = []

    def stale(batch: Batch) -> None:
        planned.append(batch.input_bytes)
        raise StaleBatchError("somebody was faster")

    world.before_write = stale
    world.run()
    assert planned == [1600, 800, 800, 400, 400, 400, 400]


@pytest.mark.parametrize("rejection", [None, Rejection.ERROR], ids=["write", "commit"])
def test_failure_once_another_maintainer_has_expired_the_plan_is_stale(rejection: Rejection | None) -> None:
    """The files that the batch reads may have gone with the snapshot of its plan."""
    world = World("a")

    def foreign(_batch: Batch) -> None:
        world.before_write = lambda _batch: None
        world.append("p=a")
        world.expire_all_but_head()
        world.reject = rejection
        if rejection is None:
            raise RefusedError("ICM-101", "p=a/0: FileNotFoundException.", "restore the file.")

    def committed(_batch: Batch) -> None:
        world.before_commit = lambda _batch: setattr(world, "reject", None)

    world.before_write, world.before_commit = foreign, committed
    found = world.run()
    assert [(b.outcome, b.reason) for b in found.batches] == [
        (OutcomeStatus.DEFERRED, Reason.STALE),
        (OutcomeStatus.IMPROVED, Reason.SMALL_FILES),
    ]
    assert found.batches[0].message.startswith("snapshot 1001 of the plan has been expired since: ")
    assert world.history("p=a").ineffective == 0


@pytest.mark.parametrize(
    "why", [RefusedError("ICM-135", "unreadable.", "rewrite it."), ConnectionError("gone")]
)
def test_failure_that_is_of_no_missing_file_counts_though_the_plan_has_been_expired(why: Exception) -> None:
    world = World("a")

    def foreign(_batch: Batch) -> None:
        world.before_write = lambda _batch: None
        world.append("p=a")
        world.expire_all_but_head()
        raise why

    world.before_write = foreign
    assert Reason.STALE not in {b.reason for b in world.run().batches}


def test_stale_again_and_again_backs_off() -> None:
    """Or automation would have it written for nothing at every tick."""
    world = World("a")

    def stale(_batch: Batch) -> None:
        raise StaleBatchError("the table moved on.")

    world.before_write = stale
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.DEFERRED, Reason.STALE)
    assert [b.reason for b in found.batches] == [Reason.STALE] * 3
    assert world.history("p=a").ineffective == 1
    assert world.our_commits() == 0
    assert world.run().reason is Reason.BACK_OFF


@pytest.mark.parametrize(
    ("rejection", "reason"),
    [
        (Rejection.REFUSED, Reason.GATE_REFUSED),
        (Rejection.ERROR, Reason.ERROR),
    ],
)
def test_rejected_commit_backs_off_doubling_to_quarantine(rejection: Rejection, reason: Reason) -> None:
    world = World("a")
    world.reject = rejection
    waits = []
    for _ in range(3):
        found = world.run()
        assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, reason)
        assert world.run().reason in (Reason.BACK_OFF, Reason.QUARANTINED)
        past = world.history("p=a")
        waits.append((past.not_before_ms - world.clock.ms) // 1000)
        world.clock.ms = past.not_before_ms
    assert waits == [100, 200, 400]
    world.reject = None
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.QUARANTINED)
    assert len(world.writes) + len(world.adoptions) == 3
    assert world.run(partitions=frozenset({"p=a"})).reason is Reason.QUARANTINED
    assert world.run(partitions=frozenset({"p=a"}), force=True).outcome is OutcomeStatus.IMPROVED
    assert not world.history("p=a").quarantined


def test_rejected_commit_of_one_partition_does_not_stop_the_others() -> None:
    world = World()

    def first_only(batch: Batch) -> None:
        world.reject = Rejection.CONFLICT if batch.partitions == ("p=a",) else None

    world.before_commit = first_only
    found = world.run()
    assert [b.outcome for b in found.batches] == [OutcomeStatus.DEFERRED, OutcomeStatus.IMPROVED]
    assert found.outcome is OutcomeStatus.IMPROVED
    assert found.partitions[0] == ("p=a", OutcomeStatus.DEFERRED, Reason.CONFLICT)


def test_busy_writer_defers_the_work_again_and_again_without_a_person() -> None:
    world = World("a")
    world.reject = Rejection.CONFLICT
    for lost in range(6):
        found = world.run()
        assert (found.outcome, found.reason) == (OutcomeStatus.DEFERRED, Reason.CONFLICT)
        assert world.run().reason is Reason.BACK_OFF
        assert (world.history("p=a").ineffective, world.history("p=a").quarantined) == (lost + 1, False)
        world.clock.ms = world.history("p=a").not_before_ms
    world.reject = None
    assert world.run().outcome is OutcomeStatus.IMPROVED


def test_conflict_of_a_batch_leaves_the_other_batches_of_its_partition_and_counts_once() -> None:
    """On an unpartitioned table the first lost batch ended the run, and four lost batches were a quarantine."""
    policy = replace(POLICY, windows=replace(POLICY.windows, max_files_per_batch=6))
    world = World("a", policy)
    world.append("p=a", 6)
    world.reject = Rejection.CONFLICT
    found = world.run()
    assert [b.reason for b in found.batches] == [Reason.CONFLICT] * 2
    assert world.history("p=a").ineffective == 1
    world.clock.ms = world.history("p=a").not_before_ms
    lost: list[str] = []

    def first_only(batch: Batch) -> None:
        lost.append(batch.batch_id)
        world.reject = Rejection.CONFLICT if len(lost) == 1 else None

    world.before_commit = first_only
    found = world.run()
    assert [b.outcome for b in found.batches] == [OutcomeStatus.DEFERRED, OutcomeStatus.IMPROVED]
    assert world.history("p=a").ineffective == 0


def test_batch_that_lost_every_try_is_split_at_the_next_plan_and_grows_back() -> None:
    policy = replace(POLICY, windows=replace(POLICY.windows, max_partitions_per_batch=10))
    world = World("abcd", policy)
    sizes: list[int] = []
    world.before_commit = lambda batch: sizes.append(len(batch.partitions))

    world.reject = Rejection.CONFLICT
    world.run()
    assert sizes == [4]
    world.reject = None
    world.clock.ms = world.history("p=a").not_before_ms
    world.run()
    assert sizes == [4, 2, 2]
    for partition in "abcd":
        world.append(f"p={partition}", 6)
    world.run()
    assert sizes == [4, 2, 2, 4]


def test_write_that_fails_backs_off() -> None:
    world = World("a")

    def fails(_batch: Batch) -> None:
        raise OSError("disk full\nsecond line")

    world.before_write = fails
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, Reason.ERROR)
    assert found.batches[0].message == "OSError: disk full second line"
    assert world.history("p=a").ineffective == 1
    assert world.our_commits() == 0


def test_partition_that_fails_its_batch_fails_alone_in_the_next_run() -> None:
    world = World("abc", replace(POLICY, windows=WindowsPolicy()))
    written: list[tuple[str, ...]] = []

    def fails_for_b(batch: Batch) -> None:
        written.append(batch.partitions)
        if "p=b" in batch.partitions:
            raise OSError("b/3 cannot be read")

    world.before_write = fails_for_b
    assert world.run().outcome is OutcomeStatus.FAILED
    assert written == [("p=a", "p=b", "p=c")]
    assert [world.history(p).ineffective for p in ("p=a", "p=b", "p=c")] == [1, 1, 1]
    written.clear()
    world.clock.sleep(101)
    world.run()
    assert written == [("p=a",), ("p=b",), ("p=c",)]
    assert [len(world.files(p)) for p in ("p=a", "p=b", "p=c")] == [1, 6, 1]
    assert [world.history(p).ineffective for p in ("p=a", "p=b", "p=c")] == [0, 2, 0]
    assert world.rows() == 180


@pytest.mark.parametrize(
    "why",
    [
        EnvironmentFailedError("SdkClientException: Unable to load credentials."),
        RefusedError("ICM-125", "access is denied."),
    ],
)
def test_failure_of_the_environment_does_not_count_against_the_partition(why: Exception) -> None:
    world = World("a")

    def fails(_batch: Batch) -> None:
        raise why

    world.before_write = fails
    for _ in range(world.policy.retry.quarantine_after + 1):
        found = world.run()
        assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, Reason.ENVIRONMENT)
        assert found.batches[0].message == str(why)
    past = world.history("p=a")
    assert (past.ineffective, past.quarantined, past.reason) == (0, False, str(why))
    assert past.environment_failures == world.policy.retry.quarantine_after + 1
    world.before_write = lambda _batch: None
    assert world.run().outcome is OutcomeStatus.IMPROVED
    assert world.history("p=a") == PartitionHistory()


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "free space there, or raise the quota"),
        (errno.EDQUOT, "free space there, or raise the quota"),
        (errno.EROFS, "make the file system writable"),
        (errno.EIO, "check the disk of the file system, or name another folder for scratch files"),
        (errno.EFBIG, "raise the limit of the size of a file (ulimit -f), or use a file system"),
        (errno.EMFILE, "raise the limit of open files of this process (ulimit -n)"),
    ],
)
def test_file_system_that_fails_this_process_is_named_and_does_not_count_against_the_partition(
    monkeypatch: pytest.MonkeyPatch, number: int, fix: str
) -> None:
    world = World("a")
    context = world.context

    def fails(_batch: Batch) -> None:
        raise OSError(number, os.strerror(number))

    world.before_write = fails
    monkeypatch.setattr(world, "context", lambda p: changed(context(p), scratch_folders=("/proc",)))
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, Reason.ENVIRONMENT)
    message = found.batches[0].message
    assert message.startswith(f"ICM-176 OSError: [Errno {number}] {os.strerror(number)}. Free: ")
    assert f"/proc 0.0 of 0.0 MiB. Fix: {fix}" in message
    past = world.history("p=a")
    assert (past.ineffective, past.crashes, past.environment_failures, past.quarantined) == (0, 0, 1, False)


def test_commit_that_the_environment_fails_does_not_count_against_the_partition() -> None:
    world = World("a")
    world.reject = Rejection.ENVIRONMENT
    outcome = world.run()
    assert outcome.reason is Reason.ENVIRONMENT
    assert outcome.batches[0].message.startswith("ICM-133 ")
    past = world.history("p=a")
    assert (past.ineffective, past.crashes, past.environment_failures) == (0, 0, 1)


def test_second_failure_of_the_environment_in_a_row_stops_the_run() -> None:
    world = World("abcd")
    written: list[str] = []

    def fails(batch: Batch) -> None:
        written.extend(batch.partitions)
        if batch.partitions != ("p=b",):
            raise EnvironmentFailedError("UnknownHostException: s3.")

    world.before_write = fails
    found = world.run()
    assert written == ["p=a", "p=b", "p=c", "p=d"]
    assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, Reason.ENVIRONMENT)
    written.clear()
    world.run()
    assert written == ["p=a", "p=c"]
    world.before_write = lambda _batch: None
    assert world.run().outcome is OutcomeStatus.IMPROVED


@pytest.mark.parametrize("why", [RefusedError("ICM-103", "no Java found"), OSError("no jars")])
def test_engine_that_cannot_start_is_no_failure_of_a_partition(why: Exception) -> None:
    world = World("a")
    world.unfit = why
    for _ in range(5):
        with pytest.raises(type(why), match=r"no Java found|no jars"):
            world.run()
    assert world.history("p=a") == PartitionHistory()
    assert world.open_work() == (0, 1)
    world.unfit = None
    assert world.run().outcome is OutcomeStatus.IMPROVED


def test_engine_that_ran_out_of_memory_fails_with_its_code_and_reason() -> None:
    world = World("a")

    def fails(_batch: Batch) -> None:
        raise IcebergMaintError("ICM-124", "Spark ran out of memory.", "raise spark.driver.memory.")

    world.before_write = fails
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, Reason.MEMORY)
    assert found.batches[0].message == "ICM-124 Spark ran out of memory. Fix: raise spark.driver.memory."


def test_write_refused_for_equality_deletes_is_unsupported() -> None:
    world = World("a")

    def refuses(_batch: Batch) -> None:
        raise RefusedError("ICM-119", "equality deletes apply.", "wait.")

    world.before_write = refuses
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_KEY)


@pytest.mark.parametrize("code", ["ICM-120", "ICM-155", "ICM-173"])
def test_plan_whose_files_are_refused_is_unsupported_backs_off_and_leaves_other_operations_their_turn(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    why = RefusedError(code, "lake.db.t: a live file is refused.", "correct it.")

    def refuses(*_args: object) -> tuple[LiveFile, ...]:
        raise why

    monkeypatch.setattr(world.catalog, "live_files", refuses)
    operations = (Operation.REWRITE_DATA_FILES, Operation.REWRITE_MANIFESTS)
    request = Request("run-1", operations=operations)
    first, second = maintain(TABLE, request, world.context(Process()))
    assert (first.outcome, first.reason) == (OutcomeStatus.UNSUPPORTED, Reason.REFUSED)
    assert first.message == str(why)
    assert first.partitions == (
        ("p=a", OutcomeStatus.UNSUPPORTED, Reason.REFUSED),
        ("p=b", OutcomeStatus.UNSUPPORTED, Reason.REFUSED),
    )
    assert (second.operation, second.outcome) == (Operation.REWRITE_MANIFESTS, OutcomeStatus.NO_OP)
    assert [world.history(p).reason for p in ("p=a", "p=b")] == [str(why)] * 2
    faults = world.ledger.health.history(
        world.now.state.uuid, str(TABLE), Operation.REWRITE_DATA_FILES
    ).faults
    verdict = verdict_on(True, faults)
    assert (verdict.standing, verdict.code) == (Standing.REFUSED, code)
    (record,) = world.ledger.records.newest(str(TABLE), 10)
    assert record.outcome == first
    assert world.run().outcome is OutcomeStatus.NO_OP
    monkeypatch.undo()
    assert world.run(force=True).outcome is OutcomeStatus.IMPROVED
    assert world.history("p=a") == PartitionHistory()


def test_run_that_an_error_with_a_code_ends_is_recorded_with_code_and_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("a")

    def fails(*_args: object) -> tuple[LiveFile, ...]:
        raise IcebergMaintError("ICM-104", "the catalog does not answer.")

    monkeypatch.setattr(world.catalog, "live_files", fails)
    with pytest.raises(IcebergMaintError, match="ICM-104"):
        world.run()
    (record,) = world.ledger.records.newest(str(TABLE), 10)
    text = "ended by ICM-104 (the catalog does not answer): 0 of 1 partition done, the rest resumes"
    assert record.outcome.message == text


def test_unequal_proof_commits_nothing() -> None:
    world = World("a")
    world.write_result = lambda w: replace(w, proof=Proof("full", False, 60, 59, 0, detail="rows 60 ≠ 59"))
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, Reason.PROOF_MISMATCH)
    assert found.batches[0].wasted_bytes == 60
    assert world.our_commits() == 0


def test_unknown_commit_that_was_done_is_found_by_its_token() -> None:
    """The answer was lost; the table shows the commit, and the table is what counts."""
    world = World()
    rows = world.rows()
    world.unknown = "done"
    assert world.run().outcome is OutcomeStatus.IMPROVED
    check_healed(world, rows)


def test_unknown_commit_stops_the_run_and_is_settled_by_a_later_one() -> None:
    world = World()
    rows = world.rows()
    world.unknown = "lost"
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT)
    assert len(found.batches) == 1
    assert world.open_work()[0] == 1
    world.unknown = ""
    world.run()
    check_healed(world, rows)


def test_unknown_commit_that_lands_late_has_one_effect() -> None:
    """The zombie's swap succeeds after its process died: the next run finds the token."""
    world = World("a")
    rows = world.rows()
    with pytest.raises(Killed):
        world.run(Process(dies="before:swap"))
    (attempt,) = world.ledger.work.open_attempts(world.now.state.uuid)
    stored = world.ledger.work.open_batches(world.now.state.uuid, Operation.REWRITE_DATA_FILES)[0]
    replaced = [
        replace(world.now.live_files[0], path=f.path, size_bytes=f.size_bytes, record_count=f.record_count)
        for f in attempt.files or ()
    ]
    world.commit(stored.batch.paths(), replaced, {"iceberg-maint.token": attempt.token})
    world.expire_leases()
    world.run()
    assert (world.rows(), len(world.writes), world.open_work()) == (rows, 1, (0, 0))


def test_useless_commit_is_reported_and_backs_off() -> None:
    world = World("a")

    def useless(written: object) -> object:
        (one,) = written.files  # type: ignore[attr-defined]
        files = tuple(replace(one, path=f"{one.path}-{i}", record_count=10, size_bytes=10) for i in range(6))
        return replace(written, files=files)  # type: ignore[type-var]

    world.write_result = useless  # type: ignore[assignment]
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.COMMITTED, Reason.NO_EFFECT)
    assert world.history("p=a").ineffective == 1
    assert world.run().reason is Reason.BACK_OFF


def test_due_partition_that_cannot_gain_backs_off() -> None:
    """Its findings stay, so without a wait automation would ask for it at every tick."""
    world = World("a", policy_of(rewrite_policy(max_group_bytes=10)))
    found = world.run()
    assert (found.outcome, found.partitions) == (
        OutcomeStatus.NO_OP,
        (("p=a", OutcomeStatus.NO_OP, Reason.NO_GAIN),),
    )
    assert world.history("p=a").ineffective == 1
    assert world.run().reason is Reason.BACK_OFF
    assert world.writes == []


def test_force_rewrites_a_healthy_partition() -> None:
    world = World("a")
    world.run()
    found = world.run(partitions=frozenset({"p=a"}), force=True)
    assert (found.outcome, found.reason) == (OutcomeStatus.COMMITTED, Reason.FORCED)
    assert world.our_commits() == 2
    assert world.history("p=a").ineffective == 0


def test_equality_deletes_of_a_dropped_column_are_reported_unsupported_and_left_alone() -> None:
    world = World("a")
    world.commit((), [replace(delete("e", FileKind.EQUALITY_DELETES, seq=2), equality_ids=(99,))])
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_KEY)
    assert world.writes == []


def test_partition_the_table_cannot_have_is_refused() -> None:
    with pytest.raises(UnknownTableError, match="ICM-126"):
        World().run(partitions=frozenset({"q=a"}))


def test_partition_without_files_is_empty() -> None:
    found = World("a").run(partitions=frozenset({"p=z"}))
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.HEALTHY)
