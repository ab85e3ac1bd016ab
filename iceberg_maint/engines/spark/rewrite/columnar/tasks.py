"""The tasks of a batch that Arrow rewrites: their input files, and their output file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from iceberg_maint.columnar.read.schema import LINEAGE
from iceberg_maint.columnar.task import (
    FULL_PROOF,
    STATISTICS_PROOF,
    DeleteKind,
    DeleteReference,
    Encoding,
    InputFile,
    RewriteTask,
)
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import NO_ROW_IDS
from iceberg_maint.core.planning import work as plan
from iceberg_maint.core.planning.file_groups import AppliedDeletes
from iceberg_maint.core.planning.work import PositionDeleteFile
from iceberg_maint.core.policy.data import ProofLevel
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.rewrite.bin_pack import ROW_GROUP_PROPERTY, row_group_bytes
from iceberg_maint.engines.spark.rewrite.columnar.job import task_memory_bytes
from iceberg_maint.engines.spark.rewrite.columnar.worker import ATTEMPT
from iceberg_maint.engines.spark.scan.positions import Positions
from iceberg_maint.engines.spark.scan.scan import Table, partition_specs

_METRICS_PREFIX = "write.metadata.metrics."
_PAGE_PROPERTIES = frozenset(
    f"write.parquet.{name}"
    for name in ("page-size-bytes", "page-row-limit", "dict-size-bytes", "compression-level")
)
"""A table with one of these wants its pages encoded so. Pages are not copied."""
_MOST_INFERRED = 100
"""Iceberg's `write.metadata.metrics.max-inferred-column-defaults`: further columns have no metrics by default."""


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """What deletes rows of a batch's files: position deletes and deletion vectors, and further positions by data file,
    which no delete of `files` deletes."""

    files: Sequence[PositionDeleteFile]
    deleted_positions: Positions


class TaskMaker:
    """Makes the tasks of one batch."""

    def __init__(
        self,
        bridge: Bridge,
        table: Table,
        format_version: int,
        deletes: RowDeletes,
        proof: ProofLevel,
        codec: str,
    ) -> None:
        self._bridge, self._table, self._format_version, self._codec = bridge, table, format_version, codec
        self._properties = bridge.texts_by_key(table.java.properties())
        self._specs = partition_specs(bridge, table.java)
        self._metrics_modes = metrics_modes(bridge, table, self._properties)
        self._memory_bytes = task_memory_bytes(bridge)
        self._parallelism = bridge.parallelism
        self._proof = FULL_PROOF if proof is ProofLevel.FULL else STATISTICS_PROOF
        self._deletes = AppliedDeletes(deletes.files)
        self._deleted_positions = deletes.deleted_positions

    def task(
        self, location: str, files: Sequence[plan.InputFile], template: Mapping[str, Any], group_bytes: int
    ) -> RewriteTask:
        """The task that writes these files' rows to the location. `template` is the content-file JSON of one of
        them, `group_bytes` the size of their group."""
        constants = self._constants(template)
        return RewriteTask(
            inputs=tuple(self._input(f, constants) for f in files),
            output_path=location,
            schema=self._table.schema_json,
            format_version=self._format_version,
            name_mapping=self._properties.get("schema.name-mapping.default"),
            encoding=self._encoding(group_bytes),
            metrics_modes=self._metrics_modes,
            keep_row_lineage=bool(self._table.lineage),
            memory_limit_bytes=self._memory_bytes,
            proof=self._proof,
            splice=not self._properties.keys() & _PAGE_PROPERTIES,
        )

    def _input(self, file: plan.InputFile, constants: Mapping[int, object]) -> InputFile:
        positions = self._deleted_positions.get(file.path)
        return InputFile(
            path=file.path,
            size_bytes=file.size_bytes,
            record_count=file.record_count,
            data_sequence_number=file.data_sequence_number,
            first_row_id=None if file.first_row_id == NO_ROW_IDS else file.first_row_id,
            constants=constants,
            deletes=tuple(reference(d) for d in self._deletes.of_file(file)),
            deleted_positions=b64encode(positions.serialize()).decode() if positions else "",
        )

    def _constants(self, template: Mapping[str, Any]) -> dict[int, object]:
        return identity_constants(self._specs[int(template["spec-id"])], template)

    def _encoding(self, group_bytes: int) -> Encoding:
        given, defaults = self._properties, Encoding()

        def number(name: str, default: int) -> int:
            return int(given.get(f"write.parquet.{name}", default))

        table_bytes = int(given.get(ROW_GROUP_PROPERTY, defaults.row_group_bytes))
        level = given.get("write.parquet.compression-level")
        return Encoding(
            codec=self._codec,
            level=None if level is None else int(level),
            row_group_bytes=row_group_bytes(group_bytes, self._parallelism, table_bytes),
            page_bytes=number("page-size-bytes", defaults.page_bytes),
            page_row_limit=number("page-row-limit", defaults.page_row_limit),
            dictionary_bytes=number("dict-size-bytes", defaults.dictionary_bytes),
        )


