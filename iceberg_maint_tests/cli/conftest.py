"""The command line on a lake in memory: the real loop and ledger, a catalog of core values, an engine that swaps lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iceberg_maint.cli import iceberg_maint
from iceberg_maint.cli.context import Session
from iceberg_maint.config import Config, load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, FileKind, LiveFile, Snapshot
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.engine import CommitContext, Written, WrittenFile
from iceberg_maint.wiring.adapters import policies
from iceberg_maint_tests.support.context import changed, context_with
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog, FakeTable, fake_table
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.fakes.orphan_scan import FakeOrphanFiles
from iceberg_maint_tests.support.loop.world import SetClock, at_clock

NOW_MS = 1_800_000_000_000
SPEC = PartitionSpec(0, (PartitionField(1000, 1, "day", "identity", "string"),))
TARGET_BYTES = 1_000_000


def data_file(name: str, day: str, sequence_number: int = 1, size_bytes: int = 1000) -> LiveFile:
    return LiveFile(
        f"file:///mem/{name}.parquet",
        FileKind.DATA,
        0,
        f"day={day}",
        10,
        size_bytes,
        sequence_number,
        "parquet",
    )


def table_of(name: str, files: Mapping[str, int], **more: Any) -> FakeTable:
    """A table of small data files: so many per day."""
    live = [data_file(f"{name}-{day}-{i}", day) for day, count in files.items() for i in range(count)]
    properties = {"write.target-file-size-bytes": str(TARGET_BYTES)} | more.pop("properties", {})
    return fake_table(name, live, specs=[SPEC], properties=properties, now_ms=NOW_MS, **more)


@dataclass
class SwapEngine:
    """Replaces each group's files by one. `results` are given instead of a commit, one per batch;
    `errors` are raised by `write`, `unfit` by `start`.
    """

    catalog: FakeCatalog
    results: list[CommitResult] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    batches: list[str] = field(default_factory=list)
    cancelled: int = 0
    unfit: Exception | None = None

    def versions(self) -> dict[str, str]:
        return {"spark": "4.1.4", "iceberg": "1.12.0"}

    def start(self) -> None:
        if self.unfit is not None:
            raise self.unfit

    def write(self, batch: Batch, policy: Policy) -> Written:
        if self.errors:
            raise self.errors.pop(0)
        self.batches.append(batch.batch_id)
        files = tuple(
            WrittenFile(f"file:///mem/{batch.batch_id}-{i}.parquet", g.input_bytes, 10, 0, i, "{}")
            for i, g in enumerate(batch.groups)
        )
        return Written(
            files, Proof("full", equal=True, input_records=10, output_records=10, removed_records=0)
        )

    def commit(self, batch: Batch, written: Written, ticket: CommitContext) -> CommitResult:
        table_id = TableId.parse(batch.table)
        table = self.catalog.content[table_id]
        head = table.state.snapshot
        assert head is not None
        ticket.record_try(head.snapshot_id, table.state.metadata_location)
        if self.results:
            return self.results.pop(0)
        new = Snapshot(
            head.snapshot_id + 1,
            head.snapshot_id,
            head.sequence_number + 1,
            NOW_MS,
            "replace",
            {TOKEN_PROPERTY: ticket.token},
            "list",
        )
        added = [
            replace(
                data_file("x", "x"),
                path=f.path,
                partition=g.partition,
                size_bytes=f.size_bytes,
                record_count=sum(source.record_count for source in g.files),
            )
            for f, g in zip(written.files, batch.groups, strict=True)
        ]
        kept = [f for f in table.live_files if f.path not in batch.paths()]
        state = replace(
            table.state,
            snapshot=new,
            snapshots=(*table.state.snapshots, new),
            last_sequence_number=new.sequence_number,
            metadata_location=f"{table.state.metadata_location}+1",
        )
        self.catalog.put(replace(table, state=state, live_files=(*kept, *added)))
        return CommitResult(CommitStatus.COMMITTED, None, new.snapshot_id, head.snapshot_id)

    def abandon_calls(self) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled += 1


FAILED = CommitResult(CommitStatus.REJECTED, Rejection.ERROR, message="the disk is full")
REJECTED = CommitResult(CommitStatus.REJECTED, Rejection.CONFLICT, message="concurrent commits won")
UNKNOWN = CommitResult(CommitStatus.UNKNOWN, message="the answer was lost")


@dataclass
class Lake:
    """One process's world, kept over several calls of the program."""

    config: Config
    context: Context
    catalog: FakeCatalog
    engine: SwapEngine
    clock: SetClock
    home: Path
    orphans: FakeOrphanFiles

    def __call__(self, *arguments: str) -> Result:
        """The program's result; what it prints is `stdout` and `stderr`."""
        session = Session(load=lambda _path: self.config, build=lambda _config: self.context)
        return CliRunner().invoke(iceberg_maint, list(arguments), obj=session)

    def json(self, *arguments: str, exit_code: int = 0) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)

    def configure(self, text: str) -> None:
        """Policy parts of a configuration file."""
        file = self.home / "maint.yaml"
        file.write_text(
            "catalogs:\n  lake: {type: jdbc, uri: 'sqlite:////x/c.db', warehouse: 'file:///x/w'}\n" + text
        )
        self.reconfigure(load_config(file, {}, ""))

    def reconfigure(self, config: Config) -> None:
        """Another configuration of the same outside systems."""
        self.config = config
        self.context = changed(self.context, policy_for=policies(config))


REWRITE = 1
"""Place of `rewrite_data_files` among the operations of a document."""


def lake_of(folder: Path, tables: Mapping[str, Mapping[str, int]]) -> Lake:
    """A lake with these tables, each with so many small files per day; `folder` is the program's home."""
    catalog = FakeCatalog("lake", [table_of(name, files) for name, files in tables.items()])
    engine, clock = SwapEngine(catalog), SetClock(NOW_MS)
    config: Config = load_config(None, {"ICEBERG_MAINT_HOME": str(folder)}, "")
    orphans = FakeOrphanFiles()
    context = context_with(
        catalogs={"lake": catalog},
        ledger=at_clock(memory_ledger(), clock),
        clock=clock,
        policy_for=policies(config),
        engine=lambda: engine,
        orphan_files=lambda _table: orphans,
    )
    return Lake(config, context, catalog, engine, clock, folder, orphans)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Tables: `sick` (two due days, one healthy), `healthy`."""
    return lake_of(tmp_path, {"lake.db.sick": {"1": 10, "2": 8, "3": 2}, "lake.db.healthy": {"1": 2}})
