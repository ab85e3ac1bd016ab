"""Finds the rows under the equality deletes of a batch with Arrow, in Spark's Python workers: no join and no shuffle.

A task has data files of one spec and partition and all deletes that may apply to them. It holds their keys in memory. A
batch whose keys do not fit a task is left to the join of `spark.deletes.membership`, which needs no memory for all keys.
"""

from __future__ import annotations

from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pyroaring import BitMap64

from iceberg_maint.columnar.task import (
    DeletedPositionsResult,
    DeletedPositionsTask,
    EqualityDelete,
    InputFile,
    NotParquetError,
    UnsupportedColumnError,
    WrongInputError,
)
from iceberg_maint.core.model.columns import KeyMetadata
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.planning import work as plan
from iceberg_maint.core.planning.equality_deletes import key_bytes
from iceberg_maint.core.planning.file_groups import AppliedDeletes
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy, RewriteStrategy
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import json_spec
from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import NotColumnarError, io_of
from iceberg_maint.engines.spark.rewrite.columnar.job import Workers, run_tasks, task_memory_bytes
from iceberg_maint.engines.spark.rewrite.columnar.strategy import content_of_file, is_columnar, wrong_file
from iceberg_maint.engines.spark.rewrite.columnar.tasks import identity_constants, reference
from iceberg_maint.engines.spark.scan.scan import Table, partition_specs
from iceberg_maint.engines.spark.scan.staging import GroupTasks, wrong_keys

_BESIDE_KEY_BYTES = 128
"""For each key: its number, its sequence number and its places in two hash tables."""
_BESIDE_ROW_BYTES = 64
_LEAST_ROWS = 4_000_000
"""The rows of a task, if there are more. Every task reads all keys."""
_ROWS_PER_KEY = 2
_LEAST_SLICE = 1 << 20
_MOST_SLICE = 1 << 24
_LOCAL: Mapping[str, str] = {}

_Scope = tuple[int, PartitionKey]


