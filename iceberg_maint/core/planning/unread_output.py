"""What a rewrite of data files brings by a property of the table and not every reader reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from iceberg_maint.core.model.parquet_properties import codec_of
from iceberg_maint.core.planning.inputs import FileGroup
from iceberg_maint.core.policy.readers import UNREAD, Feature, Reader


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
