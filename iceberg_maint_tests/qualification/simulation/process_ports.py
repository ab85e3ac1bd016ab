"""Ledger, catalog and clock as one process uses them; each call of ledger and catalog is a step of the process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import ChangedFiles, FileKind, LiveFile, TableState
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.core.removal.clock_skew import Uptime
from iceberg_maint.errors import ConfigurationError, IcebergMaintError, UnknownTableError
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint_tests.qualification.simulation.process import Process
from iceberg_maint_tests.support.fakes.ledger import PARTS


class _ProcessPart:
    def __init__(self, part: str, process: Process) -> None:
        self._part, self._process = part, process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        process = self._process

        def call(*args: Any, **kwargs: Any) -> Any:
            def real() -> Any:
                return process.world.call_ledger(process, (self._part, name), args, kwargs)

            return process.step(name, real, lambda: IcebergMaintError("ICM-128", "the ledger is lost."))

        return call


def process_ledger(process: Process) -> Ledger:
    """The real ledger, each of whose calls is a step."""
    parts: Any = [_ProcessPart(part, process) for part in PARTS]
    return Ledger(*parts, process.world.ledger.close)


class ProcessCatalog:
    """The lake as one process sees it. `lags`: it is shown metadata of some commits ago; `hides`: only the
    snapshot that main is at, as a catalog that loads referenced snapshots only."""

    name = "lake"
    asks_each_table = False
    cycle_limits = None

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def checks_commit_base(self) -> bool:
        return not any(table.by_ref for table in self._process.world.lake.every.values())

    def tables(self) -> tuple[TableId, ...]:
        return tuple(sorted(self._process.world.lake.tables))

    def pointers(self, tables: Collection[TableId]) -> Mapping[TableId, str]:
        known = self._process.world.lake.tables
        return {t: known[t].state.metadata_location for t in tables if t in known}

    def pin(self, table: TableId, known: TableState | None = None) -> TableState:
        return self._step("pin", lambda: self._process.world.shown(table))

    def metadata_document(self, _table: TableId, location: str) -> Mapping[str, Any]:
        tables = self._process.world.lake.every.values()
        (written,) = (t for t in tables if location.startswith(f"{t.location}/"))
        return self._step("metadata_document", lambda: written.document(location))

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        manifests = self._process.world.manifests
        return self._step("measure", lambda: manifests.measure(state, self._files(state), policy))

    def live_files(self, state: TableState, partitions: Collection[str]) -> tuple[LiveFile, ...]:
        manifests = self._process.world.manifests
        return self._step("live_files", lambda: manifests.live_files(state, self._files(state), partitions))

    def changed_files(
        self, state: TableState, since: int, partitions: Collection[str]
    ) -> ChangedFiles | None:
        def read() -> ChangedFiles | None:
            earlier, later = self._process.world.lake.every[state.uuid].files[since], self._files(state)
            return ChangedFiles(
                *(
                    tuple(f for f in one if f not in other and f.partition in partitions)
                    for one, other in ((earlier, later), (later, earlier))
                )
            )

        return self._step("changed_files", read)

    def find_live(
        self, state: TableState, paths: Collection[str], *, deletes: bool = False, since: int | None = None
    ) -> frozenset[str]:
        def read() -> frozenset[str]:
            files = self._process.world.lake.every[state.uuid].files
            pinned = state.snapshot_by_id(since) if since is not None else None
            older = {s.snapshot_id for s in replace(state, snapshot=pinned).ancestors()}
            of_all = (f for s in state.snapshots if s.snapshot_id not in older for f in files[s.snapshot_id])
            return frozenset(paths) & {f.path for f in of_all if (f.kind is not FileKind.DATA) is deletes}

        return self._step("find_live", read)

    def _files(self, state: TableState) -> tuple[LiveFile, ...]:
        table = self._process.world.lake.every[state.uuid]
        return table.files[state.snapshot.snapshot_id if state.snapshot else None]

    def _step(self, name: str, call: Callable[[], Any]) -> Any:
        failure = lambda: ConfigurationError("ICM-104", "the catalog cannot be reached.")  # noqa: E731
        return self._process.step(name, call, failure)


def unknown_table(table: TableId) -> UnknownTableError:
    return UnknownTableError("ICM-126", f"{table} is not there.")


class ProcessClock:
    """The world's time with the skew of this machine's clock."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_ms(self) -> int:
        return self._process.world.lake.now_ms + self._process.skew_ms

    def monotonic_seconds(self) -> float:
        return self._process.world.lake.now_ms / 1000

    def uptime(self) -> Uptime | None:
        return None

    def sleep(self, seconds: float) -> None:
        self._process.give_way(until_ms=self._process.world.lake.now_ms + int(seconds * 1000))
