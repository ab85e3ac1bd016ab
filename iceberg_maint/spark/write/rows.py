"""Writes the replacement of a batch's data files by the strategy of its plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iceberg_maint.core.model.parquet_properties import (
    CLASSES_OF_CODECS,
    codec_of,
    wrong_codec,
    wrong_number,
)
from iceberg_maint.core.planning.unread_output import refused_output, unread_output
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.engine import Written
from iceberg_maint.spark.deletes.anti_join import Marked, discard, mark, mark_in_memory
from iceberg_maint.spark.deletes.marked_rows import DeleteWork
from iceberg_maint.spark.jvm.bridge import JVM_ERRORS, Bridge
from iceberg_maint.spark.jvm.jobs import Jobs
from iceberg_maint.spark.rewrite.columnar.file_io import NotColumnarError
from iceberg_maint.spark.rewrite.columnar.strategy import is_columnar, native_instead, planned_native
from iceberg_maint.spark.write.columnar import write_columnar
from iceberg_maint.spark.write.deletes import apply_deletes, with_positions
from iceberg_maint.spark.write.native import write_native


def write_rows(
    bridge: Bridge, jobs: Jobs, work: DeleteWork, whole_policy: Policy
) -> tuple[list[Any], Written]:
    """Writes and proves the replacement of every group. Equality deletes are applied first. Raises RefusedError ICM-180 for
    a property of the table that no writer takes, ICM-182 for one by which a reader of the policy would lose the table."""
    _check_properties(bridge, work)
    policy = whole_policy.rewrite_data_files
    assert isinstance(work.batch.work, RewriteDataFiles)
    by_native = replace(work.batch.work, writer=None).strategy
    marked: Marked | None = None
    memory, note = None, planned_native(work.batch)
    columnar = is_columnar(work.batch, policy)
    if work.batch.equality_deletes:
        work = with_positions(bridge, jobs, work, whole_policy)
    if columnar and work.positions is not None:
        try:
            files, written, proof = write_columnar(bridge, jobs, work, policy, mark_in_memory(bridge, work))
            return files, Written(written, proof)
        except NotColumnarError as why:
            note, columnar = native_instead(work.batch, work.table, why), False
    if work.batch.equality_deletes:
        vectors, memory = apply_deletes(bridge, jobs, work, mark)
        marked, work = vectors, replace(work, planned=vectors.planned)
    scratch_bytes = sum(marked.scratch.values()) if marked else 0
    try:
        if columnar:
            try:
                files, written, proof = write_columnar(bridge, jobs, work, policy, marked)
                return files, Written(written, proof, memory, scratch_bytes)
            except NotColumnarError as why:
                note = native_instead(work.batch, work.table, why)
        _check_readers(bridge, work, whole_policy)
        files, written, proof, not_compared = write_native(bridge, jobs, work, policy, marked)
        note = "; ".join(filter(None, (note, not_compared)))
        return files, Written(written, proof, memory, scratch_bytes, note=note, strategy=by_native)
    finally:
        if marked is not None:
            discard(work, marked)


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
