"""The strategy `columnar`: rewrites the groups of a batch with Arrow, one task per output file, in one Spark job.

The plan, the staged tasks, the gate, the intent and the commit are those of every rewrite. The rows do not pass through
Spark. A task reads whole input files in their order, drops deleted rows, writes one output file, reads it back from
storage and compares it with its input (`iceberg_maint.columnar`). The driver builds all Java DataFiles in one call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from iceberg_maint.core.decisions.applicability import COLUMNAR_TYPES, column_list
from iceberg_maint.core.model.columns import base_type
from iceberg_maint.core.outcomes.verification import FILES_ALGORITHM, Fingerprint
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import InputFile, RewriteDataFiles
from iceberg_maint.core.policy.data import ProofLevel, RewriteDataFilesPolicy, RewriteStrategy
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import content_files_from_json, json_spec
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, causes
from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import (
    NotColumnarError,
    TaskMemoryError,
    io_of,
)
from iceberg_maint.engines.spark.rewrite.columnar.job import (
    MEMORY_SETTING,
    MOST_DECODED_BYTES,
    InDriver,
    Workers,
    declared_memory,
    run_tasks,
)
from iceberg_maint.engines.spark.rewrite.columnar.sample import Draw, compare_sample
from iceberg_maint.engines.spark.rewrite.columnar.tasks import (
    NewLocations,
    Output,
    RowDeletes,
    TaskMaker,
    divided,
    new_operation_id,
)
from iceberg_maint.engines.spark.rewrite.columnar.worker import (
    TaskResult,
    digest_task,
    of_attempt,
    rewrite_task,
)
from iceberg_maint.engines.spark.rewrite.columnar.workers import CRASHED
from iceberg_maint.engines.spark.rewrite.columnar.written_codec import codec_to_write
from iceberg_maint.engines.spark.scan.positions import Positions
from iceberg_maint.engines.spark.scan.scan import Table, discard_files
from iceberg_maint.engines.spark.scan.staging import GroupTasks
from iceberg_maint.errors import LOST_FILE_FIX, RefusedError
from iceberg_maint.ports.engine import WrittenFile

_CRASHED_BY_SPARK = "Python worker exited unexpectedly"
_ATTEMPTS = 4
"""Of a task, by default: `spark.task.maxFailures`."""


def fingerprint(files: Iterable[tuple[int, str]]) -> Fingerprint:
    """The fingerprint of files by their bytes, each given with its record count and its digest: `sha256-files-1`. A task has
    compared the rows. From then on the bytes prove the files, columns that Spark cannot read included."""
    rows, sums = 0, [0, 0, 0, 0]
    for records, digest in files:
        rows += records
        for i in range(4):
            sums[i] = (sums[i] + int(digest[16 * i : 16 * i + 16], 16)) & ((1 << 64) - 1)
    return Fingerprint(rows, ((sums[0], sums[1]), (sums[2], sums[3])), FILES_ALGORITHM)


@dataclass(frozen=True, slots=True)
class ColumnarResult:
    """The files of a batch as Java DataFiles in a `java.util.List`, their content-file JSON and the index of their
    group in the batch, all in one order. `difference` is "" if the proof holds. `sample` is what Iceberg's reader compared,
    None if the batch was not drawn."""

    files: Any
    contents: tuple[str, ...]
    groups: tuple[int, ...]
    read_records: int
    kept_records: int
    fingerprint: Fingerprint
    difference: str
    sample: str | None = None


def is_columnar(batch: Batch, policy: RewriteDataFilesPolicy) -> bool:
    """Whether the plan and the policy have `columnar` write the batch. A plan may be older than the policy."""
    work = batch.work
    planned = isinstance(work, RewriteDataFiles) and work.writer is not None and work.writer.columnar
    return planned and policy.strategy is not RewriteStrategy.NATIVE


def planned_native(batch: Batch) -> str:
    """A note on a batch that its plan gives to `native`: why it does not qualify for `columnar`. "" if the policy names
    `native`, and for a batch that `columnar` was to write."""
    work = batch.work
    if not isinstance(work, RewriteDataFiles) or work.writer is None or work.writer.columnar:
        return ""
    return _by_native(work.writer.reason)


def _by_native(reason: object) -> str:
    return f"written by native: {reason}"


def native_instead(batch: Batch, table: Table, reason: NotColumnarError) -> str:
    """A note on a batch that `native` writes although `columnar` was planned. Raises RefusedError ICM-135 if Spark
    cannot read the table, ICM-124 if `columnar` ran out of memory for it."""
    schema = table.java.schema()
    unread = {
        str(schema.findColumnName(i)): kind
        for i, kind in table.types.items()
        if base_type(kind) in COLUMNAR_TYPES
    }
    if unread and isinstance(reason, TaskMemoryError):
        raise RefusedError(
            "ICM-124",
            f"{batch.table}: {reason}; Spark does not read {column_list(unread)}.",
            f"raise {MEMORY_SETTING}, or give the machine more memory.",
        )
    if unread:
        raise RefusedError(
            "ICM-135",
            f"{batch.table}: columnar cannot rewrite these files, because {reason}; Spark does not read "
            f"{column_list(unread)}.",
            "rewrite the files with an engine that reads the column.",
        )
    fix = ". Fix: raise it, or give the machine more memory" if isinstance(reason, TaskMemoryError) else ""
    return f"{_by_native(reason)}{fix}"


def fingerprint_bytes(bridge: Bridge, java_table: Any, files: Sequence[WrittenFile]) -> Fingerprint:
    """The fingerprint of written files of a table by their present bytes. Raises NotColumnarError if Arrow cannot read
    them with the settings of the table's FileIO."""
    paths, sizes = [f.path for f in files], [f.size_bytes for f in files]
    digests = run_tasks(bridge, digest_task, paths, sizes, io_of(java_table, paths), InDriver(0))
    return fingerprint(zip((f.record_count for f in files), digests, strict=True))


