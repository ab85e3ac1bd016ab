"""Writes positions of deleted rows, and returns the files of a written batch: as Java objects for its commit, as values for the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from iceberg_maint.core.commits.change import Identity
from iceberg_maint.core.commits.intent import keeps_data_files
from iceberg_maint.core.model.columns import KeyMetadata
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.planning.batch_memory import MemoryUse, Preflight
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.spark_memory import memory_of
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark.commit.rewrite_files import BatchFiles
from iceberg_maint.engines.spark.deletes.convert import Converted, convert
from iceberg_maint.engines.spark.deletes.deleted_rows import DeleteWork
from iceberg_maint.engines.spark.deletes.key_files import key_bounds, keys_without_null
from iceberg_maint.engines.spark.deletes.merge_position_deletes import merge
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import content_file_from_json, content_jsons
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.jvm.java_errors import DEAD_JVM_ERRORS, one_line
from iceberg_maint.engines.spark.jvm.jobs import Jobs, new_job_group
from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import NotColumnarError
from iceberg_maint.engines.spark.rewrite.columnar.key_positions import find_deleted_positions
from iceberg_maint.engines.spark.rewrite.columnar.strategy import native_instead
from iceberg_maint.engines.spark.scan.iceberg_reader import DeleteFiles
from iceberg_maint.engines.spark.scan.staging import GroupTasks, plan_tasks, planned_delete_files
from iceberg_maint.engines.spark.session.executors import measured, ran_out
from iceberg_maint.ports.engine import MemoryExceededError, Written, WrittenFile


def written_files(
    bridge: Bridge, java_table: Any, files: Sequence[tuple[int, Any]]
) -> tuple[WrittenFile, ...]:
    """Returns the Java files, each given with the number of its group, as values."""
    texts = content_jsons(bridge, java_table, [f for _, f in files])
    numbers = [number for number, _ in files]
    return tuple(
        written_file(text, json.loads(text), number) for number, text in zip(numbers, texts, strict=True)
    )


def written_file(text: str, content: Mapping[str, Any], group: int) -> WrittenFile:
    """Returns a file as a value. `text` is its content-file JSON, `content` the same parsed."""
    offset = content.get("content-offset")
    kind = FileKind.DATA
    if content["content"].upper() != "DATA":
        kind = FileKind.POSITION_DELETES if offset is None else FileKind.DELETION_VECTOR
    return WrittenFile(
        path=content["file-path"],
        size_bytes=content["file-size-in-bytes" if offset is None else "content-size-in-bytes"],
        record_count=content["record-count"],
        spec_id=content["spec-id"],
        group=group,
        content=text,
        kind=kind,
        content_offset=offset,
        referenced_data_file=content.get("referenced-data-file"),
    )


def restore_batch_files(bridge: Bridge, batch: Batch, java_table: Any, written: Written) -> BatchFiles:
    """Returns the files of a batch that another process has written, from their content-file JSON."""
    planned = plan_tasks(bridge, java_table, batch)
    outputs = {
        (f.path, f.content_offset): content_file_from_json(bridge, java_table, f.content)
        for f in written.files
    }
    deletes = planned_delete_files(bridge, java_table, batch, batch.equality_deletes)
    others = planned_delete_files(bridge, java_table, batch, batch.position_deletes)
    return files_of_batch(bridge, batch, planned, deletes.with_others(bridge, others), outputs)


def files_of_batch(
    bridge: Bridge,
    batch: Batch,
    planned: Sequence[GroupTasks],
    deletes: DeleteFiles,
    outputs: Mapping[Identity, Any],
) -> BatchFiles:
    """Returns the files of the plan, each once, with the given delete files and those of its tasks."""
    java_functions = bridge.once(JavaFunctions)
    tasks = bridge.list(())
    for group_tasks in planned:
        if not keeps_data_files(batch.work):
            tasks.addAll(group_tasks.tasks)
        if any(f.delete_files for f in group_tasks.group.files):
            task_deletes = group_tasks.tasks.stream().flatMap(java_functions.task_deletes).distinct()
            others = java_functions.to_list(task_deletes.filter(java_functions.is_equality_delete.negate()))
            deletes = deletes.with_others(bridge, DeleteFiles(bridge, others))
    sources = java_functions.to_list(tasks.stream().map(java_functions.task_file))
    return BatchFiles(sources, deletes, outputs)


def job_description(batch: Batch, what: str) -> str:
    """The description of the batch's Spark jobs."""
    return f"{batch.table} {what} (batch {batch.batch_id})"


