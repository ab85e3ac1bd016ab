"""The engine of one process: rewrites and conversions of plain rows, a gate that lets through exactly what
leaves the visible rows as they are, and a catalog that answers its swaps as it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from iceberg_maint.core.commits import gate_rules
from iceberg_maint.core.commits.expiry_rules import check_expiry, expired
from iceberg_maint.core.commits.intent import intent_of, keeps_data_files
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    FENCE_PROPERTY,
    RUN_PROPERTY,
    TOKEN_PROPERTY,
    FileKind,
    LiveFile,
    TableState,
)
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import ExpireSnapshots, RewriteManifests
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.errors import FenceLostError, RefusedError, StaleBatchError
from iceberg_maint.ports.engine import CommitContext, Written, WrittenFile
from iceberg_maint_tests.qualification.simulation.faults import (
    CONFLICTS,
    LANDS,
    LANDS_LATER,
    NO_READING_BACK,
    SILENT,
    Answer,
    Killed,
)
from iceberg_maint_tests.qualification.simulation.gate_change import change_of
from iceberg_maint_tests.qualification.simulation.lake import Lake
from iceberg_maint_tests.qualification.simulation.process import Process
from iceberg_maint_tests.qualification.simulation.sim_table import Swap
from iceberg_maint_tests.support.fakes.catalog import document_of


class _StaleError(Exception):
    pass


class _MovedError(Exception):
    pass


class SimEngine:
    """`ports.Engine`. What it wrote is in the lake's content until somebody commits it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lake: Lake = process.world.lake

    def versions(self) -> dict[str, str]:
        return {"simulation": "1"}

    def start(self) -> None:
        if self._process.engine_gone:
            raise RefusedError("ICM-103", "the JVM is gone.")

    def abandon_calls(self) -> None:
        pass

    def cancel(self) -> None:
        pass

    def write(self, batch: Batch, policy: Policy) -> Written:
        written = self._step("write", lambda: self._write(batch))
        if self._process.world.steps < self._process.world.competes_until:
            # Another engine compacts the same files and is always faster.
            for partition in batch.partitions:
                self._lake.compact(self._lake.every[batch.table_uuid], partition)
        return written

    def _write(self, batch: Batch) -> Written:
        world = self._process.world
        trouble = world.choose.random() if world.faults.rate else 1.0
        if trouble < world.faults.rate:
            raise RefusedError("ICM-124", "it does not fit.")
        table = self._lake.every[batch.table_uuid]
        if table.state.snapshot_by_id(batch.snapshot_id) is None:
            raise StaleBatchError("its snapshot has expired")
        by_path = {f.path: f for f in table.files[batch.snapshot_id]}
        deletes = [f for f in by_path.values() if f.kind is not FileKind.DATA]
        files = tuple(self._outputs(batch, by_path, deletes))
        rows = sum(f.record_count for f in files)
        equal = trouble >= 2 * world.faults.rate
        proof = Proof("full", equal, rows, rows, 0, None, "" if equal else "made up")
        return Written(files, proof)

    def _outputs(
        self, batch: Batch, by_path: dict[str, LiveFile], deletes: list[LiveFile]
    ) -> Iterable[WrittenFile]:
        lake, table = self._lake, self._lake.every[batch.table_uuid]
        for index, group in enumerate(batch.groups):
            if keeps_data_files(batch.work):
                planned = {d.path for d in (*batch.equality_deletes, *batch.position_deletes)}
                others = [d for d in deletes if d.path not in planned]
                for file in (by_path[f.path] for f in group.files):
                    marked = lake.left_of(file, others) - lake.left_of(file, deletes)
                    if marked:
                        kind = FileKind.POSITION_DELETES
                        new = lake.new_file(table, group.partition, marked, 0, kind, file.path)
                        yield _written(new, index)
            else:
                rows = [r for f in group.files for r in lake.left_of(by_path[f.path], deletes)]
                if rows:
                    number = batch.snapshot_sequence_number
                    yield _written(lake.new_file(table, group.partition, rows, number), index)

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        raise AssertionError("the tables of the simulation fit their memory")

    def reuse_files(self, batch: Batch, written: Written) -> bool:
        def look() -> bool:
            if self._lake.every[batch.table_uuid].state.snapshot_by_id(batch.snapshot_id) is None:
                raise StaleBatchError("its snapshot has expired")
            return all(self._lake.disk.stat(f.path) is not None for f in written.files)

        found = bool(self._step("adopt", look))
        self._process.world.watch.found["adopted" if found else "not to be adopted"] += 1
        return found

    def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        """As the real one: each try of a fresh base through the gate, the lease asked for and the try
        recorded before the swap, and what the table shows afterwards decides."""
        for tries in range(1, context.max_tries + 1):
            try:
                base = self._step("load", lambda: self._load(batch))
            except ConnectionError as why:
                return _rejected(Rejection.ERROR, str(why), tries)
            if base is None:
                return _rejected(Rejection.STALE, "no such table", tries)
            try:
                swap = self._prepared(batch, written, base, context)
            except _StaleError as why:
                return _rejected(Rejection.STALE, str(why), tries)
            except _MovedError as why:
                result = _rejected(Rejection.CONFLICT, str(why), tries)
                continue
            assert base.snapshot is not None
            try:
                if not context.lease_is_held():
                    raise FenceLostError("the lease was lost before the commit; nothing was committed.")
                context.record_try(base.snapshot.snapshot_id, base.metadata_location)
            except FenceLostError:
                raise
            except Exception as why:  # noqa: BLE001 - nothing was swapped, whatever it is
                return _rejected(Rejection.ERROR, str(why), tries)
            result = self._swap(batch, context, swap)
            if result.rejection is not Rejection.CONFLICT:
                return replace(result, tries=tries)
            self._process.give_way(until_ms=self._lake.now_ms + self._lake.choose.randint(0, 2000))
        return replace(result, tries=tries)

    def _load(self, batch: Batch) -> TableState | None:
        table = self._lake.tables.get(TableId.parse(batch.table))
        return table.state if table is not None else None

    def _prepared(self, batch: Batch, written: Written, base: TableState, context: CommitContext) -> Swap:
        """What is to be swapped in. Raises _StaleError where the batch does not fit the base."""
        if base.uuid != batch.table_uuid:
            raise _StaleError("another table")
        if isinstance(batch.work, ExpireSnapshots):
            return self._expiry(batch.work, base, context)
        summary = _summary(batch, context, written)
        if not isinstance(batch.work, RewriteManifests):
            return Swap(base, self._gated(batch, written, base), "replace", summary)
        manifests = frozenset(batch.work.manifests)
        if base.snapshot is None or not manifests <= {m.path for m in base.manifests}:
            raise _StaleError("a manifest is gone")
        live = self._lake.every[base.uuid].files[base.snapshot.snapshot_id]
        return Swap(base, live, "replace", {**summary, "manifests-created": "1"}, manifests)

    def _expiry(self, work: ExpireSnapshots, base: TableState, context: CommitContext) -> Swap:
        """As the real one: what may expire is asked again of this very base."""
        allowed = context.retention(base.metadata_location)
        if allowed is None:
            raise _MovedError("the base is no longer the table's")
        swap = Swap(base, (), "expire", {}, expire=work.snapshots, expire_refs=work.refs)
        broken = check_expiry(base.uuid, work, document_of(base), _document(base, swap), allowed)
        if broken:
            raise _StaleError(str(broken[0]))
        self._process.world.watch.storage.expires(self._process, swap)
        return swap

    def _gated(self, batch: Batch, written: Written, base: TableState) -> tuple[LiveFile, ...]:
        """The live files after the commit. Raises _StaleError where the batch does not fit the base by the
        product's gate."""
        lake = self._lake
        if base.snapshot is None or batch.snapshot_id not in {s.snapshot_id for s in base.ancestors()}:
            raise _StaleError("the pinned snapshot is gone")
        before = lake.every[base.uuid].files[base.snapshot.snapshot_id]
        dropped = {d.path for d in batch.equality_deletes if d.drop}
        dropped |= {d.path for d in batch.position_deletes}
        if not batch.paths() | dropped <= {f.path for f in before}:
            raise _StaleError("an input is gone")
        removed = dropped if keeps_data_files(batch.work) else batch.paths() | dropped
        kept = [f for f in before if f.path not in removed and f.referenced_data_file not in removed]
        intent = intent_of(batch, written.files)
        replaced = {d.identity[0]: d.data_sequence_number for d in intent.deletes}
        added = [self._added(f, batch, base, replaced.get(f.path)) for f in written.files]
        violations = gate_rules.check(intent, change_of(intent, lake.every[base.uuid], base, (*kept, *added)))
        if violations:
            self._process.world.watch.gated(batch.batch_id, violations)
            raise _StaleError("; ".join(map(str, violations)))
        return (*kept, *added)

    def _added(self, file: WrittenFile, batch: Batch, base: TableState, replaced: int | None) -> LiveFile:
        """The live file; a delete that replaces others has the highest number of theirs."""
        number = base.last_sequence_number + 1
        return LiveFile(
            file.path,
            file.kind,
            file.spec_id,
            batch.groups[file.group].partition,
            file.record_count,
            file.size_bytes,
            batch.snapshot_sequence_number if file.kind is FileKind.DATA else replaced or number,
            "parquet",
            referenced_data_file=file.referenced_data_file,
            file_sequence_number=number,
        )

    def _swap(self, batch: Batch, context: CommitContext, swap: Swap) -> CommitResult:
        world, base = self._process.world, swap.base.snapshot
        assert base is not None
        try:
            lost = not self._step("swap", lambda: world.can_win(swap))
            answer = world.faults.of_swap()
        except ConnectionError:
            lost, answer = False, Answer.UNAVAILABLE
        except Killed:
            # The request may be on its way.
            if world.choose.random() < 0.5:
                world.send_late(swap)
            raise
        if lost and answer in SILENT | LANDS:
            answer = Answer.CONFLICT
        if answer in LANDS and world.land(swap) is None:
            answer = Answer.CONFLICT
        if answer in LANDS_LATER:
            world.send_late(swap)
        if answer in (Answer.GONE_BEFORE, Answer.GONE_AFTER):
            self._process.engine_gone = True
        world.trace(f"{context.run_id} swap: {answer}")
        world.watch.found[str(answer)] += 1
        message = "" if answer in SILENT else str(answer)

        def read_back() -> int | None:
            if answer in NO_READING_BACK:
                raise ConnectionError(str(answer))
            now = self._load(batch)
            if now is None:
                raise ConnectionError("no such table")
            found = now.snapshot_by_token(context.token)
            if isinstance(batch.work, ExpireSnapshots):
                found = now.snapshot if expired(batch.work, now) else None
            return found.snapshot_id if found is not None else None

        try:
            found = self._step("read back", read_back)
        except Exception as why:  # noqa: BLE001 - not being able to look is not knowing
            return CommitResult(CommitStatus.UNKNOWN, None, None, base.snapshot_id, 1, f"{message}; {why}")
        if found is not None:
            return CommitResult(CommitStatus.COMMITTED, None, found, base.snapshot_id, 1, message)
        if answer in CONFLICTS:
            return CommitResult(CommitStatus.REJECTED, Rejection.CONFLICT, None, base.snapshot_id, 1, message)
        return CommitResult(CommitStatus.UNKNOWN, None, None, base.snapshot_id, 1, message or "not there")

    def _step(self, name: str, call: Callable[[], Any]) -> Any:
        return self._process.step(name, call, lambda: ConnectionError("the JVM does not answer"))


