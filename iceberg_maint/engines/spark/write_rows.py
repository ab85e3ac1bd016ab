"""Writes the rows of a batch by `columnar` or `native`, after its equality deletes are applied, and proves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from iceberg_maint.core.model.columns import CLASSES_OF_CODECS, codec_of, wrong_codec, wrong_number
from iceberg_maint.core.outcomes.verification import Fingerprint, Proof
from iceberg_maint.core.planning.row_writer import refused_output, unread_output
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.data import Policy, ProofLevel, RewriteDataFilesPolicy
from iceberg_maint.engines.spark.deletes.convert import AppliedPositions, apply_by_vectors, apply_in_memory
from iceberg_maint.engines.spark.deletes.deleted_rows import DeleteWork
from iceberg_maint.engines.spark.deletes.position_delete_rows import check_named_files
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS
from iceberg_maint.engines.spark.jvm.jobs import PROOF, Jobs, new_job_group
from iceberg_maint.engines.spark.rewrite import bin_pack
from iceberg_maint.engines.spark.rewrite.bin_pack import GroupResult
from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import NotColumnarError
from iceberg_maint.engines.spark.rewrite.columnar.statistics import StatisticsProof, prove_statistics
from iceberg_maint.engines.spark.rewrite.columnar.strategy import (
    ColumnarResult,
    is_columnar,
    native_instead,
    planned_native,
    rewrite_groups,
)
from iceberg_maint.engines.spark.rewrite.columnar.tasks import RowDeletes
from iceberg_maint.engines.spark.rewrite.columnar.written_codec import codec_to_write
from iceberg_maint.engines.spark.scan import row_proof
from iceberg_maint.engines.spark.scan.row_proof import has_deletes
from iceberg_maint.engines.spark.scan.scan import discard_files
from iceberg_maint.engines.spark.scan.staging import GroupTasks
from iceberg_maint.engines.spark.write_deletes import (
    apply_deletes,
    job_description,
    with_positions,
    written_file,
    written_files,
)
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.engine import Written, WrittenFile


def proof_of(
    results: Sequence[GroupResult | ColumnarResult],
    written: Sequence[WrittenFile],
    level: ProofLevel,
    rows: Fingerprint | None,
    applied: AppliedPositions | None,
    statistics_difference: str = "",
) -> Proof:
    """Returns the proof of the written files. `rows` is the fingerprint of the rows that were read to be kept.
    `statistics_difference` is the first difference between the files' statistics and their rows."""
    read = sum(r.read_records for r in results)
    kept = sum(r.kept_records for r in results)
    out = sum(f.record_count for f in written)
    detail = applied.difference if applied else ""
    detail = detail or next((r.difference for r in results if r.difference), "")
    detail = detail or statistics_difference
    if not detail and kept != out:
        detail = f"{kept} rows were read to be kept, {out} were written"
    if not detail and applied and read - kept < applied.deleted_records:
        detail = f"{applied.deleted_records} rows are deleted, {read - kept} were left out"
    return Proof(
        level=level.value,
        equal=not detail,
        input_records=read,
        output_records=out,
        removed_records=read - kept,
        fingerprint=None if rows is None else rows.text(),
        detail=detail,
    )


def write_columnar(
    bridge: Bridge,
    jobs: Jobs,
    work: DeleteWork,
    policy: RewriteDataFilesPolicy,
    applied: AppliedPositions | None,
) -> tuple[list[Any], tuple[WrittenFile, ...], Proof]:
    """Writes the replacement of all groups in one Spark job. Returns Java DataFiles, their values and their proof. Raises
    NotColumnarError if the native strategy must write the batch."""
    batch = work.batch
    vectors = applied.vectors if applied else ()
    deletes = RowDeletes((*batch.applied_deletes, *vectors), applied.positions if applied else {})
    rewrite = partial(rewrite_groups, bridge, work.table, batch, work.planned, deletes, policy)
    result = jobs.run_one(bridge, job_description(batch, "columnar"), rewrite)
    written = tuple(
        written_file(text, json.loads(text), group)
        for text, group in zip(result.contents, result.groups, strict=True)
    )
    proof = proof_of([result], written, policy.proof, result.fingerprint, applied)
    return list(bridge.iterate(result.files)), written, replace(proof, sample=result.sample)


def write_native(
    bridge: Bridge,
    jobs: Jobs,
    work: DeleteWork,
    policy: RewriteDataFilesPolicy,
    applied: AppliedPositions | None,
) -> tuple[list[Any], tuple[WrittenFile, ...], Proof, str]:
    """Writes the replacement of every group, up to `max_concurrent_groups` at once. Returns Java DataFiles, their values,
    their proof, and a note if their statistics were not compared."""
    table, batch = work.table, work.batch
    codec = codec_to_write(table.java, (f for p in work.planned for f in p.group.files))

    def rewrite(group_tasks: GroupTasks) -> bin_pack.GroupResult:
        return bin_pack.rewrite_group(bridge, table, batch, group_tasks, policy, codec)

    items = [(job_description(batch, p.group.partition), p) for p in work.planned]
    results = jobs.run(bridge, new_job_group(), rewrite, items, policy.max_concurrent_groups)
    files = [(number, f) for number, r in enumerate(results) for f in bridge.iterate(r.files)]
    written = written_files(bridge, table.java, files)
    parts = [r.before for r in results if r.before is not None]
    full = policy.proof is ProofLevel.FULL
    rows = row_proof.total(parts) if full else None
    statistics = StatisticsProof()
    if full and written:
        prove = partial(prove_statistics, bridge, table, written)
        statistics = jobs.run_one(bridge, job_description(batch, PROOF), prove)
    proof = proof_of(results, written, policy.proof, rows, applied, statistics.difference)
    return [f for _, f in files], written, proof, statistics.note


