"""Detects files that a streaming writer has written and not yet committed, from file names and snapshot
summaries.

Flink's sink writes a manifest of each checkpoint's files (`FlinkManifestUtil`), keeps its path in the
checkpoint, and commits the files when the checkpoint is complete. A restored job commits the manifests
that its last checkpoint names. Kafka Connect keeps the same facts in its control topic, which is not on
storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from iceberg_maint.core.model.table_state import Ref, Snapshot, TableState

_FLINK_JOB, _FLINK_OPERATOR = "flink.job-id", "flink.operator-id"
_FLINK_CHECKPOINT = "flink.max-committed-checkpoint-id"
_FLINK_FOLDER = "flink.manifests.location"
_METADATA_FOLDER = "write.metadata.path"
_CONNECT_OFFSETS = "kafka.connect.offsets."

# ManifestOutputFileFactory: <job id>-<operator id>-<subtask>-<attempt>-<checkpoint>-<count>[-<suffix>].avro
_NUMBERS = r"\d{5,}-\d+-(?P<checkpoint>-?\d+)-\d{5,}"
_NAME = re.compile(rf".+-{_NUMBERS}(-.+)?\.avro")
_NUMBERS_ONLY = re.compile(rf"{_NUMBERS}\.avro")
_JOB_PREFIX = re.compile(r"[0-9a-f]{32}-.*\.avro")


class PendingManifests:
    """The manifests of Flink jobs, recognized by their names.

    `before_ms` is the store's time before which a manifest counts as abandoned; None: never.
    """

    def __init__(self, state: TableState, before_ms: int | None = None) -> None:
        self._before_ms = before_ms
        self._jobs = tuple(
            {f"{s.summary[_FLINK_JOB]}-" for s in state.snapshots if s.summary.get(_FLINK_JOB)}
        )
        self._committed = _committed_checkpoints(state)
        self.folders = _folders(state)
        self._connectors = _last_commits(state)

    def keeps(self, name: str, modified_ms: int | None) -> bool:
        """Returns whether a file with this name is a manifest that a job may still commit."""
        return self.is_manifest(name) and not (self._is_abandoned(modified_ms) or self._is_committed(name))

    def is_manifest(self, name: str) -> bool:
        """Returns whether Flink's sink gives such a name, or the name begins with the id of a job of this
        table."""
        return name.endswith(".avro") and bool(
            _JOB_PREFIX.fullmatch(name) or name.startswith(self._jobs or "\0") or _NAME.fullmatch(name)
        )

    def has_full_name(self, name: str) -> bool:
        """Returns whether only Flink's sink gives such a name."""
        return bool(_NAME.fullmatch(name))

    def unread_since_ms(self) -> int | None:
        """Returns the last commit of the Kafka Connect group that has not committed for the longest time.
        None if no group commits to the table. Files written since may still be committed."""
        return min((ms for ms in self._connectors if not self._is_abandoned(ms)), default=None)

    def _is_abandoned(self, modified_ms: int | None) -> bool:
        return self._before_ms is not None and modified_ms is not None and modified_ms < self._before_ms

    def _is_committed(self, name: str) -> bool:
        """Returns whether a restored job would skip the manifest: every branch has a later checkpoint of
        the same job and operator (`SinkUtil.getMaxCommittedCheckpointId`)."""
        for writer, checkpoint in self._committed.items():
            if name.startswith(writer) and (numbers := _NUMBERS_ONLY.fullmatch(name[len(writer) :])):
                return int(numbers["checkpoint"]) <= checkpoint
        return False


def _folders(state: TableState) -> tuple[str, ...]:
    """Returns the folders in which Flink's sink writes manifests of this table."""
    metadata = state.metadata_location.rpartition("/")[0]
    folders = (metadata, *(state.properties.get(key) for key in (_METADATA_FOLDER, _FLINK_FOLDER)))
    return tuple(dict.fromkeys(folder.rstrip("/") for folder in folders if folder))


def _committed_checkpoints(state: TableState) -> dict[str, int]:
    """Returns, by `<job id>-<operator id>-`, the newest checkpoint that all branches have. Only writers
    with a commit on every branch are included."""
    of_branches = [_checkpoints(chain) for chain in _chains(state)]
    common = set.intersection(*(set(c) for c in of_branches)) if of_branches else set()
    return {writer: min(c[writer] for c in of_branches) for writer in common}


def _checkpoints(chain: Iterator[Snapshot]) -> dict[str, int]:
    """Returns, by writer, the checkpoint that a restored job finds first."""
    checkpoints: dict[str, int] = {}
    for snapshot in chain:
        job, operator, checkpoint = (
            snapshot.summary.get(key, "") for key in (_FLINK_JOB, _FLINK_OPERATOR, _FLINK_CHECKPOINT)
        )
        if job and operator and re.fullmatch(r"-?\d+", checkpoint):
            checkpoints.setdefault(f"{job}-{operator}-", int(checkpoint))
    return checkpoints


def _chains(state: TableState) -> list[Iterator[Snapshot]]:
    """Returns the snapshots of every branch, newest first."""
    by_id = {s.snapshot_id: s for s in state.snapshots}
    heads = {r.snapshot_id for r in state.refs if _is_branch(r)}
    if state.snapshot is not None:
        heads.add(state.snapshot.snapshot_id)
    return [_ancestors(by_id, head) for head in heads]


def _is_branch(ref: Ref) -> bool:
    return ref.kind == "branch"


def _ancestors(by_id: dict[int, Snapshot], snapshot_id: int | None) -> Iterator[Snapshot]:
    while snapshot_id is not None and (snapshot := by_id.get(snapshot_id)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_id


def _last_commits(state: TableState) -> tuple[int, ...]:
    """Returns the time of the last commit of each Kafka Connect group, by the control topic and group of
    its offsets."""
    last_commits: dict[str, int] = {}
    for snapshot in state.snapshots:
        for key in snapshot.summary:
            if key.startswith(_CONNECT_OFFSETS):
                last_commits[key] = max(snapshot.timestamp_ms, last_commits.get(key, snapshot.timestamp_ms))
    return tuple(last_commits.values())
