"""Maintenance of a twin by the whole product: real catalog, SQLite ledger, Spark, gate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, CommitResult, OperationOutcome
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import (
    EqualityDeletesPolicy,
    Policy,
    Reader,
    RewriteDataFilesPolicy,
    RewriteStrategy,
    Route,
)
from iceberg_maint.core.policy.runs import ForeignMaintainersPolicy, ForeignMode, RetryPolicy
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.loop.maintain import Observer, Request, maintain
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint.ports.storage import OrphanFiles
from iceberg_maint_tests.support.context import context_with, no_orphan_scan
from iceberg_maint_tests.support.loop.world import at_clock
from iceberg_maint_tests.support.spark.equality.reference import Twin
from iceberg_maint_tests.support.spark.rewrites import NO_BACKOFF, READER
from iceberg_maint_tests.support.spark.writers import Writers

AT_ONCE = RetryPolicy(backoff_seconds=0, quarantine_after=1_000_000)
"""Nothing waits, nothing is held: what goes wrong goes wrong again at once."""


def policy_of(route: Route, **rewrite: Any) -> Policy:
    """Equality deletes are due at once and by this route, and nothing else is. Spark writes the rows unless `rewrite` says
    otherwise, and it is the reader."""
    asks = {
        "equality_delete_max_age_seconds": 0,
        "min_input_files": 1000,
        "delete_ratio_act": None,
        "delete_ratio_warn": None,
        "strategy": RewriteStrategy.NATIVE,
    }
    return Policy(
        rewrite_data_files=RewriteDataFilesPolicy(**{**asks, **rewrite}),
        equality_deletes=EqualityDeletesPolicy(route=route),
        retry=AT_ONCE,
        readers=(Reader.SPARK,),
    )


class MachineClock:
    """Real time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        return time.monotonic()

    def uptime(self) -> None:
        return None

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass
class Interleaved:
    """The real engine; between the write of a batch and its commit others write."""

    engine: SparkEngine
    between: Callable[[Batch], None]

    def versions(self) -> Any:
        return self.engine.versions()

    def start(self) -> None:
        self.engine.start()

    def write(self, batch: Batch, policy: Policy) -> Written:
        written = self.engine.write(batch, policy)
        self.between(batch)
        return written

    def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        return self.engine.commit(batch, written, context)

    def abandon_calls(self) -> None:
        self.engine.abandon_calls()

    def cancel(self) -> None:
        self.engine.cancel()


@dataclass
class Maintainer:
    """Makes twins in one lake and maintains them."""

    spark: SparkSession
    lake_dir: Path
    writers: Writers = field(init=False)
    clock: Clock = field(default_factory=MachineClock)
    _names: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.writers = Writers(Bridge(self.spark))
        self.engine = SparkEngine(lambda: self.spark, lambda _table: READER, NO_BACKOFF)
        self.ledger = sql_ledger(f"sqlite:///{self.lake_dir / 'equality_ledger.db'}")
        self.catalog = PyIcebergCatalog(
            "lake",
            {
                "type": "sql",
                "uri": f"sqlite:///{self.lake_dir / 'catalog.db'}",
                "warehouse": self.lake_dir.as_uri(),
            },
        )

    def create(
        self,
        columns: str = "tag int, k int, s string",
        *,
        version: int = 2,
        partitioned_by: str = "",
        **properties: str,
    ) -> Twin:
        """A new table; properties by their name with underscores for dots and dashes."""
        name = f"lake.equality.t{next(self._names)}"
        settings = {"write.delete.mode": "merge-on-read", **properties}
        self.writers.create(
            name, columns, version=version, partitioned_by=partitioned_by, properties=settings
        )
        return Twin(self.writers, name)

    def orphan_files(self, table: TableId) -> OrphanFiles:
        """Nothing here removes files."""
        return no_orphan_scan(table)

    def partitions(self, twin: Twin) -> list[str]:
        """Partition keys of the table, sorted."""
        state = self.catalog.pin(TableId.parse(twin.name))
        return sorted(self.catalog.measure(state, RewriteDataFilesPolicy()).partitions)

    def maintain(
        self,
        twin: Twin,
        policy: Policy,
        *,
        between: Callable[[Batch], None] | None = None,
        partitions: frozenset[str] | None = None,
        operations: tuple[Operation, ...] = DATA_OPERATIONS,
        observer: Observer | None = None,
    ) -> tuple[OperationOutcome, ...]:
        """One run over the table, as the command line would start it."""
        engine: Any = self.engine if between is None else Interleaved(self.engine, between)
        request = Request(f"run-{next(self._names)}", partitions=partitions, operations=operations)
        # Stock compaction is one of the writers here, and what is done beside it is to be seen.
        beside_others = replace(policy, foreign_maintainers=ForeignMaintainersPolicy(mode=ForeignMode.IGNORE))
        table = TableId.parse(twin.name)
        context = context_with(
            {table.catalog: self.catalog},
            at_clock(self.ledger, self.clock),
            self.clock,
            lambda _table, _properties: beside_others,
            lambda: engine,
            self.orphan_files,
        )
        return maintain(table, request, context, observer)

    def heal(
        self,
        twin: Twin,
        policy: Policy,
        *,
        between: Callable[[Batch], None] | None = None,
        partitions: frozenset[str] | None = None,
    ) -> tuple[OperationOutcome, ...]:
        """One run that must keep the rows and their lineage and end well."""
        twin.check()
        outcomes = self.maintain(twin, policy, between=between, partitions=partitions)
        twin.check()
        for outcome in outcomes:
            assert outcome.outcome in SUCCESSFUL, outcome
        return outcomes
