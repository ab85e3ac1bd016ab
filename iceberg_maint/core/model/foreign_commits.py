"""Foreign commits: maintenance by others, as their snapshot summaries show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, Snapshot, TableState

MOST_KEPT = 10
"""Foreign commits kept with a table's health, the newest."""

_LONGEST_NAME = 80
_REPLACE = "replace"
# org.apache.amoro.op.SnapshotSummary and api.CommitMetaProducer: also its row deltas are maintenance.
_AMORO_PRODUCER = "snapshot.producer"
_AMORO_MAINTENANCE = ("OPTIMIZE", "CLEAN_DANGLING_DELETE")
# org.apache.iceberg.SnapshotSummary: what came and went …
_FILE_COUNTS = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
_DELETE_COUNTS = ("added-delete-files", "removed-delete-files")
# … and what BaseRewriteManifests writes instead.
_MANIFEST_COUNTS = ("manifests-created", "manifests-replaced", "entries-processed")


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """Maintenance that was not ours. `maintainer` is who did it, as far as its marks tell; `deletes`
    is whether delete files came or went with it."""

    snapshot_id: int
    timestamp_ms: int
    maintainer: str
    deletes: bool


def foreign_commits(state: TableState) -> tuple[ForeignCommit, ...]:
    """Foreign maintenance of files among the pinned snapshot and its retained ancestors, newest
    first, at most `MOST_KEPT`. Commits that only regroup manifests are none."""
    found = (_foreign(snapshot, state.location) for snapshot in state.ancestors())
    return tuple(commit for commit in found if commit is not None)[:MOST_KEPT]


def _foreign(snapshot: Snapshot, location: str) -> ForeignCommit | None:
    summary = snapshot.summary
    if TOKEN_PROPERTY in summary:
        return None
    by_amoro = summary.get(_AMORO_PRODUCER) in _AMORO_MAINTENANCE
    if not by_amoro and (snapshot.operation != _REPLACE or _only_manifests(summary)):
        return None
    return ForeignCommit(
        snapshot.snapshot_id,
        snapshot.timestamp_ms,
        _name(summary, location),
        any(summary.get(key, "0") != "0" for key in _DELETE_COUNTS),
    )


def _only_manifests(summary: Mapping[str, str]) -> bool:
    """Whether no file came or went. A maintainer that counts nothing may have rewritten files."""
    counts = [summary[key] for key in _FILE_COUNTS if key in summary]
    if counts:
        return all(count == "0" for count in counts)
    return any(key in summary for key in _MANIFEST_COUNTS)


def _name(summary: Mapping[str, str], location: str) -> str:
    """Whose marks these are. What engines write into a summary is anybody's text: it is cut, and
    control characters are left out."""
    engine = summary.get("engine-name", "")
    if _AMORO_PRODUCER in summary:
        name = "Apache Amoro"
    elif "trino_query_id" in summary:
        name = f"Trino (query {summary['trino_query_id']})"
    elif "maintenance" in summary:
        name = f"SeaweedFS ({summary['maintenance']})"
    elif engine == "spark" or "spark.app.id" in summary:
        application = summary.get("app-name") or summary.get("app-id") or summary.get("spark.app.id", "?")
        name = f"Apache Spark (application {application})"
    elif engine == "flink":
        name = "Apache Flink"
    elif engine:
        name = engine
    elif urlsplit(location).netloc.endswith("--table-s3"):
        # The buckets that Amazon S3 Tables keeps tables in; its own compaction is on by default.
        name = "Amazon S3 Tables"
    else:
        name = "an engine that left no name"
    printable = "".join(c if c.isprintable() else " " for c in name)
    return printable[:_LONGEST_NAME]
