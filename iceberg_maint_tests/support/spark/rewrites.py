"""Rewrites and conversions made by hand, step by step: pinned, written, then whatever others do, then committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyroaring import BitMap64

from iceberg_maint.catalog.manifests.entries import read_entries
from iceberg_maint.catalog.manifests.reader import make_reader, read_manifest_list
from iceberg_maint.core.commits.change import Change, MetadataReader, Violation
from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import Intent, intent_of
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.partition_key import FIRST_SPEC_ID, encode_partition
from iceberg_maint.core.model.table_state import NO_ROW_IDS, FileKind
from iceberg_maint.core.outcomes.outcome import CommitResult
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch, BatchBody, batch_id
from iceberg_maint.core.planning.work import EqualityDeleteFile, FileGroup, InputFile, PositionDeleteFile
from iceberg_maint.engines.spark.commit.gate import Check, Gate, inspecting_files
from iceberg_maint.engines.spark.commit.retry import Backoff, TableAccess
from iceberg_maint.engines.spark.commit.rewrite_files import BatchFiles, commit_batch
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.scan.iceberg_reader import DeleteFiles
from iceberg_maint.engines.spark.scan.positions import write_deletion_vectors, write_position_deletes
from iceberg_maint.engines.spark.scan.scan import partition_specs
from iceberg_maint.ports.engine import CommitContext, Written, WrittenFile
from iceberg_maint_tests.support.context import commit_context
from iceberg_maint_tests.support.spark.writers import Row, Writers

IO = PyArrowFileIO()
READER = MetadataReader(
    lambda location: read_manifest_list(IO, location),
    make_reader(IO),
    lambda manifest: read_entries(IO, manifest),
)
NO_BACKOFF = Backoff(0, 0, jitter=lambda: 0.0, sleep=lambda _: None)


def open_gate(intent: Intent, change: Change) -> tuple[Violation, ...]:
    """The gate as if it were not there."""
    return ()


@dataclass(frozen=True, slots=True)
class Output:
    """One file group: what it replaces, and by which rows in which place."""

    sources: Sequence[Any]
    rows: Sequence[Row]
    spec: Any = None
    partition: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A batch written and not committed."""

    bridge: Bridge
    batch: Batch
    written: Written
    sources: tuple[Any, ...]
    outputs: tuple[Any, ...]
    deletes: tuple[Any, ...]

    def intent(self) -> Intent:
        return intent_of(self.batch, self.written.files)

    def context(
        self,
        *,
        token: str = "token-1",
        max_tries: int = 3,
        lease_is_held: Callable[[], bool] = lambda: True,
        record_try: Callable[[int, str], None] = lambda base, location: None,
    ) -> CommitContext:
        return commit_context(token, 7, "run-1", max_tries, lease_is_held, record_try)

    def commit(
        self,
        *,
        check: Check = check,
        context: CommitContext | None = None,
        load_table: Callable[[str], Any] | None = None,
        backoff: Backoff = NO_BACKOFF,
        reader: MetadataReader = READER,
    ) -> CommitResult:
        return commit_batch(
            TableAccess(self.bridge, reader, backoff, load_table),
            self.batch,
            self.written,
            context or self.context(),
            BatchFiles(
                self.sources,
                DeleteFiles(self.bridge, self.bridge.list(self.deletes)),
                dict(enumerate(self.outputs)),
            ),
            check=check,
        )

    def by_hand(self, prepare: Callable[[Any], Any], *, check: Check = check) -> tuple[Violation, ...]:
        """Commits an operation that `prepare` sets up in place of ours; the violations the gate found."""
        table = self.bridge.load_table(self.batch.table)
        context = self.context()
        inspect = inspecting_files(self.bridge, self.intent(), READER, context, check)
        gate = Gate(self.bridge, table.operations(), inspect, context)
        with self.bridge.callbacks():
            table = gate.table(self.batch.table)
            if self.batch.operation == Operation.CONVERT_EQUALITY_DELETES:
                operation = table.newRowDelta()
                add, remove, removed = operation.addDeletes, operation.removeDeletes, self.deletes
            else:
                operation = table.newRewrite()
                add, remove, removed = operation.addFile, operation.deleteFile, self.sources
            prepare(operation)
            for file in removed:
                remove(file)
            for file in self.outputs:
                add(file)
            try:
                operation.commit()
            except Exception:
                if not gate.violations:
                    raise
        return gate.violations


