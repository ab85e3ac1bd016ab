"""The engine: writes batches with Spark and commits them through the gate."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from iceberg_maint.core.commits.change import MetadataReader
from iceberg_maint.core.commits.intent import keeps_data_files
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.outcomes.environment import is_environment
from iceberg_maint.core.outcomes.outcome import CommitResult
from iceberg_maint.core.outcomes.proof import Fingerprint, Proof
from iceberg_maint.core.planning.memory import MemoryUse, Preflight
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
from iceberg_maint.ports.engine import (
    CommitContext,
    EnvironmentFailedError,
    MemoryExceededError,
    WorkProgress,
    Written,
    WrittenFile,
)
from iceberg_maint.spark.commit.expire_snapshots import commit_expiry
from iceberg_maint.spark.commit.rest_requirements import refusal
from iceberg_maint.spark.commit.retry import Backoff
from iceberg_maint.spark.commit.rewrite_files import commit_batch
from iceberg_maint.spark.commit.rewrite_manifests import commit_regrouping
from iceberg_maint.spark.deletes.anti_join import Marked, discard, mark
from iceberg_maint.spark.deletes.convert import Converted, convert
from iceberg_maint.spark.deletes.marked_rows import DeleteWork
from iceberg_maint.spark.deletes.merge_position_deletes import merge
from iceberg_maint.spark.deletes.preflight import check_keys, memory_of, preflight_of
from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge, all_lines, causes, connection_lost, one_line
from iceberg_maint.spark.jvm.content_files import content_file_from_json, content_json
from iceberg_maint.spark.jvm.functions import JavaFunctions
from iceberg_maint.spark.jvm.jobs import Jobs, new_job_group
from iceberg_maint.spark.proof import fingerprint
from iceberg_maint.spark.proof.row_proof import fingerprint_files
from iceberg_maint.spark.rewrite import bin_pack
from iceberg_maint.spark.rewrite.columnar.fingerprint import FINGERPRINT_ALGORITHM
from iceberg_maint.spark.rewrite.columnar.strategy import (
    ColumnarResult,
    NotColumnarError,
    fingerprint_bytes,
    is_columnar,
    native_instead,
    rewrite_groups,
)
from iceberg_maint.spark.scan import positions
from iceberg_maint.spark.scan.staging import (
    GroupTasks,
    equality_delete_files,
    load_planned_table,
    plan_tasks,
    position_delete_files,
)
from iceberg_maint.spark.scan.table import load_table_info
from iceberg_maint.spark.session.executor_memory import measured, ran_out
from iceberg_maint.spark.session.session import keeping_sigint, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMIT_BACKOFF = Backoff(0.1, 5.0, random.random, time.sleep)
"""Waits between tries of one commit: as Iceberg's `commit.retry.min-wait-ms`, at most five seconds."""


