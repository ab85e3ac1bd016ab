"""Writes the rows of a batch by the strategy `native`: Spark reads and writes them."""

from __future__ import annotations

from typing import Any

from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.policy.data import ProofLevel, RewriteDataFilesPolicy
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint.spark.deletes.anti_join import Marked
from iceberg_maint.spark.deletes.marked_rows import DeleteWork
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.jobs import PROOF, Jobs, new_job_group
from iceberg_maint.spark.proof import fingerprint
from iceberg_maint.spark.rewrite import bin_pack
from iceberg_maint.spark.rewrite.columnar.statistics import StatisticsProof, prove_statistics
from iceberg_maint.spark.scan.staging import GroupTasks
from iceberg_maint.spark.write.files import job_description, written_files
from iceberg_maint.spark.write.proof import proof_of


def write_native(
    bridge: Bridge, jobs: Jobs, work: DeleteWork, policy: RewriteDataFilesPolicy, marked: Marked | None
) -> tuple[list[Any], tuple[WrittenFile, ...], Proof, str]:
    """Writes the replacement of every group, up to `max_concurrent_groups` at once. Returns Java DataFiles, their values,
    their proof, and a note if their statistics were not compared."""
    table, batch = work.table, work.batch

    def rewrite(group_tasks: GroupTasks) -> bin_pack.GroupResult:
        return bin_pack.rewrite_group(bridge, table, batch, group_tasks, policy)

    items = [(job_description(batch, p.group.partition), p) for p in work.planned]
    results = jobs.run(bridge, new_job_group(), rewrite, items, policy.max_concurrent_groups)
    files = [(number, f) for number, r in enumerate(results) for f in bridge.iterate(r.files)]
    written = written_files(bridge, table.java, files)
    parts = [r.before for r in results if r.before is not None]
    full = policy.proof is ProofLevel.FULL
    rows = fingerprint.total(parts) if full else None
    statistics = StatisticsProof()
    if full and written:
        items_of_proof = [(job_description(batch, PROOF), written)]
        [statistics] = jobs.run(
            bridge, new_job_group(), lambda w: prove_statistics(bridge, table, w), items_of_proof, 1
        )
    proof = proof_of(results, written, policy.proof, rows, marked, statistics.difference)
    return [f for _, f in files], written, proof, statistics.note
