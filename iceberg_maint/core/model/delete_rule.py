"""The rule that says which delete file applies to which data file (Iceberg spec, "Scan Planning").

A position delete file or deletion vector applies to data with a sequence number up to its own: in the one
file that it names, or in all files of its spec and partition. An equality delete applies to data with a
strictly lower sequence number in its spec and partition. If its spec is unpartitioned, it applies to such
data in the whole table. A deletion vector replaces the position delete files of its data file.

Planning calls these functions. Health and scans in Spark call them where they handle a single delete.
`core.commits.delete_scope.DeleteIndex` implements the rule a second time and shares no code with this module,
so that the gate refuses a commit that was planned by a mistake made here.
"""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import FileKind, LiveFile

Scope = tuple[int, PartitionKey]
"""Spec id and partition key."""


def scope_of(file: LiveFile) -> Scope:
    """Returns the spec and partition of the file."""
    return file.spec_id, file.partition


def delete_scope(delete: LiveFile, specs: Mapping[int, PartitionSpec]) -> Scope | None:
    """Returns the scope of the data files that the delete file may apply to, None for the whole table."""
    is_global = delete.kind is FileKind.EQUALITY_DELETES and specs[delete.spec_id].is_unpartitioned
    return None if is_global else scope_of(delete)


def equality_delete_reaches(delete_sequence_number: int, data_sequence_number: int) -> bool:
    """Returns whether an equality delete applies to data of its scope, by sequence number."""
    return data_sequence_number < delete_sequence_number


def position_delete_reaches(delete_sequence_number: int, data_sequence_number: int) -> bool:
    """Returns whether a position delete file or deletion vector applies to data of its scope, by sequence
    number."""
    return data_sequence_number <= delete_sequence_number
