"""State facts: what the health of a table needs and its state alone tells. How it is measured, the order of its files, and
the writers that began to write small files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import log2
from statistics import median

from iceberg_maint import __version__
from iceberg_maint.core.model.codec import digest
from iceberg_maint.core.model.columns import is_orderable
from iceberg_maint.core.model.other_writers import writer_name
from iceberg_maint.core.model.table_state import (
    TOKEN_PROPERTY,
    LayoutOrder,
    Manifest,
    Snapshot,
    SortColumn,
    TableState,
)
from iceberg_maint.core.policy.data import LayoutPolicy, Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.housekeeping import HealthPolicy, HealthSource

MEASUREMENT_VERSION = 1
"""Grows with every change of how a metric is measured. Health that another version stored is measured again."""


def basis_of(policy: Policy, installation: str) -> str:
    """Returns the digest of the policy sections that a measurement reads, of the version of the measurement and
    of the installation, whose own commits are not those of another tool."""
    return _basis(policy.rewrite_data_files, policy.layout, installation)


@lru_cache(maxsize=1024)
def _basis(sizes: RewriteDataFilesPolicy, layout: LayoutPolicy, installation: str) -> str:
    return digest((__version__, MEASUREMENT_VERSION, sizes, layout, installation))[:16]


FILE_BYTES = 400
"""Memory for one data file at most, without an order (`make bench BENCH=health`)."""
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


_IDENTITY = "identity"
_DESCENDING = " desc"


def target_sort_order(state: TableState, policy: LayoutPolicy) -> LayoutOrder | None:
    """Returns the order that the policy or the table requests. None if there is none, or if column bounds
    cannot show it, because it begins with a transform.

    Raises ValueError for a column in the policy that the table lacks or that has no order.
    """
    if not policy.enabled:
        return None
    own_columns = _own_columns(state)
    covers_own_order = len(own_columns) == len(state.sort_fields)
    if policy.z_order_by:
        columns = tuple(_sort_column(state, name, "layout.z_order_by") for name in policy.z_order_by)
    elif policy.sort_by:
        columns = tuple(_sort_column(state, name, "layout.sort_by") for name in policy.sort_by)
    else:
        columns = own_columns
    constant = _constant_in_partition(state)
    varying = tuple(c for c in columns if c.field_id not in constant)
    if not varying:
        return None
    if policy.z_order_by:
        # A z-order of one column is a sort.
        return LayoutOrder(varying, varying, z_order=len(varying) > 1)
    order_id = state.sort_order_id if covers_own_order and columns == own_columns else 0
    return LayoutOrder(columns, varying[:1], sort_order_id=order_id)


def _own_columns(state: TableState) -> tuple[SortColumn, ...]:
    """Returns the columns of the table's sort order, up to the first transformed one."""
    names = {field_id: name for name, field_id in state.column_ids.items()}
    columns: list[SortColumn] = []
    for f in state.sort_fields:
        kind = state.key_types.get(f.source_id, "")
        if f.transform != _IDENTITY or f.source_id not in names or not is_orderable(kind):
            break
        columns.append(SortColumn(names[f.source_id], f.source_id, kind, f.descending, f.nulls_last))
    return tuple(columns)


def _sort_column(state: TableState, text: str, key: str) -> SortColumn:
    name = text.removesuffix(_DESCENDING).strip()
    descending = text.endswith(_DESCENDING)
    field_id = state.column_ids.get(name)
    kind = state.key_types.get(field_id, "") if field_id is not None else ""
    if field_id is None or not is_orderable(kind):
        known_names = ", ".join(_first_names(state.column_ids))
        raise ValueError(
            f"{key} names '{name}', which is not a sortable column of the table. The sortable columns are {known_names}"
        )
    return SortColumn(name, field_id, kind, descending, nulls_last=descending)


def _first_names(names: Iterable[str]) -> list[str]:
    ordered = sorted(names)
    return ordered if len(ordered) <= 20 else [*ordered[:20], "…"]


