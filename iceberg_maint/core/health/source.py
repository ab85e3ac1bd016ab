"""The source of a measurement: the manifests, read by this process, or Iceberg's metadata tables, read by Spark.

Both give the same numbers. A measurement from manifests holds the columns of all live entries of the table in memory.
"""

from __future__ import annotations

from iceberg_maint.core.model.table_state import Manifest, TableState
from iceberg_maint.core.policy.health import HealthPolicy, HealthSource

FILE_BYTES = 400
"""Memory for one data file at most, without an order (`make bench-health`)."""
SORTED_COLUMN_BYTES = 150
"""Memory for one data file and measured column of an order, at most."""
DELETE_FILE_BYTES = 2_000
"""Memory for one delete file at most. Its paths and bounds are kept while the data files are read."""
ENTRY_BYTES = 40
"""The least size of an entry in a manifest, for a manifest list that states no counts."""
INDISTINCT_TYPES = frozenset({"uuid", "float", "double"})
"""Types of partition values that Spark's metadata tables cannot read (uuid) or confuse (0.0 and -0.0, NaN)."""


def measuring_bytes(state: TableState) -> int:
    """Returns the memory that a measurement of this state from its manifests takes at most, in bytes, as the manifest
    list shows it. The memory of the imported program is not in it."""
    columns = len(state.order.measured) if state.order else 0
    data_bytes = FILE_BYTES + SORTED_COLUMN_BYTES * columns
    return sum(_files(m) * (DELETE_FILE_BYTES if m.is_deletes else data_bytes) for m in state.manifests)


def _files(manifest: Manifest) -> int:
    if manifest.added_files is None or manifest.existing_files is None:
        return manifest.length_bytes // ENTRY_BYTES
    return manifest.added_files + manifest.existing_files


def indistinct_fields(state: TableState) -> tuple[str, ...]:
    """Returns the partition fields, of any spec, whose values Spark's metadata tables do not keep apart."""
    fields = (f for spec in state.specs.values() for f in spec.fields if not f.is_void)
    return tuple(sorted({f.name for f in fields if f.result_type in INDISTINCT_TYPES}))


def exceeds_memory(policy: HealthPolicy, state: TableState) -> bool:
    """Returns whether the estimate exceeds the declared memory."""
    return measuring_bytes(state) > policy.memory


def choose_source(policy: HealthPolicy, state: TableState) -> HealthSource:
    """Returns MANIFESTS or SPARK. `auto` takes the manifests if they fit, and for a table that Spark cannot
    measure."""
    if policy.source is not HealthSource.AUTO:
        return policy.source
    by_spark = exceeds_memory(policy, state) and not indistinct_fields(state)
    return HealthSource.SPARK if by_spark else HealthSource.MANIFESTS
