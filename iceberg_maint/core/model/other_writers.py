"""Other writers: maintenance by other tools, and branches and staged snapshots that wait to be published."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from iceberg_maint.core.model.table_state import (
    INSTALLATION_PROPERTY,
    TOKEN_PROPERTY,
    Ref,
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


def foreign_commits(
    state: TableState, installation: str, ordered: Collection[int] = ()
) -> tuple[ForeignCommit, ...]:
    """Returns foreign maintenance of files in the pinned snapshot and its retained ancestors: newest
    first, at most `MOST_KEPT`. Commits that only regroup manifests do not count. `installation` is the
    installation whose own commits are not foreign, nor are the snapshots that it `ordered` from an engine elsewhere."""
    others = (s for s in state.ancestors() if s.snapshot_id not in ordered)
    commits = (_foreign(snapshot, state.location, installation) for snapshot in others)
    return tuple(commit for commit in commits if commit is not None)[:MOST_KEPT]


def _foreign(snapshot: Snapshot, location: str, installation: str) -> ForeignCommit | None:
    summary = snapshot.summary
    if made_by(summary, installation):
        return None
    if not _is_by_amoro(summary) and (snapshot.operation != _REPLACE or _only_manifests(summary)):
        return None
    return ForeignCommit(
        snapshot.snapshot_id,
        snapshot.timestamp_ms,
        writer_name(summary, location),
        any(summary.get(key, "0") != "0" for key in _DELETE_COUNTS),
    )


def is_maintenance(snapshot: Snapshot) -> bool:
    """Returns whether the commit claims to change no row: by the operation `replace`, or by the mark of a maintainer that
    commits by another operation, this program among them."""
    summary = snapshot.summary
    return snapshot.operation == _REPLACE or _is_by_amoro(summary) or TOKEN_PROPERTY in summary


def _is_by_amoro(summary: Mapping[str, str]) -> bool:
    return summary.get(_AMORO_PRODUCER) in _AMORO_MAINTENANCE


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
        name = f"iceberg_maint (installation {summary.get(INSTALLATION_PROPERTY, '?')})"
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


MAIN_BRANCH = "main"
STAGED_PROPERTY = "wap.id"
"""Snapshot summary key of write-audit-publish: the id under which a snapshot was staged."""
_PUBLISHED_PROPERTY = "published-wap-id"
_PICKED_PROPERTY = "source-snapshot-id"
_DYNAMIC_PROPERTY = "replace-partitions"


class PublishKind(StrEnum):
    """What is to be published: a branch by `fast_forward`, or a staged snapshot by `cherrypick_snapshot`."""

    BRANCH = "branch"
    STAGED = "staged"


@dataclass(frozen=True, slots=True)
class PendingPublish:
    """A branch by its name or a staged snapshot by its wap.id. `snapshot_id` is its head. `since_ms` is the commit
    time of its oldest snapshot that main does not have."""

    kind: PublishKind
    name: str
    snapshot_id: int
    since_ms: int


def pending_publishes(state: TableState) -> tuple[PendingPublish, ...]:
    """Returns what a commit to main would keep from being published, by name."""
    head_id = None if state.snapshot is None else state.snapshot.snapshot_id
    return _pending(state.refs, state.snapshots, head_id)


def pending_publishes_of(metadata: Mapping[str, Any]) -> tuple[PendingPublish, ...]:
    """Returns the same from a table metadata document (spec: "Table Metadata")."""
    refs = [
        Ref(name, node["type"], int(node["snapshot-id"]))
        for name, node in (metadata.get("refs") or {}).items()
    ]
    snapshots = []
    for node in metadata.get("snapshots") or ():
        summary = node.get("summary") or {}
        snapshots.append(
            Snapshot(
                snapshot_id=int(node["snapshot-id"]),
                parent_id=node.get("parent-snapshot-id"),
                sequence_number=int(node.get("sequence-number", 0)),
                timestamp_ms=int(node["timestamp-ms"]),
                operation=summary.get("operation", ""),
                summary=summary,
                manifest_list="",
            )
        )
    head_id = metadata.get("current-snapshot-id")
    return _pending(refs, snapshots, None if head_id in (None, -1) else int(head_id))


def unpublished(snapshots: Sequence[Snapshot], on_branches: Collection[int]) -> Iterator[Snapshot]:
    """Yields the snapshots staged by write-audit-publish whose rows no branch shows yet."""
    published = {s.summary.get(_PUBLISHED_PROPERTY) for s in snapshots}
    picked = {s.summary.get(_PICKED_PROPERTY) for s in snapshots}
    for s in snapshots:
        wap_id = s.summary.get(STAGED_PROPERTY)
        if wap_id is None or s.snapshot_id in on_branches:
            continue
        if wap_id not in published and str(s.snapshot_id) not in picked:
            yield s


def _pending(
    refs: Sequence[Ref], snapshots: Sequence[Snapshot], head_id: int | None
) -> tuple[PendingPublish, ...]:
    by_id = {s.snapshot_id: s for s in snapshots}
    if head_id not in by_id:
        return ()
    branches = [r for r in refs if r.kind == "branch" and r.name != MAIN_BRANCH]
    ahead = []
    for ref in branches:
        beyond: Snapshot | None = None
        for snapshot in _ancestors(by_id, ref.snapshot_id):
            if snapshot.snapshot_id == head_id:
                break
            beyond = snapshot
        else:
            continue  # main's head is no ancestor: the branch cannot be fast-forwarded any more
        if beyond is not None:
            ahead.append(PendingPublish(PublishKind.BRANCH, ref.name, ref.snapshot_id, beyond.timestamp_ms))
    if not any(STAGED_PROPERTY in s.summary for s in snapshots):
        return tuple(sorted(ahead, key=lambda p: p.name))
    on_main = {s.snapshot_id for s in _ancestors(by_id, head_id)}
    on_branches = on_main.union(s.snapshot_id for r in branches for s in _ancestors(by_id, r.snapshot_id))
    staged = [
        PendingPublish(PublishKind.STAGED, s.summary[STAGED_PROPERTY], s.snapshot_id, s.timestamp_ms)
        for s in unpublished(snapshots, on_branches)
        if _ends_with_a_commit(s, head_id, on_main)
    ]
    return (*sorted(ahead, key=lambda p: p.name), *sorted(staged, key=lambda p: (p.name, p.snapshot_id)))


def _ends_with_a_commit(staged: Snapshot, head_id: int | None, on_main: Collection[int]) -> bool:
    """Whether the snapshot can be published now, and perhaps not after a commit to main."""
    if staged.operation == "append":
        return False
    if staged.summary.get(_DYNAMIC_PROPERTY) == "true":
        return staged.parent_id is None or staged.parent_id in on_main
    return staged.parent_id == head_id


def _ancestors(by_id: Mapping[int, Snapshot], snapshot_id: int | None) -> Iterator[Snapshot]:
    """Yields the snapshot and its retained ancestors, each once, also where damaged metadata form a circle."""
    passed: set[int] = set()
    while snapshot_id in by_id and snapshot_id not in passed:
        assert snapshot_id is not None
        passed.add(snapshot_id)
        yield by_id[snapshot_id]
        snapshot_id = by_id[snapshot_id].parent_id
