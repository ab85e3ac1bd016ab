"""The engine: writes batches with Spark and commits them through the gate."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from signal import SIGKILL, SIGTERM
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, assert_never

from iceberg_maint.core.commits.change import MetadataReader
from iceberg_maint.core.commits.intent import keeps_data_files
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.failures import JVM_DIED, is_damaged_file
from iceberg_maint.core.outcomes.outcome import CommitResult, Rejection
from iceberg_maint.core.outcomes.verification import FILES_ALGORITHM
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    ExpireSnapshots,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
    file_work,
)
from iceberg_maint.core.policy.data import Policy, ProofLevel, RewriteDataFilesPolicy
from iceberg_maint.engines.spark.commit.housekeeping import commit_expiry, commit_regrouping
from iceberg_maint.engines.spark.commit.retry import Backoff, TableAccess, rejected
from iceberg_maint.engines.spark.commit.rewrite_files import BatchFiles, commit_batch
from iceberg_maint.engines.spark.deletes.deleted_rows import DeleteWork
from iceberg_maint.engines.spark.deletes.keys import check_keys, preflight_of
from iceberg_maint.engines.spark.health.measure import SparkHealthSource, check_measurable
from iceberg_maint.engines.spark.jvm.bridge import (
    Bridge,
    CheckWrites,
    PlainJvm,
    bridge_of,
    check_written_locations,
)
from iceberg_maint.engines.spark.jvm.java_errors import (
    DEAD_JVM_ERRORS,
    JVM_ERRORS,
    all_lines,
    causes,
    connection_lost,
    failed_by_environment,
    first_cause,
    one_line,
)
from iceberg_maint.engines.spark.jvm.jobs import Jobs
from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import NotColumnarError
from iceberg_maint.engines.spark.rewrite.columnar.strategy import fingerprint_bytes
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint.engines.spark.scan.row_proof import fingerprint_files
from iceberg_maint.engines.spark.scan.scan import Table, load_table_info
from iceberg_maint.engines.spark.scan.staging import load_planned_table, plan_tasks, planned_delete_files
from iceberg_maint.engines.spark.session.driver_jvm import END_SECONDS, drop_ended_jvm
from iceberg_maint.engines.spark.session.session import keeping_sigint, versions
from iceberg_maint.engines.spark.write_deletes import (
    files_of_batch,
    job_description,
    restore_batch_files,
    write_conversion,
    write_merge,
)
from iceberg_maint.engines.spark.write_failures import (
    file_with_unreadable_bounds,
    unreadable_file,
    unreadable_vector,
    write_failure,
)
from iceberg_maint.engines.spark.write_rows import write_rows
from iceberg_maint.errors import RefusedError, UnreadableTableError
from iceberg_maint.ports.engine import (
    CommitContext,
    EnvironmentFailedError,
    WorkProgress,
    Written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMIT_BACKOFF = Backoff(0.1, 5.0, random.random, time.sleep)
"""Waits between tries of one commit: as Iceberg's `commit.retry.min-wait-ms`, at most five seconds."""


