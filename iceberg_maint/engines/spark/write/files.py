"""The files of a written batch: as Java objects for its commit, and as values that the ledger stores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.commits.intent import keeps_data_files
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.content_files import content_file_from_json, content_jsons
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.scan.delete_files import DeleteFiles
from iceberg_maint.engines.spark.scan.staging import GroupTasks, plan_tasks, planned_delete_files
from iceberg_maint.ports.engine import Written, WrittenFile

FileIdentity = tuple[str, int | None]
"""Path and content offset of a file. Deletion vectors may share a path."""


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """Java objects of one written batch, kept from its write to its commit: the data files that it
    replaces, the delete files of the plan, and the files that it adds. The commit removes some of the
    delete files."""

    sources: Sequence[Any]
    deletes: DeleteFiles
    outputs: Mapping[FileIdentity, Any]


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
    outputs: Mapping[FileIdentity, Any],
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