def _written(file: LiveFile, group: int) -> WrittenFile:
    return WrittenFile(
        file.path,
        file.size_bytes,
        file.record_count,
        file.spec_id,
        group,
        "{}",
        kind=file.kind,
        referenced_data_file=file.referenced_data_file,
    )


def _summary(batch: Batch, context: CommitContext, written: Written) -> dict[str, str]:
    dropped = sum(d.drop for d in batch.equality_deletes) + len(batch.position_deletes)
    return {
        TOKEN_PROPERTY: context.token,
        FENCE_PROPERTY: str(context.fence),
        BATCH_PROPERTY: batch.batch_id,
        RUN_PROPERTY: context.run_id,
        "removed-delete-files": str(dropped),
        "operation": batch.operation,
    }


def _document(state: TableState, swap: Swap) -> dict[str, Any]:
    """The table's metadata once the swap is in it."""
    kept = tuple(s for s in state.snapshots if s.snapshot_id not in swap.expire)
    refs = tuple(r for r in state.refs if r.name not in swap.expire_refs)
    return document_of(replace(state, snapshots=kept, refs=refs))


def _rejected(rejection: Rejection, message: str, tries: int) -> CommitResult:
    return CommitResult(CommitStatus.REJECTED, rejection, tries=tries, message=message)
