"""What a rewrite of data files brings by a property of the table and not every reader reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from iceberg_maint.core.decisions.applicability import (
    COLUMNAR_TYPES,
    UNREAD,
    Feature,
    column_list,
    unsupported_columns,
)
from iceberg_maint.core.health.thresholds import size_limits
from iceberg_maint.core.model.columns import CODECS, codec_of
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import LiveFile, TableState
from iceberg_maint.core.planning.file_groups import Candidate, PlanInputs
from iceberg_maint.core.planning.plan import Leftover
from iceberg_maint.core.planning.work import FileGroup, RowWriter
from iceberg_maint.core.policy.data import Reader, RewriteStrategy


def unread_output(
    properties: Mapping[str, str], groups: Iterable[FileGroup], *, columnar: bool
) -> Feature | None:
    """Returns what a rewrite of these data files brings, None if each reader of the record reads it.
    Names of files show their format and not their codec. `columnar` writes `lz4` as `lz4_raw`, which all read."""
    written = properties.get("write.format.default", "parquet").lower()
    files = (f for g in groups for f in g.files)
    if f"data {written}" in set(Feature) and not any(f.path.endswith(f".{written}") for f in files):
        return Feature(f"data {written}")
    return Feature.CODEC_LZ4 if codec_of(properties) == "lz4" and not columnar else None


def refused_output(feature: Feature | None, readers: Iterable[Reader]) -> str:
    """Returns why a rewrite that brings this is refused, "" if each of the readers that the policy names reads it."""
    lost = ", ".join(sorted(UNREAD[feature].intersection(readers))) if feature else ""
    return f"a rewrite would write {feature}, not read by {lost} of the policy key readers" if lost else ""


ENCRYPTION_KEY_PROPERTY = "encryption.key-id"
_PAGE_VERSION, _PAGES = "write.parquet.page-version", "v1"
_OF_COLUMNS = {
    "write.parquet.bloom-filter-enabled.column.": (False, "has a bloom filter"),
    "write.parquet.dict-encoding-enabled.column.": (True, "is written without dictionary"),
    "write.parquet.stats-enabled.column.": (True, "is written without statistics"),
}
"""Properties of a column that `columnar` does not follow: their default, and what another value means."""
_PARQUET = "parquet"
_DELETE_FORMATS = frozenset({"parquet", "puffin"})
_SCHEMES = frozenset({"", "file", "s3", "s3a", "s3n"})


def row_writer(
    inputs: PlanInputs, group: FileGroup, candidates: Sequence[Candidate], *, in_order: bool
) -> RowWriter | None:
    """Returns the writer of a file group, None if no strategy can write it. `in_order`: the rows are sorted."""
    state, policy = inputs.state, inputs.policy.rewrite_data_files
    unread, strategy = unsupported_columns(state.uncommon_types, inputs.limits.readers), policy.strategy
    if strategy is RewriteStrategy.NATIVE or (strategy is RewriteStrategy.AUTO and not unread):
        return None if unread else RowWriter(False)
    most_bytes = size_limits(policy, inputs.target_bytes).large_above_bytes
    reason = "rows are sorted" if in_order else native_reason(state, group, candidates, most_bytes)
    if not reason:
        return RowWriter(True, f"Spark cannot read {column_list(unread)}" if unread else "")
    return None if unread else RowWriter(False, reason)


def with_writers(
    inputs: PlanInputs,
    groups: Iterable[FileGroup],
    candidates: Mapping[str, Candidate],
    in_order: Collection[str],
) -> tuple[list[tuple[FileGroup, RowWriter]], list[Leftover]]:
    """Returns the file groups with their writers, and the leftovers that no strategy can write. `candidates` are the
    data files by path, `in_order` the paths of files to sort."""
    written: list[tuple[FileGroup, RowWriter]] = []
    unread: list[Leftover] = []
    for group in groups:
        of_group = [candidates[f.path] for f in group.files]
        is_sorted = group.files[0].path in in_order
        writer = row_writer(inputs, group, of_group, in_order=is_sorted)
        if writer is not None:
            written.append((group, writer))
        else:
            files, size = len(group.files), group.input_bytes
            unread.append(Leftover(group.partition, Reason.UNSUPPORTED_TYPE, files, size))
    return written, unread


def native_reason(
    state: TableState, group: FileGroup, candidates: Sequence[Candidate], most_bytes: int
) -> str:
    """Returns why a file group does not qualify for `columnar`, "" if it does. A file of more than `most_bytes` must be
    split; `columnar` writes whole files together."""
    if unread := unsupported_columns(state.uncommon_types, (COLUMNAR_TYPES,)):
        return f"columnar does not read {column_list(unread)}"
    if state.properties.get(ENCRYPTION_KEY_PROPERTY):
        return "the table is encrypted"
    if group.output_spec_id != group.spec_id:
        return f"rows move from partition spec {group.spec_id} to {group.output_spec_id}"
    if reason := _property_reason(state.properties):
        return reason
    if any(f.size_bytes > most_bytes for f in group.files):
        return "a file is to be split"
    return next((r for c in candidates if (r := _file_reason(c))), "")


def _property_reason(properties: Mapping[str, str]) -> str:
    written = properties.get("write.format.default", _PARQUET).lower()
    if written != _PARQUET:
        return f"the table writes {written}"
    if (version := properties.get(_PAGE_VERSION, _PAGES).lower()) != _PAGES:
        return f"the table writes pages of version {version}"
    if (codec := codec_of(properties)) and codec not in CODECS:
        return f"the table's codec is {codec}"
    return next(
        (
            f"column {key.removeprefix(prefix)} {reason}"
            for prefix, (default, reason) in _OF_COLUMNS.items()
            for key, value in sorted(properties.items())
            if key.startswith(prefix) and (value.strip().lower() == "true") is not default
        ),
        "",
    )


def _scheme(location: str) -> str:
    """The scheme of a location, "" of a path. A path may hold a colon, and names of buckets may hold what no URL does."""
    head, colon, _ = location.partition(":")
    return head if colon and "/" not in head else ""


def _file_reason(candidate: Candidate) -> str:
    files: tuple[LiveFile, ...] = (candidate.file, *candidate.position_deletes)
    for file in files:
        if (scheme := _scheme(file.path)) not in _SCHEMES:
            return f"files are on {scheme}"
    if candidate.file.file_format != _PARQUET:
        return f"data files are {candidate.file.file_format}"
    other = next(
        (d.file_format for d in candidate.position_deletes if d.file_format not in _DELETE_FORMATS), ""
    )
    return f"position deletes are {other}" if other else ""
