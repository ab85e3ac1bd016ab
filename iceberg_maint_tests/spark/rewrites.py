"""Rewrites made by hand, step by step: pinned, written, then whatever others do, then committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_maint.catalog.manifests import make_reader, read_manifest_list
from iceberg_maint.core.change import Change, MetadataReader
from iceberg_maint.core.gate import Violation, check
from iceberg_maint.core.intent import Intent, intent_of
from iceberg_maint.core.outcome import CommitResult
from iceberg_maint.core.plan import Batch, FileGroup, InputFile, batch_id
from iceberg_maint.core.proof import Proof
from iceberg_maint.ports import Ticket, Written, WrittenFile
from iceberg_maint.spark.bridge import Bridge
from iceberg_maint.spark.commit import Pause, commit_batch
from iceberg_maint.spark.gate import Check, CommitGate
from iceberg_maint_tests.spark.writers import Row, Writers

IO = PyArrowFileIO()
READER = MetadataReader(lambda location: read_manifest_list(IO, location), make_reader(IO))
NO_PAUSE = Pause(0, 0, jitter=lambda: 0.0, sleep=lambda _: None)


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

    def ticket(
        self,
        *,
        token: str = "token-1",
        max_tries: int = 3,
        holds: Callable[[], bool] = lambda: True,
        record_try: Callable[[int, str], None] = lambda base, location: None,
    ) -> Ticket:
        return Ticket(token, 7, "run-1", max_tries, holds, record_try)

    def commit(
        self,
        *,
        check: Check = check,
        ticket: Ticket | None = None,
        load_table: Callable[[str], Any] | None = None,
        pause: Pause = NO_PAUSE,
    ) -> CommitResult:
        return commit_batch(
            self.bridge,
            self.batch,
            self.written,
            ticket or self.ticket(),
            sources=self.sources,
            outputs=self.outputs,
            deletes=self.deletes,
            reader=READER,
            pause=pause,
            load_table=load_table,
            check=check,
        )

    def by_hand(self, prepare: Callable[[Any], Any], *, check: Check = check) -> tuple[Violation, ...]:
        """Commits an operation that `prepare` sets up in place of ours; the violations the gate found."""
        table = self.bridge.load_table(self.batch.table)
        gate = CommitGate(
            self.bridge, table.operations(), self.intent(), READER, check, lambda: True, lambda *_: None
        )
        with self.bridge.callbacks():
            rewrite = gate.table(self.batch.table).newRewrite()
            prepare(rewrite)
            for file in self.sources:
                rewrite.deleteFile(file)
            for file in self.outputs:
                rewrite.addFile(file)
            try:
                rewrite.commit()
            except Exception:
                if not gate.violations:
                    raise
        return gate.violations


def prepare(writers: Writers, name: str, *groups: Output) -> Rewrite:
    """Pins the current snapshot and writes the groups' output."""
    table = writers.load(name)
    snapshot = table.currentSnapshot()
    outputs = [
        (index, writers.data(table, g.rows, g.spec, g.partition)) for index, g in enumerate(groups) if g.rows
    ]
    planned = tuple(_group(g, table) for g in groups)
    paths = frozenset(f.path for g in planned for f in g.files)
    snapshot_id, uuid = int(snapshot.snapshotId()), str(table.uuid())
    batch = Batch(
        batch_id=batch_id(uuid, "rewrite_data_files", snapshot_id, paths),
        table=name,
        table_uuid=uuid,
        operation="rewrite_data_files",
        strategy="binpack",
        format_version=int(table.operations().current().formatVersion()),
        snapshot_id=snapshot_id,
        snapshot_sequence_number=int(snapshot.sequenceNumber()),
        schema_id=int(table.schema().schemaId()),
        groups=planned,
        target_file_size_bytes=1 << 20,
    )
    files = tuple(
        WrittenFile(f.location(), f.fileSizeInBytes(), f.recordCount(), f.specId(), index, "")
        for index, f in outputs
    )
    rows = sum(f.record_count for f in files)
    return Rewrite(
        writers.bridge,
        batch,
        Written(files, Proof("full", equal=True, input_records=rows, output_records=rows, removed_records=0)),
        tuple(f for g in groups for f in g.sources),
        tuple(f for _, f in outputs),
        tuple(
            d
            for task in writers.tasks(table)
            if task.file().location() in paths
            for d in writers.bridge.iterate(task.deletes())
        ),
    )


def _group(group: Output, table: Any) -> FileGroup:
    spec_id = int(group.sources[0].specId())
    output = table.spec() if group.spec is None else group.spec
    return FileGroup("p", spec_id, int(output.specId()), tuple(_inputs(group.sources)), 1)


def _inputs(files: Iterable[Any]) -> Iterable[InputFile]:
    for file in files:
        yield InputFile(
            file.location(), file.fileSizeInBytes(), file.recordCount(), file.dataSequenceNumber() or 0
        )
