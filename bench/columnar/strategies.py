"""What the benches of `columnar` share: their session, their tables, and the ways of a rewrite that they compare."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".cache"
TABLE, WARM = "lake.bench.lineitem", "lake.bench.warm"

SPARKS_DEFAULTS = {"spark.hadoop.parquet.page.verify-checksum.enabled": "false"}
"""Settings that a session of a user of Spark has and one of this project has not."""


def session(folder: Path, more: Mapping[str, str] | None = None) -> Any:
    """A session of this project over the catalog and the warehouse in the folder."""
    from iceberg_maint.engines.spark.session.jars import ivy_fetch, load_lock, resolve_jars
    from iceberg_maint.engines.spark.session.java import find_java
    from iceberg_maint.engines.spark.session.session import build_session
    from iceberg_maint.engines.spark.session.settings import SparkSettings, catalog_conf

    java = find_java(os.environ, shim_dir=CACHE / "java")
    os.environ["JAVA_HOME"] = str(java.path)
    jars = resolve_jars(load_lock().jars, CACHE / "jars", ivy_fetch(java))
    catalog = catalog_conf(
        "lake", "jdbc", f"sqlite:///{folder / 'catalog.db'}", f"file://{folder / 'wh'}", {}
    )
    conf = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "4", **(more or {})}
    settings = SparkSettings(
        "local[2]", tuple(map(str, jars)), {"lake": catalog}, conf, str(folder / "spark"), CACHE / "classes"
    )
    return build_session(settings)


class Stock:
    """Iceberg's own action with its defaults, but every file, and one commit."""

    def __init__(self, spark: Any) -> None:
        from iceberg_maint.engines.spark.jvm.bridge import Bridge

        self.bridge = Bridge(spark)
        self.warm_start = int(self.bridge.load_table(WARM).currentSnapshot().snapshotId())

    def rewrite(self, name: str) -> int:
        """Returns the number of files written."""
        actions = self.bridge.iceberg.spark.actions.SparkActions.get(self.bridge.session)
        action = actions.rewriteDataFiles(self.bridge.load_table(name)).binPack()
        result = action.option("rewrite-all", "true").execute()
        return int(result.addedDataFilesCount())


class Product:
    """The product's way from the pinned state to the commit."""

    def __init__(self, spark: Any, folder: Path, proof: str) -> None:
        from iceberg_maint.catalog.adapter import PyIcebergCatalog
        from iceberg_maint.catalog.manifests.entries import read_entries
        from iceberg_maint.catalog.manifests.reader import make_reader, read_manifest_list
        from iceberg_maint.core.commits.change import MetadataReader
        from iceberg_maint.core.policy.data import ProofLevel, RewriteDataFilesPolicy
        from iceberg_maint.engines.spark.engine import SparkEngine
        from iceberg_maint.engines.spark.jvm.bridge import Bridge

        self.bridge = Bridge(spark)
        self.warm_start = int(self.bridge.load_table(WARM).currentSnapshot().snapshotId())
        uri, warehouse = f"sqlite:///{folder / 'catalog.db'}", f"file://{folder / 'wh'}"
        self.catalog = PyIcebergCatalog("lake", {"type": "sql", "uri": uri, "warehouse": warehouse})
        self.policy = RewriteDataFilesPolicy(proof=ProofLevel(proof))

        def reader_of(table: str) -> MetadataReader:
            from iceberg_maint.core.model.ids import TableId

            io = self.catalog.io_of(TableId.parse(table))
            return MetadataReader(
                lambda at: read_manifest_list(io, at), make_reader(io), lambda m: read_entries(io, m)
            )

        self.engine = SparkEngine(lambda: spark, reader_of)

    def rewrite(self, name: str) -> int:
        """Returns the number of files written."""
        from iceberg_maint.core.model.ids import Operation, TableId
        from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
        from iceberg_maint.core.outcomes.outcome import CommitStatus
        from iceberg_maint.core.planning.file_groups import PlanInputs
        from iceberg_maint.core.planning.rewrite_data_files import plan_rewrite
        from iceberg_maint.core.policy.data import DEFAULT_TARGET_FILE_SIZE_BYTES, Policy
        from iceberg_maint_tests.support.context import commit_context

        state = self.catalog.pin(TableId.parse(name))
        policy = Policy(rewrite_data_files=self.policy)
        keys = tuple(self.catalog.measure(state, self.policy).partitions)
        due = tuple(PartitionDecision(key, Verdict.RUN, Reason.FORCED) for key in keys)
        decision = Decision(name, Operation.REWRITE_DATA_FILES, Verdict.RUN, Reason.FORCED, None, due)
        live = self.catalog.live_files(state, keys)
        plan = plan_rewrite(PlanInputs(state, decision, live, policy, DEFAULT_TARGET_FILE_SIZE_BYTES))
        outputs = 0
        for batch in plan.batches:
            written = self.engine.write(batch, policy)
            assert written.proof.equal, written.proof.detail
            ticket = commit_context(uuid4().hex, 1, "bench", 1, lambda: True, lambda _base, _location: None)
            result = self.engine.commit(batch, written, ticket)
            assert result.status is CommitStatus.COMMITTED, result.message
            outputs += len(written.files)
        return outputs