def _constant_in_partition(state: TableState) -> frozenset[int]:
    spec = state.specs.get(state.current_spec_id)
    fields = spec.fields if spec is not None else ()
    return frozenset(f.source_id for f in fields if f.transform == _IDENTITY)


LEAST_COMMITS = 5
"""Commits on each side of a change at least."""
MAX_COMMITS = 1_000
"""The newest commits of a writer that are compared."""
_FACTOR = 4
"""Files are at least so many times smaller after a change."""


@dataclass(frozen=True, slots=True)
class WriterChange:
    """The commit with which a writer began to write small files. `commits` counts it and those since. The sizes are
    medians over commits of the mean size of the files of a commit, before it and since."""

    writer: str
    snapshot_id: int
    timestamp_ms: int
    commits: int
    before_bytes: float
    after_bytes: float


@dataclass(frozen=True, slots=True)
class _Commit:
    snapshot: Snapshot
    mean_bytes: float


def writer_changes(
    snapshots: Sequence[Snapshot], location: str, small_below_bytes: float
) -> tuple[WriterChange, ...]:
    """Returns the changes of the writers that write small files now, newest first.

    The change point splits the logarithms of the sizes in two groups with the least sum of squares (Scott and Knott,
    1974). Commits of maintenance do not count. Summaries without sizes are left out.
    """
    by_writer: dict[str, list[_Commit]] = {}
    for snapshot in sorted(snapshots, key=lambda s: (s.timestamp_ms, s.sequence_number)):
        mean_bytes = _mean_bytes(snapshot)
        if mean_bytes is not None:
            by_writer.setdefault(_group(snapshot), []).append(_Commit(snapshot, mean_bytes))
    changes = (_change(commits[-MAX_COMMITS:], location, small_below_bytes) for commits in by_writer.values())
    return tuple(sorted((c for c in changes if c is not None), key=lambda c: -c.timestamp_ms))


def _mean_bytes(snapshot: Snapshot) -> float | None:
    """The mean size of the files that the commit added. None for a commit of maintenance, and without sizes."""
    summary = snapshot.summary
    if snapshot.operation == "replace" or TOKEN_PROPERTY in summary:
        return None
    try:
        files = int(summary.get("added-data-files", "0")) + int(summary.get("added-delete-files", "0"))
        size_bytes = int(summary["added-files-size"])
    except (KeyError, ValueError):
        return None
    return size_bytes / files if files > 0 and size_bytes > 0 else None


def _group(snapshot: Snapshot) -> str:
    """What stays the same from one commit of a writer to the next. The id of a Spark application does not."""
    summary = snapshot.summary
    keys = ("engine-name", "app-name", "flink.job-id", "flink.operator-id")
    return "\n".join(summary.get(key, "") for key in keys)


def _change(commits: Sequence[_Commit], location: str, small_below_bytes: float) -> WriterChange | None:
    at = _change_point([log2(c.mean_bytes) for c in commits])
    if at is None:
        return None
    before = median(c.mean_bytes for c in commits[:at])
    after = median(c.mean_bytes for c in commits[at:])
    if after >= small_below_bytes or before < small_below_bytes or before < _FACTOR * after:
        return None
    first = commits[at].snapshot
    return WriterChange(
        writer_name(first.summary, location),
        first.snapshot_id,
        first.timestamp_ms,
        len(commits) - at,
        before,
        after,
    )


def _change_point(values: Sequence[float]) -> int | None:
    """The index that splits the values in the two groups with the least sum of squares. None if one has few values."""
    sums = [0.0, *accumulate(values)]

    def between(at: int) -> float:
        # The sum of squares between the groups; it is greatest where the sum within them is least.
        first, rest = sums[at], sums[-1] - sums[at]
        return first * first / at + rest * rest / (len(values) - at)

    at = max(range(1, len(values)), key=between, default=0)
    return at if LEAST_COMMITS <= at <= len(values) - LEAST_COMMITS else None