def find_deleted_positions(
    bridge: Bridge,
    table: Table,
    batch: Batch,
    planned: Sequence[GroupTasks],
    metadata: Mapping[str, KeyMetadata],
    policy: Policy,
) -> dict[str, BitMap64]:
    """Returns the positions of the rows that the equality deletes of a batch delete and no other delete does, by data
    file. `metadata` is that of the delete files by path. Raises NotColumnarError if the join must find them, RefusedError
    ICM-101 for a damaged file, ICM-119 for a delete file whose keys its metadata denies."""
    strategy = policy.rewrite_data_files.strategy
    if strategy is not RewriteStrategy.COLUMNAR and not is_columnar(batch, policy.rewrite_data_files):
        raise NotColumnarError(f"the strategy is {strategy.value}")
    if problem := bridge.once(Workers).problem():
        raise NotColumnarError(problem)
    limit = task_memory_bytes(bridge)
    if policy.equality_deletes.memory is not None:
        slots = bridge.parallelism
        limit = min(limit, policy.equality_deletes.memory // max(1, slots))
    tasks = list(_Tasks(bridge, table, batch, metadata, limit).tasks(planned))
    paths = [f.path for t in tasks for f in t.inputs]
    paths += [d.path for d in batch.applied_deletes]
    paths += [d.path for d in batch.equality_deletes]
    io = io_of(table.java, paths)
    sizes = [_work_bytes(t) for t in tasks]
    results = [
        DeletedPositionsResult.from_json(text)
        for text in run_tasks(bridge, positions_task, [t.to_json() for t in tasks], sizes, io)
    ]
    if wrong := next((r.wrong_input for r in results if r.wrong_input), ""):
        raise wrong_file(batch, wrong)
    if wrong := next((r.wrong_keys for r in results if r.wrong_keys), ""):
        raise wrong_keys(batch.table, wrong)
    if unsupported := next((r.unsupported for r in results if r.unsupported), ""):
        raise NotColumnarError(unsupported)
    return {
        path: BitMap64.deserialize(b64decode(text))
        for result in results
        for path, text in result.positions.items()
    }


def positions_task(text: str, _attempt: int, io: Mapping[str, str] = _LOCAL) -> str:
    """Runs one task and returns its `DeletedPositionsResult` as JSON. `io` has the properties of the table's FileIO."""
    from dataclasses import replace

    import pyarrow as pa  # the driver does not need it

    from iceberg_maint.columnar.deleted_positions import WrongKeysError, deleted_positions

    try:
        return deleted_positions(replace(DeletedPositionsTask.from_json(text), io=io)).to_json()
    except (UnsupportedColumnError, NotParquetError) as why:
        return DeletedPositionsResult(unsupported=str(why)).to_json()
    except WrongInputError as why:
        return DeletedPositionsResult(wrong_input=str(why)).to_json()
    except WrongKeysError as why:
        return DeletedPositionsResult(wrong_keys=str(why)).to_json()
    except MemoryError as why:
        return DeletedPositionsResult(
            unsupported=f"the keys of a task do not fit its memory: {why}"
        ).to_json()
    except pa.ArrowException as why:
        return DeletedPositionsResult(unsupported=f"Arrow cannot compare the keys: {why}").to_json()


class _Tasks:
    """Makes the tasks of a batch, each within `limit` bytes of memory."""

    def __init__(
        self,
        bridge: Bridge,
        table: Table,
        batch: Batch,
        metadata: Mapping[str, KeyMetadata],
        limit: int,
    ) -> None:
        self._bridge, self._table, self._batch, self._limit = bridge, table, batch, limit
        self._metadata = metadata
        self._specs = partition_specs(bridge, table.java)
        self._name_mapping = table.java.properties().get("schema.name-mapping.default")
        self._keys = {i for d in batch.equality_deletes for i in d.equality_ids}
        self._position_deletes = AppliedDeletes(batch.applied_deletes)

    def tasks(self, planned: Sequence[GroupTasks]) -> Iterator[DeletedPositionsTask]:
        """The tasks of all groups. Raises NotColumnarError if one does not fit."""
        files: dict[_Scope, list[plan.InputFile]] = defaultdict(list)
        constants: dict[_Scope, Mapping[int, object]] = {}
        for group_tasks in planned:
            group = group_tasks.group
            scope = group.spec_id, group.partition
            files[scope] += group.files
            if scope not in constants:
                constants[scope] = self._constants(group_tasks)
        everywhere = [d for d in self._batch.equality_deletes if d.everywhere]
        of_scope: dict[_Scope, list[plan.EqualityDeleteFile]] = defaultdict(list)
        for delete in self._batch.equality_deletes:
            if not delete.everywhere:
                of_scope[delete.spec_id, delete.partition].append(delete)
        for scope, some in files.items():
            deletes = [*everywhere, *of_scope[scope]]
            newest = max((d.data_sequence_number for d in deletes), default=-1)
            under = [f for f in some if f.data_sequence_number < newest]
            if under:
                yield from self._of_scope(under, deletes, constants[scope])

    def _of_scope(
        self,
        files: Sequence[plan.InputFile],
        deletes: Sequence[plan.EqualityDeleteFile],
        constants: Mapping[int, object],
    ) -> Iterator[DeletedPositionsTask]:
        oldest = min(f.data_sequence_number for f in files)
        applying = [d for d in deletes if d.data_sequence_number > oldest]
        width = max(key_bytes(self._table.types[i] for i in d.equality_ids) for d in applying)
        keys = sum(d.record_count for d in applying)
        rest = self._limit - keys * (3 * width + _BESIDE_KEY_BYTES)
        slice_rows = min(_MOST_SLICE, rest // (2 * width + _BESIDE_ROW_BYTES))
        if slice_rows < max(_LEAST_SLICE, *(f.record_count for f in files)):
            raise NotColumnarError(f"{keys} keys of a task do not fit {self._limit} bytes")
        rows = sum(f.record_count for f in files)
        count = -(-rows // max(_LEAST_ROWS, _ROWS_PER_KEY * keys))
        for some in _shares(files, -(-rows // count)):
            yield DeletedPositionsTask(
                inputs=tuple(self._input(f) for f in some),
                deletes=tuple(map(self._delete, applying)),
                schema=self._table.schema_json,
                name_mapping=None if self._name_mapping is None else str(self._name_mapping),
                constants=constants,
                slice_rows=slice_rows // 2,
            )

    def _delete(self, file: plan.EqualityDeleteFile) -> EqualityDelete:
        metadata = self._metadata[file.path]
        return EqualityDelete(
            path=file.path,
            size_bytes=file.size_bytes,
            record_count=file.record_count,
            data_sequence_number=file.data_sequence_number,
            field_ids=file.equality_ids,
            bounds=metadata.bounds,
            without_null=tuple(sorted(metadata.without_null)),
        )

    def _input(self, file: plan.InputFile) -> InputFile:
        return InputFile(
            path=file.path,
            size_bytes=file.size_bytes,
            record_count=file.record_count,
            data_sequence_number=file.data_sequence_number,
            deletes=tuple(reference(d) for d in self._position_deletes.of_file(file)),
        )

    def _constants(self, group_tasks: GroupTasks) -> Mapping[int, object]:
        spec = self._specs[group_tasks.group.spec_id]
        if not any(f.transform == "identity" and f.source_id in self._keys for f in spec.fields):
            return {}
        java_spec = json_spec(self._bridge, self._table.java.specs()[spec.spec_id])
        content = content_of_file(self._bridge, group_tasks.tasks.get(0).file(), java_spec)
        return identity_constants(spec, content)


def _shares(files: Sequence[plan.InputFile], rows: int) -> Iterator[list[plan.InputFile]]:
    """The files in parts of about so many rows."""
    share: list[plan.InputFile] = []
    for file in files:
        share.append(file)
        if sum(f.record_count for f in share) >= rows:
            yield share
            share = []
    if share:
        yield share


def _work_bytes(task: DeletedPositionsTask) -> int:
    """The bytes of the work of a task, for its share of a Spark task: eight bytes for a key or a row."""
    return 8 * (sum(f.record_count for f in task.inputs) + sum(d.record_count for d in task.deletes))