def prepare(
    writers: Writers, name: str, *groups: Output, drop: Sequence[Any] = (), apply: Sequence[Any] = ()
) -> Rewrite:
    """Pins the current snapshot and writes the groups' output; `drop` are the Java DeleteFiles of
    equality deletes that the rewrite has applied and drops, `apply` those it has applied and keeps."""
    table = writers.load(name)
    outputs = [
        (index, writers.data(table, g.rows, g.spec, g.partition)) for index, g in enumerate(groups) if g.rows
    ]
    planned = tuple(_group(writers, table, g) for g in groups)
    batch = _batch(writers, table, name, Operation.REWRITE_DATA_FILES, planned, drop, apply)
    files = tuple(
        WrittenFile(f.location(), f.fileSizeInBytes(), f.recordCount(), f.specId(), index, "")
        for index, f in outputs
    )
    return Rewrite(
        writers.bridge,
        batch,
        _written(files),
        tuple(f for g in groups for f in g.sources),
        tuple(f for _, f in outputs),
        (*_applying(writers, table, batch), *drop),
    )


def prepare_conversion(
    writers: Writers,
    name: str,
    positions: Mapping[str, Iterable[int]],
    drop: Sequence[Any],
    examined: Sequence[Any] | None = None,
) -> Rewrite:
    """Pins the current snapshot and writes these positions by data file path, as position deletes or
    deletion vectors; all data files (`examined`: these only) have been held against `drop`."""
    table = writers.load(name)
    files = writers.files(table) if examined is None else list(examined)
    by_place: dict[tuple[str, int], list[Any]] = {}
    for file in files:
        by_place.setdefault((_key(writers, table, file), int(file.specId())), []).append(file)
    planned = tuple(
        FileGroup(key, spec_id, spec_id, tuple(_inputs(writers, table, of_one)), 0)
        for (key, spec_id), of_one in by_place.items()
    )
    batch = _batch(writers, table, name, Operation.CONVERT_EQUALITY_DELETES, planned, drop)
    bitmaps = {path: BitMap64(marked) for path, marked in positions.items()}
    vectors = batch.format_version > 2
    write = write_deletion_vectors if vectors else write_position_deletes
    outputs = write(writers.bridge, table, bitmaps, {f.location(): f for f in files})
    group_of = {f.path: number for number, group in enumerate(planned) for f in group.files}
    written = tuple(
        WrittenFile(
            f.location(),
            f.fileSizeInBytes(),
            f.recordCount(),
            f.specId(),
            group_of[f.referencedDataFile()],
            "",
            FileKind.DELETION_VECTOR if vectors else FileKind.POSITION_DELETES,
            f.contentOffset(),
            f.referencedDataFile(),
        )
        for f in outputs
    )
    old = [d for d in _applying(writers, table, batch) if d.contentOffset() is not None]
    renewed = [d for d in old if d.referencedDataFile() in positions]
    return Rewrite(writers.bridge, batch, _written(written), (), tuple(outputs), (*drop, *renewed))


