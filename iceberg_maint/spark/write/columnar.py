"""Writes the rows of a batch by the strategy `columnar`: tasks of the columnar engine write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint.spark.deletes.anti_join import Marked
from iceberg_maint.spark.deletes.marked_rows import DeleteWork
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.jobs import Jobs, new_job_group
from iceberg_maint.spark.rewrite.columnar.strategy import ColumnarResult, rewrite_groups
from iceberg_maint.spark.scan.staging import GroupTasks
from iceberg_maint.spark.write.files import job_description, written_file
from iceberg_maint.spark.write.proof import proof_of


def write_columnar(
    bridge: Bridge, jobs: Jobs, work: DeleteWork, policy: RewriteDataFilesPolicy, marked: Marked | None
) -> tuple[list[Any], tuple[WrittenFile, ...], Proof]:
    """Writes the replacement of all groups in one Spark job. Returns Java DataFiles, their values and their proof. Raises
    NotColumnarError if the native strategy must write the batch."""
    batch = work.batch
    marks = marked.positions if marked else {}
    deletes = (*batch.applied_deletes, *(marked.vectors if marked else ()))

    def rewrite(planned: Sequence[GroupTasks]) -> ColumnarResult:
        return rewrite_groups(bridge, work.table, batch, planned, deletes, policy, marks)

    items = [(job_description(batch, "columnar"), work.planned)]
    [result] = jobs.run(bridge, new_job_group(), rewrite, items, 1)
    written = tuple(
        written_file(text, json.loads(text), group)
        for text, group in zip(result.contents, result.groups, strict=True)
    )
    proof = proof_of([result], written, policy.proof, result.fingerprint, marked, sample=result.sample)
    return list(bridge.iterate(result.files)), written, proof