def metrics_modes(bridge: Bridge, table: Table, properties: Mapping[str, str]) -> dict[int, str]:
    """Returns the metrics mode of each column, none if all have the default of the engine."""
    leaves = [i for i, kind in table.types.items() if not kind.startswith(("struct", "list", "map"))]
    if len(leaves) <= _MOST_INFERRED and not any(k.startswith(_METRICS_PREFIX) for k in properties):
        return {}
    config = bridge.iceberg.MetricsConfig.forTable(table.java)
    schema = table.java.schema()
    names = {i: schema.findColumnName(i) for i in leaves}
    if table.lineage:
        names |= {c.field_id: c.name for c in LINEAGE}
    return {i: str(config.columnMode(name).toString()) for i, name in names.items()}


def identity_constants(spec: PartitionSpec, template: Mapping[str, Any]) -> dict[int, object]:
    """The values of identity-partitioned columns by field id, from the content-file JSON of a file of the spec."""
    pairs = zip(spec.fields, template.get("partition") or (), strict=False)
    return {f.source_id: v for f, v in pairs if f.transform == "identity"}


def reference(delete: PositionDeleteFile) -> DeleteReference:
    """A position delete file or deletion vector of the plan, for a task."""
    is_vector = delete.content_offset is not None
    return DeleteReference(
        kind=DeleteKind.DELETION_VECTOR if is_vector else DeleteKind.POSITION_FILE,
        path=delete.path,
        size_bytes=delete.size_bytes,
        offset=delete.content_offset,
        record_count=delete.record_count if is_vector else None,
        data_file=None if is_vector else delete.referenced_data_file,
    )


def divided(group: plan.FileGroup) -> list[list[plan.InputFile]]:
    """The input files of each output file: whole files in their order, about the same number of bytes each. There
    are at most as many output files as the plan expects."""
    count = min(group.expected_output_files, len(group.files))
    share = group.input_bytes / max(1, count)
    parts: list[list[plan.InputFile]] = []
    taken = 0
    for file in group.files:
        middle = taken + file.size_bytes / 2
        wanted = min(count, int(middle // share) + 1 if share else 1)
        if not parts or len(parts) < wanted:
            parts.append([])
        parts[-1].append(file)
        taken += file.size_bytes
    return parts


@dataclass(frozen=True, slots=True)
class Output:
    """One output file: its location, the number of its group, the content-file JSON of an input file of the group, and
    its input files."""

    location: str
    group: int
    template: Mapping[str, Any]
    files: Sequence[plan.InputFile]

    @property
    def input_bytes(self) -> int:
        return sum(f.size_bytes for f in self.files)


class NewLocations:
    """Locations of new data files of a Java table, named as Iceberg's `OutputFileFactory` names files: partition,
    task, operation, count."""

    def __init__(self, table: Any, operation_id: str) -> None:
        self._operation_id = operation_id
        self._provider, self._io = table.locationProvider(), table.io()
        self._table = table
        self._specs: dict[int, tuple[Any, bool]] = {}

    def __call__(self, file: Any, spec_id: int, number: int) -> str:
        """Returns the location of an output file with the partition of a Java data file."""
        name = f"{number:05d}{ATTEMPT}{self._operation_id}-00001.parquet"
        if spec_id not in self._specs:
            spec = self._table.specs()[spec_id]
            self._specs[spec_id] = spec, bool(spec.isUnpartitioned())
        spec, is_unpartitioned = self._specs[spec_id]
        if is_unpartitioned:
            location = self._provider.newDataLocation(name)
        else:
            location = self._provider.newDataLocation(spec, file.partition(), name)
        return str(self._io.newOutputFile(location).location())


def new_operation_id() -> str:
    """An id that no other write has."""
    return str(uuid4())
