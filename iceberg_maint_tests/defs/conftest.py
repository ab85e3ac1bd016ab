"""A lake in memory for the Dagster layer: tables of core values, an engine that swaps lists, a clock that is set."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import UNPARTITIONED_KEY, Operation, TableId
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, FileKind, LiveFile, Snapshot, TableState
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.runs import RetryPolicy, WindowsPolicy
from iceberg_maint.defs.assets import data_run
from iceberg_maint.defs.code_location import CodeLocation
from iceberg_maint.defs.load_definitions import build_definitions
from iceberg_maint.defs.names import OBSERVE_JOB
from iceberg_maint.defs.runs.examined import EXAMINED
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.loop.context import EngineAccess
from iceberg_maint.ports.engine import CommitContext, WorkProgress, Written, WrittenFile
from iceberg_maint_tests.support.context import context_with, spark_access
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog, FakeTable, fake_table
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.fakes.orphan_scan import FakeOrphanFiles
from iceberg_maint_tests.support.loop.world import SetClock, at_clock

NAMES = IcebergTranslator()

SPEC = PartitionSpec(0, (PartitionField(1000, 1, "day", "identity", "string"),))
TARGET_BYTES = 1_000_000
FINGERPRINT = "xxh64x2-1:10:1.2,3.4"
NOW_MS = 1_800_000_000_000
POLICY = Policy(
    rewrite_data_files=RewriteDataFilesPolicy(target_file_size_bytes=TARGET_BYTES, min_input_files=5),
    windows=WindowsPolicy(max_partitions_per_batch=2),
    retry=RetryPolicy(backoff_seconds=300, quarantine_after=3),
)


def key(day: str) -> str:
    return f"day={day}"


class Table:
    """One table of a catalog in memory; every change is a commit."""

    def __init__(self, catalog: FakeCatalog, name: str, spec: PartitionSpec = SPEC) -> None:
        made = fake_table(f"{catalog.name}.{name}", (), specs=(spec,))
        self._catalog = catalog
        columns = {"day": "string", "v": "map<string, long>"}
        self._now = FakeTable(replace(made.state, uuid=str(uuid.uuid4()), columns=columns), ())
        catalog.put(self._now)

    @property
    def state(self) -> TableState:
        return self._now.state

    @property
    def files(self) -> tuple[LiveFile, ...]:
        return self._now.live_files

    def commit(
        self, removed: Collection[str], added: Iterable[LiveFile], summary: Mapping[str, str] | None = None
    ) -> Snapshot:
        old, number = self.state, self.state.last_sequence_number + 1
        parent = old.snapshots[-1].snapshot_id if old.snapshots else None
        # Without the marks of our commits it is a writer's.
        operation = "replace" if TOKEN_PROPERTY in (summary or {}) else "append"
        snapshot = Snapshot(number, parent, number, number, operation, dict(summary or {}), f"list-{number}")
        state = replace(
            old,
            snapshot=snapshot,
            snapshots=(*old.snapshots, snapshot),
            last_sequence_number=number,
            metadata_location=f"mem://{old.table}/v{number}",
        )
        self._now = FakeTable(state, (*(f for f in self.files if f.path not in removed), *added))
        self._catalog.put(self._now)
        return snapshot

    def expire(self, snapshots: Collection[int]) -> None:
        """Drops snapshots from the history, as a metadata-only commit."""
        kept = tuple(s for s in self.state.snapshots if s.snapshot_id not in snapshots)
        location = f"{self.state.metadata_location}-expired"
        self._now = FakeTable(replace(self.state, snapshots=kept, metadata_location=location), self.files)
        self._catalog.put(self._now)

    def add(self, day: str, files: int, kind: FileKind = FileKind.DATA, size: int = 1000) -> None:
        """`files` new files of this size in bytes in one commit."""
        number = len(self.state.snapshots) + 1
        names = [f"{day}-{number}-{i}.parquet" for i in range(files)]
        partition = UNPARTITIONED_KEY if self.state.specs[0].is_unpartitioned else key(day)
        self.commit((), [LiveFile(n, kind, 0, partition, 10, size, number, "parquet") for n in names])

    def drop(self, day: str) -> None:
        self.commit([f.path for f in self.files if f.partition == key(day)], ())

    def set_property(self, name: str, value: str) -> None:
        self._now = replace(
            self._now, state=replace(self.state, properties={**self.state.properties, name: value})
        )
        self.commit((), ())


class Catalog(FakeCatalog):
    """The fake catalog with tables that can be made unreadable."""

    def __init__(self) -> None:
        super().__init__("lake")
        self.unreadable: set[str] = set()
        self.made: dict[TableId, Table] = {}

    def create(self, name: str, spec: PartitionSpec = SPEC) -> Table:
        table = Table(self, name, spec)
        self.made[table.state.table] = table
        return table

    def rename(self, old: TableId, new: TableId) -> None:
        table = self.content.pop(old)
        self.put(replace(table, state=replace(table.state, table=new)))

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        if str(state.table) in self.unreadable:
            raise UnreadableTableError("ICM-101", f"{state.table}: manifest m1 holds 3 entries, not 4.")
        return super().measure(state, policy)


class MemoryEngine:
    """ports.Engine that replaces files of a Table; the hooks are where faults are put."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.before_write: Callable[[Batch], None] = lambda _batch: None
        self.useless = False
        self.written: list[tuple[str, ...]] = []
        self.cancelled = 0
        self.fingerprint = FINGERPRINT

    def versions(self) -> dict[str, str]:
        return {"memory": "1"}

    def start(self) -> None:
        pass

    def progress(self) -> WorkProgress:
        return WorkProgress("writing")

    def write(self, batch: Batch, policy: Policy) -> Written:
        self.before_write(batch)
        self.written.append(batch.partitions)
        files = []
        for number, group in enumerate(batch.groups):
            names = (
                [f"{uuid.uuid4().hex}.parquet" for _ in group.files] if self.useless else [uuid.uuid4().hex]
            )
            rows, size = sum(f.record_count for f in group.files), group.input_bytes
            files += [WrittenFile(n, size // len(names), rows // len(names), 0, number, "{}") for n in names]
        return Written(tuple(files), Proof("full", True, 10, 10, 0, self.fingerprint))

    def commit(self, batch: Batch, written: Written, ticket: CommitContext) -> CommitResult:
        table = self._catalog.made[TableId.parse(batch.table)]
        if batch.operation == Operation.EXPIRE_SNAPSHOTS:
            ticket.record_try(batch.snapshot_id, table.state.metadata_location)
            table.expire(batch.work.snapshots)
            return CommitResult(CommitStatus.COMMITTED)
        base = table.state.snapshots[-1].snapshot_id
        ticket.record_try(base, table.state.metadata_location)
        assert ticket.lease_is_held()
        added = [
            LiveFile(
                f.path, FileKind.DATA, 0, batch.groups[f.group].partition, f.record_count, f.size_bytes,
                batch.snapshot_sequence_number, "parquet",
            )
            for f in written.files
        ]  # fmt: skip
        snapshot = table.commit(batch.paths(), added, {TOKEN_PROPERTY: ticket.token})
        return CommitResult(CommitStatus.COMMITTED, snapshot_id=snapshot.snapshot_id, base_snapshot_id=base)

    def abandon_calls(self) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled += 1


class World:
    """A lake, a Dagster instance, and what a test does with both."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.catalog = Catalog()
        self.engine = MemoryEngine(self.catalog)
        self.orphans = FakeOrphanFiles()
        self.clock = SetClock(NOW_MS)
        self.ledger = at_clock(memory_ledger(), self.clock)
        self.policy = POLICY
        self.instance = instance
        self.table_list = folder / "tables.json"
        self.cursor = None
        self.context = context_with(
            catalogs={"lake": self.catalog},
            ledger=self.ledger,
            clock=self.clock,
            policy_for=self.policy_for,
            engine=lambda: self.engine,
            orphan_files=lambda _table: self.orphans,
            spark=spark_access(conf=dict, engine_of=lambda _session: self.engine),
        )

    def policy_for(self, _table: TableId, properties: Mapping[str, str]) -> Policy:
        """As configuration does it, for the one property these tests set."""
        return replace(self.policy, paused=properties.get("maintenance.paused") == "true")

    @property
    def definitions(self) -> dg.Definitions:
        return build_definitions(self.context, CodeLocation(self.catalog.tables(), self.table_list))

    def observe(
        self,
        *,
        changed_only: bool = True,
        tables: list[str] | None = None,
        definitions: dg.Definitions | None = None,
    ) -> dg.ExecuteInProcessResult:
        config = {"changed_only": changed_only, "tables": tables or []}
        job = (definitions or self.definitions).resolve_job_def(OBSERVE_JOB)
        return job.execute_in_process(
            instance=self.instance,
            raise_on_error=False,
            run_config={"ops": {"observe_tables": {"config": config}}},
        )

    def maintain(
        self,
        name: str,
        first: str,
        last: str | None = None,
        definitions: dg.Definitions | None = None,
        **tags: str,
    ) -> dg.ExecuteInProcessResult:
        """What the daemon runs for one partition, or for a contiguous range of a backfill."""
        table = TableId.parse(name)
        job = (definitions or self.definitions).resolve_implicit_global_asset_job_def()
        where = (
            {"partition_key": first}
            if last is None
            else {
                "tags": {
                    "dagster/asset_partition_range_start": first,
                    "dagster/asset_partition_range_end": last,
                }
            }
        )
        if tags:
            where["tags"] = {**where.get("tags", {}), **{k.replace("__", "/"): v for k, v in tags.items()}}
        return job.execute_in_process(
            instance=self.instance,
            raise_on_error=False,
            asset_selection=[NAMES.get_asset_key(table)],
            **where,
        )

    def tick(self, *names: str, definitions: dg.Definitions | None = None) -> dict[str, list[str]]:
        """One evaluation of the automation conditions: what it requests, by table."""
        result = dg.evaluate_automation_conditions(
            defs=definitions or self.definitions, instance=self.instance, cursor=self.cursor
        )
        self.cursor = result.cursor
        tables = [TableId.parse(n) for n in names] or list(self.catalog.tables())
        return {str(t): sorted(result.get_requested_partitions(NAMES.get_asset_key(t))) for t in tables}

    def events(self, kind: dg.DagsterEventType, *, examined: bool = False) -> list[Any]:
        """Dagster's events of one kind, oldest first. Without materializations that only say `examined`."""
        runs = reversed(self.instance.get_runs())
        events = [
            entry.dagster_event.event_specific_data
            for run in runs
            for entry in self.instance.all_logs(run.run_id, of_type=kind)
        ]
        if kind is not dg.DagsterEventType.ASSET_MATERIALIZATION:
            return events
        return [e for e in events if (e.materialization.description == EXAMINED) is examined]

    def evaluations(self, check: str) -> dict[str | None, Any]:
        """The last evaluation of a check, by partition."""
        events = self.events(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        return {e.partition: e for e in events if e.check_name == check}

    def materialized(self, name: str, *, examined: bool = False) -> set[str]:
        """The partitions that runs materialized, or that observations `examined`."""
        key = NAMES.get_asset_key(TableId.parse(name))
        events = self.events(dg.DagsterEventType.ASSET_MATERIALIZATION, examined=examined)
        return {e.materialization.partition for e in events if e.materialization.asset_key == key}


SETTINGS = {"run_monitoring": {"enabled": True, "free_slots_after_run_end_seconds": 60}}


@pytest.fixture(autouse=True)
def early_starts(monkeypatch: pytest.MonkeyPatch) -> list[EngineAccess]:
    """The engines that runs started early. These tests have no Spark."""
    starts: list[EngineAccess] = []
    monkeypatch.setattr(data_run, "start_early", starts.append)
    return starts


@pytest.fixture(autouse=True)
def _retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iceberg_maint.defs.runs.table_run.RETRIES", dg.RetryPolicy(max_retries=2, delay=0))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral(settings=SETTINGS) as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, instance: dg.DagsterInstance) -> World:
    return World(tmp_path, instance)
