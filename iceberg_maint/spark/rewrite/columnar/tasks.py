"""Makes the tasks of the columnar engine from the values of a table."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from iceberg_maint.columnar.schema import LINEAGE
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
from iceberg_maint.core.planning import inputs as plan
from iceberg_maint.core.planning.applied_deletes import AppliedDeletes
from iceberg_maint.core.planning.inputs import PositionDeleteFile
from iceberg_maint.core.policy.data import ProofLevel
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.rewrite.columnar.job import task_memory_bytes
from iceberg_maint.spark.rewrite.row_groups import ROW_GROUP_PROPERTY, row_group_bytes
from iceberg_maint.spark.scan.positions import Positions
from iceberg_maint.spark.scan.pruning import partition_specs
from iceberg_maint.spark.scan.table import Table

_METRICS_PREFIX = "write.metadata.metrics."
_PAGE_PROPERTIES = frozenset(
    f"write.parquet.{name}"
    for name in ("page-size-bytes", "page-row-limit", "dict-size-bytes", "compression-level")
)
"""A table with one of these wants its pages encoded so. Pages are not copied."""
_MOST_INFERRED = 100
"""Iceberg's `write.metadata.metrics.max-inferred-column-defaults`: further columns have no metrics by default."""
_DEFAULT_CODEC = "gzip"
"""Iceberg's codec for a table that was created before 1.4 and names none."""


class TaskMaker:
    """Makes the tasks of one batch."""

    def __init__(
        self,
        bridge: Bridge,
        table: Table,
        format_version: int,
        deletes: Sequence[PositionDeleteFile],
        proof: ProofLevel,
        marks: Positions,
    ) -> None:
        self._bridge, self._table, self._format_version = bridge, table, format_version
        self._properties = bridge.texts_by_key(table.java.properties())
        self._specs = partition_specs(bridge, table.java)
        self._metrics_modes = metrics_modes(bridge, table, self._properties)
        self._memory_bytes = task_memory_bytes(bridge)
        self._parallelism = int(bridge.spark.sparkContext.defaultParallelism)
        self._proof = FULL_PROOF if proof is ProofLevel.FULL else STATISTICS_PROOF
        self._deletes = AppliedDeletes(deletes)
        self._marks = marks

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
        return InputFile(
            path=file.path,
            size_bytes=file.size_bytes,
            record_count=file.record_count,
            data_sequence_number=file.data_sequence_number,
            first_row_id=None if file.first_row_id == NO_ROW_IDS else file.first_row_id,
            constants=constants,
            deletes=tuple(reference(d) for d in self._deletes.of_file(file)),
            marks=b64encode(marks.serialize()).decode() if (marks := self._marks.get(file.path)) else "",
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
            codec=given.get("write.parquet.compression-codec", _DEFAULT_CODEC).lower(),
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
    )
