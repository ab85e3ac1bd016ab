"""The proof of a rewrite of rows: what its groups report, and the rows that were marked deleted."""

from __future__ import annotations

from collections.abc import Sequence

from iceberg_maint.core.outcomes.proof import Fingerprint, Proof
from iceberg_maint.core.policy.data import ProofLevel
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint.spark.deletes.anti_join import Marked
from iceberg_maint.spark.rewrite.bin_pack import GroupResult
from iceberg_maint.spark.rewrite.columnar.strategy import ColumnarResult


def proof_of(
    results: Sequence[GroupResult | ColumnarResult],
    written: Sequence[WrittenFile],
    level: ProofLevel,
    rows: Fingerprint | None,
    marked: Marked | None,
    statistics_difference: str = "",
    sample: str | None = None,
) -> Proof:
    """Returns the proof of the written files. `rows` is the fingerprint of the rows that were read to be kept.
    `statistics_difference` is the first difference between the files' statistics and their rows. `sample` is what an
    independent decoder compared."""
    read = sum(r.read_records for r in results)
    kept = sum(r.kept_records for r in results)
    out = sum(f.record_count for f in written)
    detail = marked.difference if marked else ""
    detail = detail or next((r.difference for r in results if r.difference), "")
    detail = detail or statistics_difference
    if not detail and kept != out:
        detail = f"{kept} rows were read to be kept, {out} were written"
    if not detail and marked and read - kept < marked.marked_records:
        detail = f"{marked.marked_records} rows are marked deleted, {read - kept} were left out"
    return Proof(
        level=level.value,
        equal=not detail,
        input_records=read,
        output_records=out,
        removed_records=read - kept,
        fingerprint=None if rows is None else rows.text(),
        detail=detail,
        sample=sample,
    )
