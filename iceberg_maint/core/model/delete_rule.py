"""The rule of which delete file applies to which data file (Iceberg spec, "Scan Planning").

A position delete file or deletion vector applies to data with a sequence number up to its own: to the one
file that it names, or to all of its spec and partition. An equality delete applies to data with a strictly
lower sequence number of its spec and partition or, where its spec is unpartitioned, of the whole table. A
deletion vector takes the place of the position delete files of its data file.

Planning calls these functions, and so do health and scans in Spark where a delete is looked at by itself.
`core.commits.delete_scope.DeleteIndex` is the second implementation and shares nothing with this one: the
gate refuses a commit that a mistake here would have planned.
"""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import FileKind, LiveFile

Scope = tuple[int, PartitionKey]
"""Spec id and partition key."""


def scope_of(file: LiveFile) -> Scope:
    """Where the file lies."""
    return file.spec_id, file.partition


def delete_scope(delete: LiveFile, specs: Mapping[int, PartitionSpec]) -> Scope | None:
    """The scope that holds the data files that the delete file may apply to; None for the whole table."""
    is_global = delete.kind is FileKind.EQUALITY_DELETES and specs[delete.spec_id].is_unpartitioned
    return None if is_global else scope_of(delete)


def equality_delete_reaches(delete_sequence_number: int, data_sequence_number: int) -> bool:
    """Whether an equality delete applies to data of its scope, by sequence number."""
    return data_sequence_number < delete_sequence_number


def position_delete_reaches(delete_sequence_number: int, data_sequence_number: int) -> bool:
    """Whether a position delete file or deletion vector applies to data of its scope, by sequence number."""
    return data_sequence_number <= delete_sequence_number