_Identity = tuple[str, int | None]
"""Path and content offset of a file. Deletion vectors may share a path."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _BatchFiles:
    """Java objects of one written batch, kept from its write to its commit: the data files that it
    replaces, the delete files of the plan, and the files that it adds. The commit removes some of the
    delete files."""

    sources: Sequence[Any]
    deletes: Sequence[Any]
    outputs: Mapping[_Identity, Any]


class SparkEngine:
    """`ports.Engine` on one Spark session, which starts with the first batch.

    `session` returns the session of the process. `reader_of` returns, for a table's full name, the reader
    through which the gate reads its manifests.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        reader_of: Callable[[str], MetadataReader],
        backoff: Backoff = COMMIT_BACKOFF,
    ) -> None:
        self._session = session
        self._reader_of = reader_of
        self._backoff = backoff
        self._bridge_lock = threading.Lock()
        self._bridge: Bridge | None = None
        self._versions: Mapping[str, str] = {}
        self._jobs = Jobs()
        self._batch_files: dict[str, _BatchFiles] = {}
        self._step, self._step_started = "", time.monotonic()

    def versions(self) -> Mapping[str, str]:
        """Returns the versions of Spark, Iceberg, Scala and Java, as read when the JVM started. Empty before.

        They are kept because a run is recorded even if its JVM has died, or an interrupt has left an answer
        of the JVM half read.
        """
        return self._versions

    def start(self) -> None:
        """Starts the session. Raises what the start raises, and RuntimeError if its JVM has died: every
        batch would fail on it, through no fault of the batch."""
        self._enter("starting Spark" if self._bridge is None else "preparing")
        bridge = self._start_bridge()
        try:
            bridge.jvm.java.lang.System.nanoTime()
        except Exception as why:
            if not connection_lost(why):
                raise
            raise RuntimeError(f"Spark's JVM has died or does not answer: {one_line(why)}") from why

    def write(self, batch: Batch, policy: Policy) -> Written:
        """Writes and proves the files that the batch commits.

        A rewrite writes the replacement of every group, up to `max_concurrent_groups` at once. A conversion
        writes the positions of the rows that its equality deletes delete. A merge writes the positions of
        its position deletes.

        Raises StaleBatchError or RefusedError as `plan_tasks` and `rewrite_group` do, ICM-119 for
        keys that cannot be compared, ICM-124 if applying equality deletes needs more than the declared
        memory or scratch space, EnvironmentFailedError for credentials, connections or classes that are
        missing, or what Spark raised. The orphan pass removes files that were written by then.
        """
        try:
            return self._write(batch, policy)
        except JVM_ERRORS as why:
            if not is_environment(causes(why)):
                raise
            raise EnvironmentFailedError(f"{batch.table}: {all_lines(why)}.") from why

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
        check_keys(bridge, java_table, batch)
        table = load_table_info(bridge, java_table, batch.table, batch.snapshot_id)
        deletes = equality_delete_files(bridge, java_table, batch)
        preflight = preflight_of(bridge, table, batch, policy.equality_deletes, tuple(deletes.values()))
        footers = policy.rewrite_data_files.proof is ProofLevel.FOOTER
        planned = plan_tasks(
            bridge, java_table, batch, column_stats=footers and not keeps_data_files(batch.work)
        )
        position_deletes = position_delete_files(bridge, java_table, batch)
        work = DeleteWork(table, batch, planned, deletes, preflight)
        self._enter("writing")
        match batch_work := file_work(batch.work):
            case ConvertEqualityDeletes():
                files, written = self._convert(bridge, work)
            case RewritePositionDeleteFiles():
                files, written = self._merge(
                    bridge, work, position_deletes, policy.rewrite_position_delete_files.proof
                )
            case RewriteDataFiles():
                files, written = self._rewrite(bridge, work, policy.rewrite_data_files)
            case _:
                assert_never(batch_work)
        if written.proof.equal:
            outputs = {_identity(f): f for f in files}
            delete_files = {_identity(d): d for d in deletes.values()} | position_deletes
            self._batch_files[batch.batch_id] = _batch_files(bridge, batch, planned, delete_files, outputs)
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
        batch_files = _restore_batch_files(bridge, batch, java_table, written)
        files = list(batch_files.outputs.values())

        def check_files(files: Sequence[Any]) -> bool:
            io = java_table.io()
            if any(io.newInputFile(f.location()).getLength() != f.fileSizeInBytes() for f in files):
                return False
            if keeps_data_files(batch.work):
                rows = positions.fingerprint(positions.read_back(bridge, java_table, files))
            elif written.proof.fingerprint is None:
                return True
            elif written.proof.fingerprint.startswith(f"{FINGERPRINT_ALGORITHM}:"):
                rows = fingerprint_bytes(bridge, written.files)
            else:
                table = load_table_info(bridge, java_table, batch.table, batch.snapshot_id)
                rows = fingerprint_files(bridge, table, bridge.list(files))
            return rows.text() == written.proof.fingerprint

        items = [(_description(batch, "reused files"), files)]
        [is_proven] = self._jobs.run(bridge, new_job_group(), check_files, items, 1)
        if is_proven:
            self._batch_files[batch.batch_id] = batch_files
        return is_proven

    def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        """Commits through the gate. Files of another process are committed from their content JSON."""
        self._enter("committing")
        bridge = self._activated_bridge()
        match batch.work:
            case ExpireSnapshots() as work:
                return commit_expiry(bridge, batch, work, context, backoff=self._backoff)
            case RewriteManifests() as work:
                reader = self._reader_of(batch.table)
                return commit_regrouping(
                    bridge, batch, work, written, context, reader=reader, backoff=self._backoff
                )
            case RewriteDataFiles() | ConvertEqualityDeletes() | RewritePositionDeleteFiles():
                return self._commit_files(bridge, batch, written, context)
            case RemoveOrphanFiles():
                raise ValueError("an orphan pass commits nothing")
            case _:
                assert_never(batch.work)

    def _commit_files(
        self, bridge: Bridge, batch: Batch, written: Written, context: CommitContext
    ) -> CommitResult:
        batch_files = self._batch_files.pop(batch.batch_id, None)
        if batch_files is None or set(batch_files.outputs) != {
            (f.path, f.content_offset) for f in written.files
        }:
            batch_files = _restore_batch_files(bridge, batch, load_planned_table(bridge, batch), written)
        return commit_batch(
            bridge,
            batch,
            written,
            context,
            sources=batch_files.sources,
            outputs=tuple(batch_files.outputs.values()),
            deletes=batch_files.deletes,
            reader=self._reader_of(batch.table),
            backoff=self._backoff,
        )

    def cancel(self) -> None:
        """Cancels the running jobs. Safe in a signal handler."""
        if self._bridge is not None:
            self._jobs.cancel(self._bridge)

    def _start_bridge(self) -> Bridge:
        with self._bridge_lock:
            if self._bridge is None:
                with keeping_sigint():
                    bridge = Bridge(self._session())
                self._versions = versions(bridge.spark)
                self._bridge = bridge
            return self._bridge

    def _activated_bridge(self) -> Bridge:
        """Returns the bridge, and makes its session the session of this thread: Iceberg resolves catalogs in
        that one."""
        bridge = self._start_bridge()
        bridge.activate()
        return bridge

    def _convert(self, bridge: Bridge, work: DeleteWork) -> tuple[list[Any], Written]:
        converted, memory = self._apply_deletes(bridge, work, convert)
        return _written_deletes(bridge, work, converted, memory)

    def _merge(
        self, bridge: Bridge, work: DeleteWork, deletes: Mapping[_Identity, Any], proof: ProofLevel
    ) -> tuple[list[Any], Written]:
        def run(work: DeleteWork) -> Converted:
            return merge(bridge, work.table, work.batch, work.planned, deletes, proof)

        items = [(_description(work.batch, "position deletes"), work)]
        [merged] = self._jobs.run(bridge, new_job_group(), run, items, 1)
        return _written_deletes(bridge, work, merged, None)

    def _rewrite(
        self, bridge: Bridge, work: DeleteWork, policy: RewriteDataFilesPolicy
    ) -> tuple[list[Any], Written]:
        marked, memory, note = None, None, ""
        if work.batch.equality_deletes:
            marked, memory = self._apply_deletes(bridge, work, mark)
            work = replace(work, planned=marked.planned)
        scratch_bytes = sum(marked.scratch.values()) if marked else 0
        try:
            if is_columnar(work.batch, policy):
                try:
                    files, written, proof = self._rewrite_columnar(bridge, work, policy, marked)
                    return files, Written(written, proof, memory, scratch_bytes)
                except NotColumnarError as why:
                    note = native_instead(work.batch, work.table, str(why))
            files, written, proof = self._rewrite_native(bridge, work, policy, marked)
            return files, Written(written, proof, memory, scratch_bytes, note=note)
        finally:
            if marked is not None:
                discard(work, marked)

    def _rewrite_native(
        self, bridge: Bridge, work: DeleteWork, policy: RewriteDataFilesPolicy, marked: Marked | None
    ) -> tuple[list[Any], tuple[WrittenFile, ...], Proof]:
        table, batch = work.table, work.batch

        def rewrite(group_tasks: GroupTasks) -> bin_pack.GroupResult:
            return bin_pack.rewrite_group(bridge, table, batch, group_tasks, policy)

        items = [(_description(batch, p.group.partition), p) for p in work.planned]
        results = self._jobs.run(bridge, new_job_group(), rewrite, items, policy.max_concurrent_groups)
        files = [(number, f) for number, r in enumerate(results) for f in bridge.iterate(r.files)]
        written = _written_files(bridge, work, files)
        parts = [r.before for r in results if r.before is not None]
        rows = fingerprint.total(parts) if policy.proof is ProofLevel.FULL else None
        return [f for _, f in files], written, _proof(results, written, policy.proof, rows, marked)

    def _rewrite_columnar(
        self, bridge: Bridge, work: DeleteWork, policy: RewriteDataFilesPolicy, marked: Marked | None
    ) -> tuple[list[Any], tuple[WrittenFile, ...], Proof]:
        """Raises NotColumnarError if the native strategy must write the batch."""
        batch = work.batch
        deletes = (*batch.applied_deletes, *(marked.vectors if marked else ()))

        def rewrite(planned: Sequence[GroupTasks]) -> ColumnarResult:
            return rewrite_groups(bridge, work.table, batch, planned, deletes, policy)

        items = [(_description(batch, "columnar"), work.planned)]
        [result] = self._jobs.run(bridge, new_job_group(), rewrite, items, 1)
        written = tuple(
            _written_file(text, json.loads(text), group)
            for text, group in zip(result.contents, result.groups, strict=True)
        )
        proof = _proof([result], written, policy.proof, result.fingerprint, marked)
        return list(result.files), written, proof

    def _apply_deletes(
        self, bridge: Bridge, work: DeleteWork, apply: Callable[[Bridge, DeleteWork], _Result]
    ) -> tuple[_Result, MemoryUse | None]:
        """Applies equality deletes with `apply` and measures the memory used."""
        job_group = new_job_group()
        items = [(_description(work.batch, "equality deletes"), work)]
        with measured(bridge, job_group) as peak_bytes:
            try:
                [result] = self._jobs.run(bridge, job_group, lambda w: apply(bridge, w), items, 1)
            except Exception as why:
                if work.preflight is None or not ran_out(why):
                    raise
                raise _exceeded(work, work.preflight, peak_bytes, why) from why
            return result, None if work.preflight is None else _use(work, work.preflight, peak_bytes())


