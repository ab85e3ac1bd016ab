"""Foreign maintainers: who else rewrites a table's files, as told by the marks in its history.

Two maintainers of one table undo each other's work, and each counts on deletes that the other may
turn round. Our own commits carry our token; any other REPLACE commit (spec: Snapshots, "data and
delete files were added and removed without changing table data") is somebody else's maintenance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from iceberg_maint.core.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.policy import ForeignMaintainersPolicy, ForeignMode, Mode, Policy, Route
from iceberg_maint.core.reasons import Reason, Verdict
from iceberg_maint.core.state import TOKEN_PROPERTY, Snapshot, TableState

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


@dataclass(frozen=True, slots=True)
class Company:
    """A foreign maintainer that counts: `commit` is its newest, and it counts until `until_ms`."""

    commit: ForeignCommit
    until_ms: int

    def evidence(self) -> dict[str, str]:
        """What a decision tells of it."""
        return {
            "foreign_maintainer": self.commit.maintainer,
            "foreign_snapshot": str(self.commit.snapshot_id),
            "foreign_at_ms": str(self.commit.timestamp_ms),
            "foreign_until_ms": str(self.until_ms),
        }


def company(
    commits: Sequence[ForeignCommit], policy: ForeignMaintainersPolicy, now_ms: int
) -> Company | None:
    """The foreign maintainer that is still at work as the policy counts it, if any: a single
    compaction by hand stops nothing for ever."""
    if policy.mode is ForeignMode.IGNORE or not commits:
        return None
    newest = max(commits, key=lambda commit: commit.timestamp_ms)
    until_ms = newest.timestamp_ms + policy.within_seconds * 1000
    return Company(newest, until_ms) if now_ms < until_ms else None


def foreign_stop(
    operation: Operation, commits: Sequence[ForeignCommit], policy: Policy, now_ms: int
) -> tuple[Verdict, Reason, dict[str, str]] | None:
    """What stops an operation for which something is due beside a foreign maintainer, if anything.

    In mode `refuse` all work on data is refused, as it replaces files the other may be at work on; in `coexist` data files may be rewritten, and
    position deletes are the other's business. A policy that only advises stops nothing.
    """
    other = company(commits, policy.foreign_maintainers, now_ms)
    if other is None or operation not in DATA_OPERATIONS or policy.mode is Mode.ADVISE:
        return None
    if policy.foreign_maintainers.mode is ForeignMode.REFUSE:
        return Verdict.REFUSE, Reason.FOREIGN_MAINTAINER, other.evidence()
    if operation is Operation.REWRITE_POSITION_DELETE_FILES:
        return Verdict.SKIP, Reason.FOREIGN_MAINTAINER, other.evidence()
    return None


def in_company(policy: Policy, commits: Sequence[ForeignCommit], now_ms: int) -> Policy:
    """The policy as it holds in mode `coexist` while a foreign maintainer is at work: only partitions
    that are cold for both, and equality deletes are applied by rewriting data files, since two
    maintainers that convert them take each other's deletes for live ones."""
    own = policy.foreign_maintainers
    if own.mode is not ForeignMode.COEXIST or company(commits, own, now_ms) is None:
        return policy
    cold = max(policy.windows.cold_after_seconds or 0, own.cold_after_seconds)
    return replace(
        policy,
        windows=replace(policy.windows, cold_after_seconds=cold),
        equality_deletes=replace(policy.equality_deletes, route=Route.REWRITE),
    )


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