class SparkEngine:
    """`ports.Engine` on one JVM, which starts with the first batch, and its Spark session, which starts when work needs it.

    `driver` returns the session of the process, or its JVM. `reader_of` returns, for a table's full name, the reader
    through which the gate reads its manifests. `take_calls` takes calls on a table from its catalog's budget.
    `check_writes` is called with a table that was just loaded to write its files or to commit; None if every location is
    approved.
    """

    def __init__(
        self,
        driver: Callable[[], SparkSession | PlainJvm],
        reader_of: Callable[[str], MetadataReader],
        backoff: Backoff = COMMIT_BACKOFF,
        take_calls: Callable[[str, int], None] | None = None,
        check_writes: CheckWrites | None = None,
    ) -> None:
        self._driver = driver
        self._reader_of = reader_of
        self._backoff = backoff
        self._take_calls = take_calls
        self._check_writes = check_writes
        self._bridge_lock = threading.Lock()
        self._bridge: Bridge | None = None
        self._versions: Mapping[str, str] = {}
        self._jobs = Jobs()
        self._batch_files: dict[str, BatchFiles] = {}
        self._step, self._step_started = "", time.monotonic()

    def versions(self) -> Mapping[str, str]:
        """Returns the versions of Spark, Iceberg, Scala and Java, as read when the JVM started. Empty before. Spark's says
        whether its session has not started.

        They are kept because a run is recorded even if its JVM has died, or an interrupt has left an answer
        of the JVM half read.
        """
        if self._bridge is None or self._bridge.has_spark:
            return self._versions
        return {**self._versions, "spark": f"{self._versions['spark']}, not started"}

    def start(self) -> None:
        """Starts the JVM, and another one if it has died. Raises what the start raises, EnvironmentFailedError ICM-175 for a
        JVM that does not answer, or one of another program."""
        self._enter("starting Spark" if self._bridge is None else "preparing")
        if _answers(self._start_bridge()):
            return
        drop_ended_jvm()
        self._batch_files.clear()
        self._bridge = None
        try:
            self._start_bridge()
        except Exception as why:
            if not connection_lost(why):
                raise
            raise EnvironmentFailedError(f"{one_line(why)}.") from why

    def write(self, batch: Batch, policy: Policy) -> Written:
        """Writes and proves the files that the batch commits.

        A rewrite writes the replacement of every group, up to `max_concurrent_groups` at once. A conversion
        writes the positions of the rows that its equality deletes delete. A merge writes the positions of
        its position deletes.

        Raises StaleBatchError or RefusedError as `plan_tasks` and `rewrite_group` do, ICM-101 for a missing or damaged file, ICM-119 for
        keys that cannot be compared, ICM-124 if applying equality deletes needs more than the declared
        memory or scratch space, and IcebergMaintError ICM-124 if Spark ran out of memory, ICM-135 for files that Iceberg cannot
        read, ICM-183 for a path that the store does not take, EnvironmentFailedError for credentials, connections or classes that are missing, EngineFailedError for everything
        else that Spark raises. The orphan scan removes files that were written by then.
        """
        try:
            return self._write(batch, policy)
        except (*JVM_ERRORS, ConnectionError, EOFError) as why:
            if JVM_DIED in (cause := first_cause(why)) and self._is_jvm_killed():
                raise EnvironmentFailedError(f"{batch.table}: {cause}.") from why
            if not isinstance(why, JVM_ERRORS):
                raise
            finders = (unreadable_file, file_with_unreadable_bounds, unreadable_vector)
            searches = (partial(self._find, batch, f) for f in finders)
            raise write_failure(batch, why, *searches) from why

    def _find(self, batch: Batch, search: Callable[[Bridge, Table, Batch], str]) -> str:
        """Returns the file that this search finds, "" if none is found."""
        self._enter("searching for the file that cannot be read")
        path = ""
        with suppress(*DEAD_JVM_ERRORS):
            bridge = self._activated_bridge()
            java_table = load_planned_table(bridge, batch)
            table = load_table_info(bridge, java_table, batch.table, batch.snapshot_id)
            find = partial(search, bridge, table, batch)
            path = self._jobs.run_one(bridge, job_description(batch, "a file that cannot be read"), find)
        return path

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        """Measures the pinned snapshot by Iceberg's metadata tables. Another thread may write a batch at the same time, whose
        progress stays the one that is shown.

        Raises RefusedError ICM-178, UnreadableTableError ICM-101, EnvironmentFailedError for credentials, connections
        or classes that are missing.
        """
        try:
            bridge = self._activated_bridge()
            check_measurable(bridge, state)
            return SparkHealthSource(bridge).measure(state, policy)
        except JVM_ERRORS as why:
            message = f"{state.table}: Spark cannot measure it: {all_lines(why)}."
            if failed_by_environment(why):
                raise EnvironmentFailedError(message) from why
            if is_damaged_file(causes(why)):
                raise UnreadableTableError("ICM-101", message, "correct what the message names.") from why
            raise RefusedError("ICM-178", message, "correct what the message names.") from why

    def progress(self) -> WorkProgress:
        """Returns the current step, and the figures that Spark has of its jobs."""
        bridge = self._bridge
        at_step = WorkProgress(self._step, round(time.monotonic() - self._step_started, 1))
        return at_step if bridge is None else self._jobs.progress(bridge, at_step)

    def _enter(self, step: str) -> None:
        """Notes the step for its progress."""
        self._step, self._step_started = step, time.monotonic()

    def _write(self, batch: Batch, policy: Policy) -> Written:
        self._enter("preparing")
        bridge = self._activated_bridge()
        java_table = load_planned_table(bridge, batch)
        # The properties may have changed since the plan.
        check_written_locations(bridge, self._check_writes, batch.table, java_table)
        check_keys(bridge, java_table, batch)
        table = load_table_info(bridge, java_table, batch.table, batch.snapshot_id)
        deletes = planned_delete_files(bridge, java_table, batch, batch.equality_deletes)
        preflight = preflight_of(bridge, table, batch, policy.equality_deletes, deletes.java)
        footers = policy.rewrite_data_files.proof is ProofLevel.FOOTER
        planned = plan_tasks(
            bridge, java_table, batch, column_stats=footers and not keeps_data_files(batch.work)
        )
        position_deletes = planned_delete_files(bridge, java_table, batch, batch.position_deletes)
        work = DeleteWork(table, batch, planned, deletes, preflight)
        self._enter("writing")
        match batch_work := file_work(batch.work):
            case ConvertEqualityDeletes():
                files, written = write_conversion(bridge, self._jobs, work, policy)
            case RewritePositionDeleteFiles():
                files, written = write_merge(bridge, self._jobs, work, position_deletes)
            case RewriteDataFiles():
                files, written = write_rows(bridge, self._jobs, work, policy)
            case _:
                assert_never(batch_work)
        if written.proof.equal:
            outputs = {(w.path, w.content_offset): f for w, f in zip(written.files, files, strict=True)}
            delete_files = deletes.with_others(bridge, position_deletes)
            self._batch_files[batch.batch_id] = files_of_batch(bridge, batch, planned, delete_files, outputs)
        return written

    def reuse_files(self, batch: Batch, written: Written) -> bool:
        """Reads the files of another process again, with Iceberg's readers. Returns whether they have their
        sizes, and whether their rows or positions have the fingerprint of their proof. A proof at level
        `footer` has no fingerprint, so only the sizes are compared.

        Raises what `load_planned_table` and `plan_tasks` raise, and what Spark raises for a file that is
        missing or damaged.
        """
        self._enter("reading the files of an earlier attempt")
        bridge = self._activated_bridge()
        java_table = load_planned_table(bridge, batch)
        batch_files = restore_batch_files(bridge, batch, java_table, written)
        files = list(batch_files.outputs.values())

        def check_files() -> bool:
            io = java_table.io()
            if any(io.newInputFile(f.location()).getLength() != f.fileSizeInBytes() for f in files):
                return False
            if keeps_data_files(batch.work):
                rows = positions.fingerprint(positions.read_back(bridge, java_table, files))
            elif written.proof.fingerprint is None:
                return True
            elif written.proof.fingerprint.startswith(f"{FILES_ALGORITHM}:"):
                try:
                    rows = fingerprint_bytes(bridge, java_table, written.files)
                except NotColumnarError:
                    return False
            else:
                table = load_table_info(bridge, java_table, batch.table, batch.snapshot_id)
                rows = fingerprint_files(bridge, table, bridge.list(files))
            return rows.text() == written.proof.fingerprint

        is_proven = self._jobs.run_one(bridge, job_description(batch, "reused files"), check_files)
        if is_proven:
            self._batch_files[batch.batch_id] = batch_files
        return is_proven

    def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        """Commits through the gate. Files of another process are committed from their content JSON."""
        self._enter("committing")
        bases: list[int] = []

        def record_try(base_snapshot_id: int, metadata_location: str) -> None:
            bases.append(base_snapshot_id)
            context.record_try(base_snapshot_id, metadata_location)

        try:
            return self._commit(batch, written, replace(context, record_try=record_try))
        except (*JVM_ERRORS, ConnectionError, EOFError) as why:
            if bases:
                # The swap may have happened. The attempt stays open, and is settled from the table.
                raise
            kind = Rejection.ENVIRONMENT if failed_by_environment(why) else Rejection.ERROR
            return rejected(kind, one_line(why), 0)

    def _commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        bridge = self._activated_bridge()
        access = TableAccess(
            bridge, self._reader_of(batch.table), self._backoff, check_writes=self._check_writes
        )
        match batch.work:
            case ExpireSnapshots() as work:
                return commit_expiry(access, batch, work, context)
            case RewriteManifests() as work:
                return commit_regrouping(access, batch, work, written, context)
            case RewriteDataFiles() | ConvertEqualityDeletes() | RewritePositionDeleteFiles():
                files = self._batch_files.pop(batch.batch_id, None)
                if files is None or set(files.outputs) != {(f.path, f.content_offset) for f in written.files}:
                    files = restore_batch_files(bridge, batch, load_planned_table(bridge, batch), written)
                return commit_batch(access, batch, written, context, files)
            case RemoveOrphanFiles():
                raise ValueError("an orphan scan commits nothing")
            case _:
                assert_never(batch.work)

    def _is_jvm_killed(self) -> bool:
        """Whether a JVM that has died was killed, or had no Spark: then no rows were in it that could take its memory."""
        process = None if self._bridge is None else getattr(self._bridge.gateway, "proc", None)
        with suppress(TimeoutExpired):
            if process is not None and process.wait(END_SECONDS) in (-SIGKILL, -SIGTERM):
                return True
        return self._bridge is not None and not self._bridge.has_spark

    def abandon_calls(self) -> None:
        """Closes this thread's connection to the JVM, which may hold half an answer. The next call opens another."""
        self._batch_files.clear()
        if self._bridge is not None:
            self._bridge.abandon_calls()

    def cancel(self) -> None:
        """Cancels the running jobs. Safe in a signal handler."""
        if self._bridge is not None:
            self._jobs.cancel(self._bridge)

    def _start_bridge(self) -> Bridge:
        with self._bridge_lock:
            if self._bridge is None:
                with keeping_sigint():
                    driver = self._driver()
                    bridge = bridge_of(driver)
                if self._take_calls is not None:
                    bridge.take_calls = self._take_calls
                self._versions = versions(driver)
                self._bridge = bridge
            return self._bridge

    def _activated_bridge(self) -> Bridge:
        """Returns the bridge, and makes its session the session of this thread: Iceberg resolves catalogs in
        that one."""
        bridge = self._start_bridge()
        bridge.activate()
        return bridge


def _answers(bridge: Bridge) -> bool:
    try:
        bridge.jvm.java.lang.System.nanoTime()
    except Exception as why:
        if not connection_lost(why):
            raise
        return False
    return True