def weak_requirements(spark: SparkSession, table: str) -> str | None:
    """Returns why the table's catalog does not take the requirements of our commits. None if it takes them or compares
    the base of a commit itself. Nothing is changed. Raises what the catalog raises."""
    bridge = Bridge(spark)
    bridge.activate()
    return refusal(bridge, bridge.load_table(table).operations())


def _use(work: DeleteWork, preflight: Preflight, peak_bytes: int) -> MemoryUse:
    need = memory_of(work.batch)
    correction = need.correction if need else 1.0
    return MemoryUse(
        preflight.estimated_bytes, peak_bytes, preflight.partitions, preflight.passes, correction
    )


def _exceeded(
    work: DeleteWork, preflight: Preflight, peak_bytes: Callable[[], int], why: Exception
) -> MemoryExceededError:
    peak = 0
    with suppress(*JVM_ERRORS, OSError, EOFError):
        peak = peak_bytes()
    return MemoryExceededError(
        f"{work.batch.table}: Spark ran out of memory while it applied {len(work.batch.equality_deletes)} "
        f"equality delete files, for which {preflight.estimated_bytes} bytes were estimated: {one_line(why)}",
        replace(_use(work, preflight, peak), exceeded=True),
    )


def _written_deletes(
    bridge: Bridge, work: DeleteWork, converted: Converted, memory: MemoryUse | None
) -> tuple[list[Any], Written]:
    """Returns Java DeleteFiles, each of one data file, and their description."""
    group_of = {f.path: number for number, g in enumerate(work.batch.groups) for f in g.files}
    files = [(group_of[str(f.referencedDataFile())], f) for f in converted.files]
    return [f for _, f in files], Written(_written_files(bridge, work, files), converted.proof, memory)