_Result = TypeVar("_Result")


def write_conversion(
    bridge: Bridge, jobs: Jobs, work: DeleteWork, policy: Policy
) -> tuple[list[Any], Written]:
    """Writes the positions of the rows that the batch's equality deletes delete."""
    work = with_positions(bridge, jobs, work, policy)
    converted, memory = apply_deletes(bridge, jobs, work, convert)
    return _written_deletes(bridge, work, converted, memory)


def write_merge(
    bridge: Bridge, jobs: Jobs, work: DeleteWork, deletes: Mapping[Identity, Any]
) -> tuple[list[Any], Written]:
    """Writes the positions of the batch's position deletes."""
    run = partial(merge, bridge, work.table, work.batch, work.planned, deletes)
    merged = jobs.run_one(bridge, job_description(work.batch, "position deletes"), run)
    return _written_deletes(bridge, work, merged, None)


def with_positions(bridge: Bridge, jobs: Jobs, work: DeleteWork, policy: Policy) -> DeleteWork:
    """Returns the work with the positions of its deleted rows, if Arrow can find them. Else the join finds them, within
    the memory of the preflight. Raises RefusedError ICM-135 if Spark cannot read the table, ICM-119 for a delete file with
    keys outside its bounds."""
    if work.preflight is None:
        return work
    contents = map(json.loads, content_jsons(bridge, work.table.java, work.deletes.java))
    metadata = {c["file-path"]: KeyMetadata(key_bounds(c), keys_without_null(c)) for c in contents}
    find = partial(find_deleted_positions, bridge, work.table, work.batch, work.planned, metadata, policy)
    try:
        positions = jobs.run_one(bridge, job_description(work.batch, "equality deletes"), find)
    except NotColumnarError as why:
        native_instead(work.batch, work.table, why)
        return work
    return replace(work, preflight=None, positions=positions)


def apply_deletes(
    bridge: Bridge, jobs: Jobs, work: DeleteWork, apply: Callable[[Bridge, DeleteWork], _Result]
) -> tuple[_Result, MemoryUse | None]:
    """Applies equality deletes with `apply` and measures the memory used."""
    job_group = new_job_group()
    items = [(job_description(work.batch, "equality deletes"), work)]
    with measured(bridge, job_group) as peak_bytes:
        try:
            [result] = jobs.run(bridge, job_group, lambda w: apply(bridge, w), items, 1)
        except Exception as why:
            if work.preflight is None or not ran_out(why):
                raise
            raise _exceeded(work, work.preflight, peak_bytes, why) from why
        return result, None if work.preflight is None else _use(work, work.preflight, peak_bytes())


def _use(work: DeleteWork, preflight: Preflight, peak_bytes: int) -> MemoryUse:
    need = memory_of(work.batch)
    correction = need.correction if need else 1.0
    return MemoryUse(
        preflight.estimated_bytes, peak_bytes, preflight.partitions, preflight.passes, correction
    )


def _exceeded(
    work: DeleteWork, preflight: Preflight, peak_bytes: Callable[[], int], why: Exception
) -> MemoryExceededError:
    peak = 0
    with suppress(*DEAD_JVM_ERRORS):
        peak = peak_bytes()
    return MemoryExceededError(
        f"{work.batch.table}: Spark ran out of memory while it applied {len(work.batch.equality_deletes)} "
        f"equality delete files, for which {preflight.estimated_bytes} bytes were estimated: {one_line(why)}",
        replace(_use(work, preflight, peak), exceeded=True),
    )


def _written_deletes(
    bridge: Bridge, work: DeleteWork, converted: Converted, memory: MemoryUse | None
) -> tuple[list[Any], Written]:
    """Returns Java DeleteFiles, each of one data file, and their description."""
    group_of = {f.path: number for number, g in enumerate(work.batch.groups) for f in g.files}
    values = []
    for text in content_jsons(bridge, work.table.java, converted.files):
        content = json.loads(text)
        path = content["referenced-data-file"]
        values.append(
            replace(written_file(text, content, group_of[path]), replaces=converted.replaced.get(path))
        )
    return list(converted.files), Written(tuple(values), converted.proof, memory)