def _batch(
    writers: Writers,
    table: Any,
    name: str,
    operation: Operation,
    groups: tuple[FileGroup, ...],
    drop: Sequence[Any],
    apply: Sequence[Any] = (),
) -> Batch:
    snapshot = table.currentSnapshot()
    snapshot_id, uuid = int(snapshot.snapshotId()), str(table.uuid())
    paths = frozenset(f.path for g in groups for f in g.files)
    return BatchBody(
        batch_id=batch_id(uuid, operation, snapshot_id, paths),
        table=name,
        table_uuid=uuid,
        operation=operation,
        strategy="convert" if operation == Operation.CONVERT_EQUALITY_DELETES else "native",
        format_version=int(table.operations().current().formatVersion()),
        snapshot_id=snapshot_id,
        snapshot_sequence_number=int(snapshot.sequenceNumber()),
        schema_id=int(table.schema().schemaId()),
        groups=groups,
        target_file_size_bytes=1 << 20,
        equality_deletes=tuple(
            EqualityDeleteFile(
                d.location(),
                d.specId(),
                _key(writers, table, d),
                bool(table.specs()[d.specId()].isUnpartitioned()),
                tuple(d.equalityFieldIds()),
                d.dataSequenceNumber(),
                d.recordCount(),
                d.fileSizeInBytes(),
                drop=drop,
            )
            for drop, some in ((True, drop), (False, apply))
            for d in some
        ),
        applied_deletes=tuple(_applied(writers, table, paths)),
    ).batch()


def _applied(writers: Writers, table: Any, paths: frozenset[str]) -> Iterable[PositionDeleteFile]:
    tasks = [t for t in writers.tasks(table) if t.file().location() in paths]
    deletes = [d for t in tasks for d in writers.bridge.iterate(t.deletes()) if d.equalityFieldIds() is None]
    for delete in {(d.location(), d.contentOffset()): d for d in deletes}.values():
        vector = delete.contentOffset() is not None
        yield PositionDeleteFile(
            delete.location(),
            delete.specId(),
            _key(writers, table, delete),
            delete.dataSequenceNumber(),
            delete.recordCount(),
            delete.contentSizeInBytes() if vector else delete.fileSizeInBytes(),
            delete.referencedDataFile(),
            delete.contentOffset(),
        )


def _written(files: tuple[WrittenFile, ...]) -> Written:
    rows = sum(f.record_count for f in files)
    proof = Proof("full", equal=True, input_records=rows, output_records=rows, removed_records=0)
    return Written(files, proof)


def _applying(writers: Writers, table: Any, batch: Batch) -> list[Any]:
    """The Java DeleteFiles that apply to the batch's files."""
    paths = batch.paths()
    tasks = [t for t in writers.tasks(table) if t.file().location() in paths]
    return [d for task in tasks for d in writers.bridge.iterate(task.deletes())]


def _key(writers: Writers, table: Any, file: Any) -> str:
    spec = partition_specs(writers.bridge, table)[int(file.specId())]
    values = [
        file.partition().get(i, writers.bridge.java_class("java.lang.Object"))
        for i in range(len(spec.fields))
    ]
    return encode_partition(spec, values, FIRST_SPEC_ID)


def _group(writers: Writers, table: Any, group: Output) -> FileGroup:
    spec_id = int(group.sources[0].specId())
    output = table.spec() if group.spec is None else group.spec
    inputs = tuple(_inputs(writers, table, group.sources))
    return FileGroup(_key(writers, table, group.sources[0]), spec_id, int(output.specId()), inputs, 1)


def _inputs(writers: Writers, table: Any, files: Iterable[Any]) -> Iterable[InputFile]:
    deletes = {
        task.file().location(): tuple(
            d.location() for d in writers.bridge.iterate(task.deletes()) if d.equalityFieldIds() is None
        )
        for task in writers.tasks(table)
    }
    for file in files:
        yield InputFile(
            file.location(),
            file.fileSizeInBytes(),
            file.recordCount(),
            file.dataSequenceNumber() or 0,
            deletes[file.location()],
            _row_id(table, file),
        )


def _row_id(table: Any, file: Any) -> int | None:
    if int(table.operations().current().formatVersion()) < 3:
        return None
    return NO_ROW_IDS if file.firstRowId() is None else int(file.firstRowId())