def _description(batch: Batch, what: str) -> str:
    return f"{batch.table} {what} (batch {batch.batch_id})"


def _identity(file: Any) -> _Identity:
    offset = file.contentOffset() if str(file.content().toString()) != "DATA" else None
    return str(file.location()), None if offset is None else int(offset)


def _written_files(
    bridge: Bridge, work: DeleteWork, files: Sequence[tuple[int, Any]]
) -> tuple[WrittenFile, ...]:
    """Returns the Java files, each given with the number of its group, as values."""
    texts = [(number, content_json(bridge, work.table.java, f)) for number, f in files]
    return tuple(_written_file(text, json.loads(text), number) for number, text in texts)


def _written_file(text: str, content: Mapping[str, Any], group: int) -> WrittenFile:
    offset = content.get("content-offset")
    kind = FileKind.DATA
    if content["content"].upper() != "DATA":
        kind = FileKind.POSITION_DELETES if offset is None else FileKind.DELETION_VECTOR
    return WrittenFile(
        path=content["file-path"],
        size_bytes=content["file-size-in-bytes" if offset is None else "content-size-in-bytes"],
        record_count=content["record-count"],
        spec_id=content["spec-id"],
        group=group,
        content=text,
        kind=kind,
        content_offset=offset,
        referenced_data_file=content.get("referenced-data-file"),
    )


