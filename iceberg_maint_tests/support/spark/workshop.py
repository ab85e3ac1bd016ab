"""A lake to rewrite tables of, as the product does it: catalog, planner, engine, gate."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.outcomes.outcome import CommitResult
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.file_groups import PlanInputs, applied_deletes, candidates
from iceberg_maint.core.planning.plan import Batch, BatchBody, batch_id
from iceberg_maint.core.planning.rewrite_data_files import plan_rewrite
from iceberg_maint.core.planning.work import EqualityDeleteFile, FileGroup, InputFile
from iceberg_maint.core.policy.data import (
    OutputSpec,
    Policy,
    ProofLevel,
    RewriteDataFilesPolicy,
    RewriteStrategy,
)
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.support.context import commit_context
from iceberg_maint_tests.support.spark.rewrites import NO_BACKOFF, READER
from iceberg_maint_tests.support.spark.writers import Writers

FULL = Policy(rewrite_data_files=RewriteDataFilesPolicy(strategy=RewriteStrategy.NATIVE))
"""Spark writes the rows. The tests of `columnar` name it; the program, the ends of runs and the killed runs have the
default."""
FOOTER = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, proof=ProofLevel.FOOTER))
TARGET_BYTES = 1 << 20

_names = itertools.count()


@dataclass
class Workshop:
    """Plans, writes and commits on one session and catalog."""

    spark: SparkSession
    catalog: PyIcebergCatalog
    bridge: Bridge = field(init=False)
    writers: Writers = field(init=False)
    engine: SparkEngine = field(init=False)

    def __post_init__(self) -> None:
        self.bridge = Bridge(self.spark)
        self.writers = Writers(self.bridge)
        self.engine = SparkEngine(lambda: self.spark, lambda _table: READER, NO_BACKOFF)

    def new_name(self, prefix: str) -> str:
        """A table name not used before."""
        return f"lake.{prefix}.t{next(_names)}"

    def sql(self, statement: str) -> Any:
        return self.spark.sql(statement)

    def batch(
        self,
        name: str,
        *,
        partitions: Sequence[str] | None = None,
        output_spec: OutputSpec = OutputSpec.OWN,
        target_bytes: int = TARGET_BYTES,
        strategy: RewriteStrategy = RewriteStrategy.AUTO,
    ) -> Batch:
        """The one batch that rewrites these partitions whole (all by default)."""
        state = self.catalog.pin(TableId.parse(name))
        rewrite = RewriteDataFilesPolicy(output_spec=output_spec, strategy=strategy)
        policy = Policy(rewrite_data_files=rewrite)
        keys = partitions or tuple(self.catalog.measure(state, policy.rewrite_data_files).partitions)
        due = tuple(PartitionDecision(key, Verdict.RUN, Reason.FORCED) for key in keys)
        decision = Decision(name, "rewrite_data_files", Verdict.RUN, Reason.FORCED, None, due)
        live = self.catalog.live_files(state, keys)
        [batch] = plan_rewrite(PlanInputs(state, decision, live, policy, target_bytes)).batches
        return batch

    def cleaning(self, name: str, operation: Operation, *, drop: bool = True) -> Batch:
        """The batch that applies all equality deletes to all data files under them. Without any
        such file nothing but the deletes is in it."""
        state = self.catalog.pin(TableId.parse(name))
        assert state.snapshot is not None
        keys = tuple(self.catalog.measure(state, RewriteDataFilesPolicy()).partitions)
        live = self.catalog.live_files(state, keys)
        deletes = [f for f in live if f.kind is FileKind.EQUALITY_DELETES]
        applied: dict[str, list[str]] = {}
        under: set[str] = set()
        for task in self.writers.tasks(self.writers.load(name)):
            path = str(task.file().location())
            for delete in self.bridge.iterate(task.deletes()):
                if str(delete.content().toString()) == "EQUALITY_DELETES":
                    under.add(path)
                else:
                    applied.setdefault(path, []).append(str(delete.location()))
        groups: dict[tuple[str, int], list[InputFile]] = {}
        for file in live:
            if file.path in under:
                groups.setdefault((file.partition, file.spec_id), []).append(
                    InputFile(
                        file.path,
                        file.size_bytes,
                        file.record_count,
                        file.data_sequence_number,
                        tuple(sorted(applied.get(file.path, ()))),
                        file.first_row_id,
                    )
                )
        converts = operation is Operation.CONVERT_EQUALITY_DELETES
        return BatchBody(
            batch_id=batch_id(state.uuid, operation, state.snapshot.snapshot_id, frozenset(under)),
            table=name,
            table_uuid=state.uuid,
            operation=operation,
            strategy="convert" if converts else "anti-join",
            format_version=state.format_version,
            snapshot_id=state.snapshot.snapshot_id,
            snapshot_sequence_number=state.snapshot.sequence_number,
            schema_id=state.schema_id,
            groups=tuple(FileGroup(p, s, s, tuple(files), 1) for (p, s), files in groups.items()),
            target_file_size_bytes=TARGET_BYTES,
            equality_deletes=tuple(
                EqualityDeleteFile(
                    path=d.path,
                    spec_id=d.spec_id,
                    partition=d.partition,
                    everywhere=state.specs[d.spec_id].is_unpartitioned,
                    equality_ids=d.equality_ids,
                    data_sequence_number=d.data_sequence_number,
                    record_count=d.record_count,
                    size_bytes=d.size_bytes,
                    drop=drop,
                )
                for d in deletes
            ),
            memory=MemoryNeed(sum(d.record_count for d in deletes), 16, 1000) if groups else None,
            applied_deletes=applied_deletes(
                c for some in candidates(state.specs, live).values() for c in some if c.file.path in under
            ),
        ).batch()

    def commit(self, batch: Batch, written: Written, *, engine: SparkEngine | None = None) -> CommitResult:
        context = commit_context(
            f"token-{batch.batch_id}", 1, "run", 1, lambda: True, lambda _base, _location: None
        )
        return (engine or self.engine).commit(batch, written, context)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """Rows by Spark, as text, sorted."""
        return sorted((tuple(r) for r in self.spark.table(name).collect()), key=repr)

    def lineage(self, name: str) -> list[tuple[Any, ...]]:
        frame = self.spark.table(name).select("*", "_row_id", "_last_updated_sequence_number")
        return sorted((tuple(r) for r in frame.collect()), key=repr)


def workshop_of(spark: SparkSession, lake_dir: Path) -> Workshop:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{lake_dir / 'catalog.db'}",
        "warehouse": lake_dir.as_uri(),
    }
    return Workshop(spark, PyIcebergCatalog("lake", properties))
