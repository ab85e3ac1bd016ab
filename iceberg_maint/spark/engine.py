"""The engine: writes batches with Spark and commits them through the gate."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from iceberg_maint.core.change import MetadataReader
from iceberg_maint.core.outcome import CommitResult
from iceberg_maint.core.plan import Batch
from iceberg_maint.core.policy import ProofLevel, RewriteDataFilesPolicy
from iceberg_maint.core.proof import Proof
from iceberg_maint.ports import Ticket, Written, WrittenFile
from iceberg_maint.spark import fingerprint, native
from iceberg_maint.spark.bridge import Bridge, connection_lost, one_line
from iceberg_maint.spark.commit import Pause, commit_batch
from iceberg_maint.spark.session import keeping_sigint
from iceberg_maint.spark.staging import GroupTasks, load_planned_table, plan_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMIT_PAUSE = Pause(0.1, 5.0, random.random, time.sleep)
"""Between tries of one commit: as Iceberg's `commit.retry.min-wait-ms`, at most five seconds."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Java handles of one written batch, kept from its write to its commit."""

    sources: Sequence[Any]
    deletes: Sequence[Any]
    outputs: Mapping[str, Any]


class SparkEngine:
    """`ports.Engine` on one Spark session, which starts with the first batch.

    `session` gives the process's session; `reader_of` gives for a table's full name the reader
    with which the gate looks at its manifests.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        reader_of: Callable[[str], MetadataReader],
        pause: Pause = COMMIT_PAUSE,
    ) -> None:
        self._session = session
        self._reader_of = reader_of
        self._pause = pause
        self._bridge_lock = threading.Lock()
        self._bridge: Bridge | None = None
        self._job_groups: set[str] = set()
        self._prepared: dict[str, _Prepared] = {}

    def versions(self) -> Mapping[str, str]:
        """Versions of Spark, Iceberg, Scala and Java, asked of the JVM; nothing before it runs."""
        from iceberg_maint.spark.session import versions

        return {} if self._bridge is None else versions(self._bridge.spark)

    def start(self) -> None:
        """Starts the session. Raises what starting it raises, RuntimeError when its JVM has died:
        batches started on that would all fail, and none of them is to blame."""
        bridge = self._started()
        try:
            bridge.jvm.java.lang.System.nanoTime()
        except Exception as why:
            if not connection_lost(why):
                raise
            raise RuntimeError(f"Spark's JVM has died or does not answer: {one_line(why)}") from why

    def write(self, batch: Batch, policy: RewriteDataFilesPolicy) -> Written:
        """Writes and proves the replacement of every group, up to `max_concurrent_groups` at once.

        Raises StaleBatchError or RefusedError as `plan_tasks` and `rewrite_group` do, or what
        Spark raised; what other groups have written by then is left to the orphan pass.
        """
        bridge = self._started()
        java_table = load_planned_table(bridge, batch)
        footers = policy.proof is ProofLevel.FOOTER
        planned = plan_tasks(bridge, java_table, batch, column_stats=footers)
        table = native.describe(bridge, java_table, batch.table, batch.snapshot_id)
        results = self._run(bridge, table, batch, planned, policy)
        written: list[WrittenFile] = []
        outputs: dict[str, Any] = {}
        for number, result in enumerate(results):
            for file in bridge.iterate(result.files):
                path = str(file.location())
                outputs[path] = file
                written.append(
                    WrittenFile(
                        path=path,
                        size_bytes=int(file.fileSizeInBytes()),
                        record_count=int(file.recordCount()),
                        spec_id=int(file.specId()),
                        group=number,
                        content=native.content_json(bridge, java_table, file),
                    )
                )
        proof = _proof(results, written, policy.proof)
        if proof.equal:
            sources, deletes = _sources(bridge, planned)
            self._prepared[batch.batch_id] = _Prepared(sources, deletes, outputs)
        return Written(tuple(written), proof)

    def commit(self, batch: Batch, written: Written, ticket: Ticket) -> CommitResult:
        """Commits through the gate; also what another process wrote, from its content JSON."""
        bridge = self._started()
        prepared = self._prepared.pop(batch.batch_id, None)
        if prepared is None or set(prepared.outputs) != {f.path for f in written.files}:
            prepared = self._revived(bridge, batch, written)
        return commit_batch(
            bridge,
            batch,
            written,
            ticket,
            sources=prepared.sources,
            outputs=tuple(prepared.outputs.values()),
            deletes=prepared.deletes,
            reader=self._reader_of(batch.table),
            pause=self._pause,
        )

    def cancel(self) -> None:
        """Cancels the running jobs. Safe in a signal handler: it talks to the JVM on a thread of
        its own, since the interrupted one may be in the middle of a call.
        """
        bridge = self._bridge
        groups = tuple(self._job_groups)
        if bridge is None or not groups:
            return

        def stop() -> None:
            for group in groups:
                bridge.spark.sparkContext.cancelJobGroup(group)

        worker = threading.Thread(target=stop, name="iceberg-maint-cancel", daemon=True)
        worker.start()
        worker.join(30)

    def _started(self) -> Bridge:
        with self._bridge_lock:
            if self._bridge is None:
                with keeping_sigint():
                    self._bridge = Bridge(self._session())
            return self._bridge

    def _run(
        self,
        bridge: Bridge,
        table: native.Table,
        batch: Batch,
        planned: Sequence[GroupTasks],
        policy: RewriteDataFilesPolicy,
    ) -> list[native.GroupResult]:
        job_group = f"iceberg-maint-{uuid4()}"
        stopped = threading.Event()

        def one(group_tasks: GroupTasks) -> native.GroupResult | None:
            if stopped.is_set():
                return None
            # Each Python thread has its own thread in the JVM: its session and job group are set here.
            bridge.activate()
            bridge.spark.sparkContext.setJobGroup(
                job_group,
                f"{batch.table} {group_tasks.group.partition} (batch {batch.batch_id})",
                interruptOnCancel=True,
            )
            try:
                return native.rewrite_group(bridge, table, batch, group_tasks, policy)
            except BaseException:
                stopped.set()
                raise

        self._job_groups.add(job_group)
        pool = ThreadPoolExecutor(policy.max_concurrent_groups, "iceberg-maint-group")
        try:
            futures = [pool.submit(one, group_tasks) for group_tasks in planned]
            wait(futures, return_when=FIRST_EXCEPTION)
            failed = next((f.exception() for f in futures if f.done() and f.exception()), None)
            if failed is not None:
                raise failed
            return [r for r in (f.result() for f in futures) if r is not None]
        except BaseException:
            stopped.set()
            self.cancel()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self._job_groups.discard(job_group)

    def _revived(self, bridge: Bridge, batch: Batch, written: Written) -> _Prepared:
        java_table = load_planned_table(bridge, batch)
        sources, deletes = _sources(bridge, plan_tasks(bridge, java_table, batch))
        outputs = {f.path: native.revive(bridge, java_table, f.content) for f in written.files}
        return _Prepared(sources, deletes, outputs)


def _sources(bridge: Bridge, planned: Sequence[GroupTasks]) -> tuple[list[Any], list[Any]]:
    """Java DataFiles of all groups, and the delete files that apply to them, each once."""
    sources: list[Any] = []
    deletes: dict[tuple[str, int | None], Any] = {}
    for group_tasks in planned:
        has_deletes = any(f.delete_files for f in group_tasks.group.files)
        for task in bridge.iterate(group_tasks.tasks):
            sources.append(task.file())
            for delete in bridge.iterate(task.deletes()) if has_deletes else ():
                deletes[str(delete.location()), delete.contentOffset()] = delete
    return sources, list(deletes.values())


def _proof(results: Sequence[native.GroupResult], written: Sequence[WrittenFile], level: ProofLevel) -> Proof:
    read = sum(r.read_records for r in results)
    kept = sum(r.kept_records for r in results)
    out = sum(f.record_count for f in written)
    detail = next((r.difference for r in results if r.difference is not None), "")
    if not detail and kept != out:
        detail = f"{kept} rows were read to be kept, {out} were written"
    parts = [r.before for r in results if r.before is not None]
    return Proof(
        level=level.value,
        equal=not detail,
        input_records=read,
        output_records=out,
        removed_records=read - kept,
        fingerprint=fingerprint.total(parts).text() if level is ProofLevel.FULL else None,
        detail=detail,
    )