def _restore_batch_files(bridge: Bridge, batch: Batch, java_table: Any, written: Written) -> _BatchFiles:
    planned = plan_tasks(bridge, java_table, batch)
    outputs = {
        (f.path, f.content_offset): content_file_from_json(bridge, java_table, f.content)
        for f in written.files
    }
    deletes = equality_delete_files(bridge, java_table, batch)
    delete_files = {_identity(d): d for d in deletes.values()} | position_delete_files(
        bridge, java_table, batch
    )
    return _batch_files(bridge, batch, planned, delete_files, outputs)


def _batch_files(
    bridge: Bridge,
    batch: Batch,
    planned: Sequence[GroupTasks],
    delete_files: Mapping[_Identity, Any],
    outputs: Mapping[_Identity, Any],
) -> _BatchFiles:
    """Returns the files of the plan, each once, with the given delete files and those of its tasks."""
    java_functions = bridge.once(JavaFunctions)
    sources = bridge.list(())
    deletes: dict[_Identity, Any] = dict(delete_files)
    for group_tasks in planned:
        if not keeps_data_files(batch.work):
            files = group_tasks.tasks.stream().map(java_functions.task_file)
            sources.addAll(java_functions.to_list(files))
        if any(f.delete_files for f in group_tasks.group.files):
            task_deletes = group_tasks.tasks.stream().flatMap(java_functions.task_deletes).distinct()
            others = java_functions.to_list(task_deletes.filter(java_functions.is_equality_delete.negate()))
            deletes |= {_identity(d): d for d in bridge.iterate(others)}
    return _BatchFiles(sources, list(deletes.values()), outputs)


def _proof(
    results: Sequence[bin_pack.GroupResult | ColumnarResult],
    written: Sequence[WrittenFile],
    level: ProofLevel,
    rows: Fingerprint | None,
    marked: Marked | None,
) -> Proof:
    read = sum(r.read_records for r in results)
    kept = sum(r.kept_records for r in results)
    out = sum(f.record_count for f in written)
    detail = marked.difference if marked else ""
    detail = detail or next((r.difference for r in results if r.difference), "")
    if not detail and kept != out:
        detail = f"{kept} rows were read to be kept, {out} were written"
    if not detail and marked and read - kept < marked.marked_records:
        detail = f"{marked.marked_records} rows are marked deleted, {read - kept} were left out"
    return Proof(
        level=level.value,
        equal=not detail,
        input_records=read,
        output_records=out,
        removed_records=read - kept,
        fingerprint=None if rows is None else rows.text(),
        detail=detail,
    )