def rewrite_groups(
    bridge: Bridge,
    table: Table,
    batch: Batch,
    planned: Sequence[GroupTasks],
    deletes: RowDeletes,
    policy: RewriteDataFilesPolicy,
) -> ColumnarResult:
    """Writes the replacement of all groups and proves it. Commits nothing.

    `deletes` are those that apply to a file of the groups. Raises NotColumnarError
    if `native` must write the batch, among others TaskMemoryError if a task had too little memory, RefusedError ICM-101 if a task read other rows than the plan lists.
    """
    if problem := bridge.once(Workers).problem():
        raise NotColumnarError(problem)
    outputs = _outputs(bridge, table, planned)
    inputs = [f for p in planned for f in p.group.files]
    io = io_of(
        table.java,
        [*(f.path for f in inputs), *(d.path for d in deletes.files), *(o.location for o in outputs)],
    )
    codec = codec_to_write(table.java, inputs)
    maker = TaskMaker(bridge, table, batch.format_version, deletes, policy.proof, codec)
    tasks = [
        maker.task(o.location, o.files, o.template, planned[o.group].group.input_bytes).to_json()
        for o in outputs
    ]
    rows = sum(f.record_count for o in outputs for f in o.files)
    sizes = [o.input_bytes for o in outputs]
    here = partial(rewrite_task, most_decoded_bytes=MOST_DECODED_BYTES)
    # The size of delete files is not among the input bytes.
    in_driver = None if deletes.files else InDriver(rows * len(table.types), here)
    try:
        texts = run_tasks(bridge, rewrite_task, tasks, sizes, io, in_driver)
    except JVM_ERRORS as why:
        if not (crash := _crash(why)):
            raise
        discard_files(table.java, [of_attempt(o.location, n) for o in outputs for n in range(_ATTEMPTS)])
        raise NotColumnarError(crash) from why
    results = [TaskResult.of_text(text) for text in texts]
    if unsupported := next((r.unsupported for r in results if r.unsupported), ""):
        discard_files(table.java, [r.path for r in results])
        raise NotColumnarError(unsupported)
    if short := next((r.out_of_memory for r in results if r.out_of_memory), ""):
        discard_files(table.java, [r.path for r in results])
        raise TaskMemoryError(f"a task ran out of memory ({short}); {declared_memory(bridge)}")
    if wrong := next((r.wrong_input for r in results if r.wrong_input), ""):
        raise wrong_file(batch, wrong)
    result = _result(bridge, table, batch, outputs, results, deletes.deleted_positions)
    draw = Draw(batch.batch_id)
    if (
        result.difference
        or policy.proof is not ProofLevel.FULL
        or not draw.falls_in(policy.independent_sample)
    ):
        return result
    written = list(zip(outputs, results, strict=True))
    sample = compare_sample(bridge, table, planned, deletes, written, draw)
    return replace(result, difference=sample.difference, sample=sample.text)


