"""Foreign commits: maintenance by other tools and other installations, detected from snapshot summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from iceberg_maint.core.model.table_state import (
    INSTALLATION_PROPERTY,
    TOKEN_PROPERTY,
    Snapshot,
    TableState,
    made_by,
)

MOST_KEPT = 10
"""The number of foreign commits, newest first, that a table's health keeps."""

_LONGEST_NAME = 80
_REPLACE = "replace"
# org.apache.amoro.op.SnapshotSummary and api.CommitMetaProducer: Amoro's row deltas are maintenance as
# well.
_AMORO_PRODUCER = "snapshot.producer"
_AMORO_MAINTENANCE = ("OPTIMIZE", "CLEAN_DANGLING_DELETE")
# org.apache.iceberg.SnapshotSummary: counts of added and removed files.
_FILE_COUNTS = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
_DELETE_COUNTS = ("added-delete-files", "removed-delete-files")
# The counts that BaseRewriteManifests writes instead.
_MANIFEST_COUNTS = ("manifests-created", "manifests-replaced", "entries-processed")


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A maintenance commit of another tool or of another installation of this program. `maintainer` names the tool, as far as the summary shows it.
    `deletes` says whether the commit added or removed delete files."""

    snapshot_id: int
    timestamp_ms: int
    maintainer: str
    deletes: bool


def foreign_commits(state: TableState, installation: str) -> tuple[ForeignCommit, ...]:
    """Returns foreign maintenance of files in the pinned snapshot and its retained ancestors: newest
    first, at most `MOST_KEPT`. Commits that only regroup manifests do not count. `installation` is the
    installation whose own commits are not foreign."""
    commits = (_foreign(snapshot, state.location, installation) for snapshot in state.ancestors())
    return tuple(commit for commit in commits if commit is not None)[:MOST_KEPT]


def _foreign(snapshot: Snapshot, location: str, installation: str) -> ForeignCommit | None:
    summary = snapshot.summary
    if made_by(summary, installation):
        return None
    by_amoro = summary.get(_AMORO_PRODUCER) in _AMORO_MAINTENANCE
    if not by_amoro and (snapshot.operation != _REPLACE or _only_manifests(summary)):
        return None
    return ForeignCommit(
        snapshot.snapshot_id,
        snapshot.timestamp_ms,
        writer_name(summary, location),
        any(summary.get(key, "0") != "0" for key in _DELETE_COUNTS),
    )


def _only_manifests(summary: Mapping[str, str]) -> bool:
    """Returns whether the commit added and removed no file. A commit without counts may have rewritten
    files."""
    counts = [summary[key] for key in _FILE_COUNTS if key in summary]
    if counts:
        return all(count == "0" for count in counts)
    return any(key in summary for key in _MANIFEST_COUNTS)


def writer_name(summary: Mapping[str, str], location: str) -> str:
    """Returns the name of the tool that wrote the summary. Engines write any text into a summary: the
    name is cut to a maximum length and control characters become spaces."""
    engine = summary.get("engine-name", "")
    if TOKEN_PROPERTY in summary:
        name = f"iceberg_maint (installation {summary[INSTALLATION_PROPERTY]})"
    elif _AMORO_PRODUCER in summary:
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
        # The buckets that hold the tables of Amazon S3 Tables. Its compaction is on by default.
        name = "Amazon S3 Tables"
    else:
        name = "an engine without a name in the summary"
    printable = "".join(c if c.isprintable() else " " for c in name)
    return printable[:_LONGEST_NAME]