def write_rows(
    bridge: Bridge, jobs: Jobs, work: DeleteWork, whole_policy: Policy
) -> tuple[list[Any], Written]:
    """Writes and proves the replacement of every group. Equality deletes are applied first. Raises RefusedError ICM-180 for
    a property of the table that no writer takes, ICM-182 for one by which a reader of the policy would lose the table."""
    _check_properties(bridge, work)
    policy = whole_policy.rewrite_data_files
    assert isinstance(work.batch.work, RewriteDataFiles)
    by_native = replace(work.batch.work, writer=None).strategy
    applied: AppliedPositions | None = None
    planned = work.planned
    memory, note = None, planned_native(work.batch)
    columnar = is_columnar(work.batch, policy)
    if work.batch.equality_deletes:
        work = with_positions(bridge, jobs, work, whole_policy)
    if columnar and work.positions is not None:
        try:
            files, written, proof = write_columnar(bridge, jobs, work, policy, apply_in_memory(bridge, work))
            return files, Written(written, proof)
        except NotColumnarError as why:
            note, columnar = native_instead(work.batch, work.table, why), False
    if work.batch.equality_deletes:
        vectors, memory = apply_deletes(bridge, jobs, work, apply_by_vectors)
        applied, work = vectors, replace(work, planned=vectors.planned)
    scratch_bytes = sum(applied.scratch.values()) if applied else 0
    try:
        if columnar:
            try:
                files, written, proof = write_columnar(bridge, jobs, work, policy, applied)
                return files, Written(written, proof, memory, scratch_bytes)
            except NotColumnarError as why:
                note = native_instead(work.batch, work.table, why)
        _check_readers(bridge, work, whole_policy)
        _check_named_files(bridge, jobs, planned, work)
        files, written, proof, not_compared = write_native(bridge, jobs, work, policy, applied)
        note = "; ".join(filter(None, (note, not_compared)))
        return files, Written(written, proof, memory, scratch_bytes, note=note, strategy=by_native)
    finally:
        if applied is not None:
            # The last task has read the vectors.
            discard_files(work.table.java, applied.scratch)


def _check_properties(bridge: Bridge, work: DeleteWork) -> None:
    properties = bridge.texts_by_key(work.table.java.properties())
    if wrong := wrong_number(properties):
        fix = "correct or unset the property of the table."
        raise RefusedError("ICM-180", f"{work.batch.table}: {wrong}.", fix)
    codec = codec_of(properties)
    needed = CLASSES_OF_CODECS.get(codec)
    if wrong := wrong_codec(codec, has_class=needed is not None and _has_class(bridge, needed)):
        fix = "set the property of the table to one of these" + (
            ", or name the jar in spark.jars." if needed else "."
        )
        raise RefusedError("ICM-180", f"{work.batch.table}: {wrong}.", fix)


def _check_named_files(bridge: Bridge, jobs: Jobs, planned: Sequence[GroupTasks], work: DeleteWork) -> None:
    """Iceberg's reader does not look at the paths of other data files in a delete file. `columnar` does."""
    functions = bridge.once(JavaFunctions)
    deletes: dict[str, Any] = {}
    for group_tasks in planned:
        if has_deletes(group_tasks.group):
            of_tasks = group_tasks.tasks.stream().flatMap(functions.task_deletes).distinct()
            others = functions.to_list(of_tasks.filter(functions.is_equality_delete.negate()))
            deletes |= {str(d.location()): d for d in bridge.iterate(others)}
    check = partial(check_named_files, bridge, work.table, deletes.values(), work.batch.applied_deletes)
    if deletes:
        jobs.run_one(bridge, job_description(work.batch, "position deletes"), check)


def _check_readers(bridge: Bridge, work: DeleteWork, policy: Policy) -> None:
    """Only `native` writes what some reader does not read."""
    properties = bridge.texts_by_key(work.table.java.properties())
    brought = unread_output(properties, work.batch.groups, columnar=False)
    if refused := refused_output(brought, policy.readers):
        fix = (
            "set write.format.default or write.parquet.compression-codec of the table to what they read, or change "
            "the policy key."
        )
        raise RefusedError("ICM-182", f"{work.batch.table}: {refused}.", fix)


def _has_class(bridge: Bridge, name: str) -> bool:
    try:
        bridge.jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except JVM_ERRORS:
        return False
    return True