def _crash(error: BaseException) -> str:
    """What the error says if a task has ended its process, as C++ does without memory, else ""."""
    texts = [text for _, text in causes(error)]
    by_spark = _CRASHED_BY_SPARK if any(_CRASHED_BY_SPARK in text for text in texts) else ""
    return next((text for text in texts if text.startswith(CRASHED)), by_spark)


def wrong_file(batch: Batch, problem: str) -> RefusedError:
    """The refusal of a batch with a file that does not hold what metadata state. `problem` names the file, and a fix if that
    is not to restore the file."""
    return RefusedError("ICM-101", f"{batch.table}: {problem}", "" if " Fix: " in problem else LOST_FILE_FIX)


def _outputs(bridge: Bridge, table: Table, planned: Sequence[GroupTasks]) -> list[Output]:
    """The output files of all groups."""
    new_location = NewLocations(table.java, new_operation_id())
    specs = {i: json_spec(bridge, table.java.specs()[i]) for i in {p.group.spec_id for p in planned}}
    outputs: list[Output] = []
    for number, group_tasks in enumerate(planned):
        file = group_tasks.tasks.get(0).file()
        template = content_of_file(bridge, file, specs[group_tasks.group.spec_id])
        for files in divided(group_tasks.group):
            location = new_location(file, group_tasks.group.spec_id, len(outputs))
            outputs.append(Output(location, number, template, files))
    return outputs


def content_of_file(bridge: Bridge, file: Any, spec: Any) -> dict[str, Any]:
    """The content-file JSON of a Java file."""
    content: dict[str, Any] = json.loads(bridge.iceberg.ContentFileParser.toJson(file, spec))
    return content


def _result(
    bridge: Bridge,
    table: Table,
    batch: Batch,
    outputs: Sequence[Output],
    results: Sequence[TaskResult],
    deleted_positions: Positions,
) -> ColumnarResult:
    contents: list[str] = []
    groups: list[int] = []
    digests: list[tuple[int, str]] = []
    difference = ""
    for output, result in zip(outputs, results, strict=True):
        planned = sum(f.record_count for f in output.files)
        if result.read_records != planned:
            raise RefusedError(
                "ICM-101",
                f"{batch.table}: a task read {result.read_records} rows of {len(output.files)} planned files with "
                f"{planned}",
                "report this; nothing was committed.",
            )
        difference = (
            difference or result.difference or deleted_difference(output.files, result, deleted_positions)
        )
        if result.content is not None:
            kept = {k: v for k, v in output.template.items() if k in _KEPT}
            contents.append(json.dumps({**kept, **result.content}))
            groups.append(output.group)
            digests.append((result.written_records, result.digest))
    return ColumnarResult(
        files=content_files_from_json(bridge, table.java, contents),
        contents=tuple(contents),
        groups=tuple(groups),
        read_records=sum(r.read_records for r in results),
        kept_records=sum(r.kept_records for r in results),
        fingerprint=fingerprint(digests),
        difference=difference,
    )


def deleted_difference(files: Sequence[InputFile], result: TaskResult, positions: Positions) -> str:
    """A sentence if a task left out fewer rows of its files than `positions` has, or more although no other delete applies to
    them; else ""."""
    deleted = sum(len(positions[f.path]) for f in files if f.path in positions)
    removed = result.read_records - result.kept_records
    if removed == deleted or (removed > deleted and any(f.delete_files for f in files)):
        return ""
    return f"{deleted} rows are deleted in {len(files)} files, {removed} were left out"


_KEPT = frozenset({"spec-id", "content", "file-format", "partition"})
"""What the content-file JSON of an output has in common with its input."""
