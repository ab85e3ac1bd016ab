"""Retention: which snapshots may expire, and what retains the others.

Age, count and the ages of refs are those of the Iceberg spec, "Snapshot Retention Policy", as
`org.apache.iceberg.RemoveSnapshots` computes them. Every other retainer can only keep more. All times are
epoch milliseconds in UTC; no calendar is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from iceberg_maint.core.model.other_writers import (
    MAIN_BRANCH,
    STAGED_PROPERTY,
    PublishKind,
    pending_publishes,
    unpublished,
)
from iceberg_maint.core.model.table_state import Ref, Snapshot, TableState
from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy
from iceberg_maint.core.policy.runs import PublishMode, WriteAuditPublishPolicy

_SNAPSHOT_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
_SNAPSHOTS_PROPERTY = "history.expire.min-snapshots-to-keep"
_REF_AGE_PROPERTY = "history.expire.max-ref-age-ms"

_FLINK_CHECKPOINT = "flink.max-committed-checkpoint-id"
_FLINK_IDENTITY = ("flink.job-id", "flink.operator-id")
_CONNECT_OFFSETS = "kafka.connect.offsets."
_CONNECT_VALID_THROUGH = frozenset({"kafka.connect.valid-through-ts", "kafka.connect.vtts"})
_SPARK_QUERY = "spark.sql.streaming.queryId"


_DESCRIBED = 20
_WAITING = WriteAuditPublishPolicy()


class RetainerKind(StrEnum):
    """The kinds of retainers: who depends on a snapshot."""

    TAG = "tag"
    BRANCH = "branch"
    STAGED = "staged"
    FLINK = "flink"
    KAFKA_CONNECT = "kafka_connect"
    SPARK_STREAMING = "spark_streaming"
    READER = "reader"
    RUNNING = "running"
    ATTESTATION = "attestation"


@dataclass(frozen=True, slots=True)
class RegisteredReader:
    """A reader of the table's changes: the snapshot it has read up to, and the time of its last report."""

    name: str
    snapshot_id: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class Retainer:
    """A reader, writer, run or ref that depends on `snapshot_id` and on the snapshots committed since.

    `blocks` are the snapshots, oldest first, that age and count would expire and that this retainer keeps.
    `until_ms` is the time when the retention ends by itself, None: never. `since_ms` is the time of its
    last sign: the commit of `snapshot_id`, or the last report of a reader.
    """

    kind: RetainerKind
    name: str
    snapshot_id: int
    until_ms: int | None = None
    blocks: tuple[int, ...] = ()
    since_ms: int | None = None

    def describe(self) -> str:
        """Returns what retains how many snapshots since when, as text."""
        count = len(self.blocks)
        retained = f"{self.kind.value} {self.name} ({count} snapshot{'' if count == 1 else 's'}"
        since = "" if self.since_ms is None else f" since {_moment(self.since_ms)}"
        until = "" if self.until_ms is None else f" until {_moment(self.until_ms)}"
        end = ", then it can no longer be published" if until and self.kind is RetainerKind.BRANCH else ""
        return f"{retained}{since}{until}{end})"


@dataclass(frozen=True, slots=True)
class Retention:
    """What may expire: snapshots, oldest first, and refs past their own age. `retainers` are in force.
    `lapsed` ones are not: they are too old, or their snapshot is gone."""

    expire: tuple[int, ...]
    expire_refs: tuple[str, ...]
    retainers: tuple[Retainer, ...]
    lapsed: tuple[Retainer, ...]

    @property
    def blocking(self) -> tuple[Retainer, ...]:
        """The retainers that keep snapshots which would expire without them."""
        return tuple(h for h in self.retainers if h.blocks)


def described_retainers(retention: Retention) -> tuple[str, ...]:
    """Returns the blocking retainers as text, those that keep the most snapshots first, and the number of the
    others. Each job id of a streaming writer is a retainer of its own."""
    blocking = sorted(retention.blocking, key=lambda h: (-len(h.blocks), h.kind, h.name))
    shown = tuple(h.describe() for h in blocking[:_DESCRIBED])
    others = len(blocking) - _DESCRIBED
    return (*shown, f"{others} more") if others > 0 else shown


def gc_enabled(properties: Mapping[str, str]) -> bool:
    """Returns whether the table's owner allows the deletion of its files (table property `gc.enabled`)."""
    return properties.get("gc.enabled", "true").strip().lower() == "true"


def may_be_young(state: TableState, policy: ExpireSnapshotsPolicy, snapshot_id: int, now_ms: int) -> bool:
    """Returns whether a plan made when this snapshot was main's head may be younger than the minimum age
    of expiry. An older plan belongs to an operation that is turned off or held back; that operation is
    planned again before it runs."""
    since_ms = now_ms
    for snapshot in state.ancestors():
        if snapshot.snapshot_id == snapshot_id:
            return since_ms >= now_ms - policy.max_snapshot_age_seconds * 1000
        since_ms = snapshot.timestamp_ms
    return False


def retain(
    state: TableState,
    policy: ExpireSnapshotsPolicy,
    now_ms: int,
    *,
    work: Iterable[Retainer] = (),
    readers: Iterable[RegisteredReader] = (),
    publishing: WriteAuditPublishPolicy = _WAITING,
) -> Retention:
    """Returns what may expire at `now_ms`. `work` are the retainers of unfinished plans, and of open verdicts of `attest`: the
    parent of a RED commit, which the roll-back needs. For these and for readers the snapshots committed since stay too.
    `publishing` says how long the snapshots stay by which a branch can be published."""
    history = _History(state, policy, now_ms)
    requested = [
        *work,
        *(
            Retainer(
                RetainerKind.READER,
                r.name,
                r.snapshot_id,
                _end(r.seen_ms, policy.reader_max_silence_seconds),
                since_ms=r.seen_ms,
            )
            for r in sorted(readers, key=lambda r: r.name)
        ),
        *history.tags(),
        *history.publishable(publishing),
        *history.staged(),
        *history.writers(),
    ]
    aged = history.kept_by_age_and_count()
    kept_ids, retainers, lapsed = set(aged), [], []
    for retainer in requested:
        if retainer.snapshot_id not in history.by_id or (
            retainer.until_ms is not None and retainer.until_ms < now_ms
        ):
            lapsed.append(retainer)
            continue
        needed = history.needed(retainer)
        kept_ids |= needed
        beyond = needed - aged
        blocks = tuple(s.snapshot_id for s in history.oldest_first if s.snapshot_id in beyond)
        since_ms = (
            history.by_id[retainer.snapshot_id].timestamp_ms
            if retainer.since_ms is None
            else retainer.since_ms
        )
        retainers.append(replace(retainer, blocks=blocks, since_ms=since_ms))
    return Retention(
        expire=tuple(s.snapshot_id for s in history.oldest_first if s.snapshot_id not in kept_ids),
        expire_refs=tuple(sorted(r.name for r in state.refs if r not in history.refs)),
        retainers=tuple(retainers),
        lapsed=tuple(lapsed),
    )


class _History:
    """The table's snapshots as chains of its retained branches."""

    def __init__(self, state: TableState, policy: ExpireSnapshotsPolicy, now_ms: int) -> None:
        self._state, self._policy, self._now_ms = state, policy, now_ms
        self.by_id = {s.snapshot_id: s for s in state.snapshots}
        self.oldest_first = sorted(state.snapshots, key=lambda s: (s.sequence_number, s.timestamp_ms))
        self.refs = [r for r in _with_main(state) if self._is_retained(r)]
        self._chains = {
            r.name: tuple(self._ancestors(r.snapshot_id)) for r in self.refs if r.kind == "branch"
        }

    def kept_by_age_and_count(self) -> set[int]:
        """Returns the ids that `RemoveSnapshots` keeps and, on every branch, all snapshots newer than the
        oldest one it keeps. A writer's clock that was once slow leaves no gap."""
        age_ms = max(
            self._policy.max_snapshot_age_seconds * 1000, _number(self._state, _SNAPSHOT_AGE_PROPERTY) or 0
        )
        min_count = max(self._policy.min_snapshots_to_keep, _number(self._state, _SNAPSHOTS_PROPERTY) or 1)
        kept_ids = {r.snapshot_id for r in self.refs}
        referenced = set(kept_ids)
        for ref in self.refs:
            chain = self._chains.get(ref.name, ())
            referenced.update(s.snapshot_id for s in chain)
            ref_age_ms = age_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
            ref_min_count = min_count if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
            young = [n for n, s in enumerate(chain, 1) if s.timestamp_ms >= self._now_ms - ref_age_ms]
            kept_ids.update(s.snapshot_id for s in chain[: max(ref_min_count, *young, 1)])
        kept_ids.update(
            s.snapshot_id
            for s in self._state.snapshots
            if s.snapshot_id not in referenced and s.timestamp_ms >= self._now_ms - age_ms
        )
        return kept_ids

    def needed(self, retainer: Retainer) -> set[int]:
        """Returns the held snapshot and the snapshots committed since on the branches that descend from
        it. The retainer finds it by walking from a branch's head from parent to parent.

        Publishing a staged overwrite finds the snapshot it was staged on in the same way
        (`CherryPickOperation`).
        """
        anchors = {retainer.snapshot_id}
        if retainer.kind is RetainerKind.TAG:
            return anchors
        if retainer.kind is RetainerKind.STAGED:
            parent = self.by_id[retainer.snapshot_id].parent_id
            if parent is not None:
                anchors.add(parent)
        needed_ids = anchors & self.by_id.keys()
        for chain in self._chains.values():
            ids = [s.snapshot_id for s in chain]
            for position in (ids.index(a) for a in anchors if a in ids):
                needed_ids.update(ids[: position + 1])
        return needed_ids

    def tags(self) -> Iterator[Retainer]:
        """Yields a retainer for the snapshot of each retained tag."""
        for ref in self.refs:
            if ref.kind != "branch":
                yield Retainer(RetainerKind.TAG, ref.name, ref.snapshot_id, self._ref_end(ref))

    def publishable(self, policy: WriteAuditPublishPolicy) -> Iterator[Retainer]:
        """Yields a retainer for the first snapshot that main lacks of each branch that is waited for. `fast_forward`
        finds main's head by walking from the branch's head from parent to parent."""
        if policy.mode is PublishMode.IGNORE or self._state.snapshot is None:
            return
        head_id = self._state.snapshot.snapshot_id
        for p in pending_publishes(self._state):
            if p.kind is PublishKind.BRANCH and p.name in self._chains:
                first = next(s for s in self._chains[p.name] if s.parent_id == head_id)
                end_ms = _end(p.since_ms, policy.max_age_seconds)
                yield Retainer(RetainerKind.BRANCH, p.name, first.snapshot_id, end_ms)

    def staged(self) -> Iterator[Retainer]:
        """Yields a retainer for each snapshot staged by write-audit-publish whose rows no branch shows yet."""
        on_branches = {s.snapshot_id for chain in self._chains.values() for s in chain}
        for s in unpublished(self.oldest_first, on_branches):
            end_ms = _end(s.timestamp_ms, self._policy.staged_max_age_seconds)
            yield Retainer(RetainerKind.STAGED, s.summary[STAGED_PROPERTY], s.snapshot_id, end_ms)

    def writers(self) -> Iterator[Retainer]:
        """Yields, for every branch, a retainer for the newest snapshot with each streaming writer's position.
        A writer that finds no position commits again what it had already committed, however long it was
        paused. Nothing in the table shows that a writer will not come back."""
        positions: set[tuple[RetainerKind, str, int]] = set()
        for chain in self._chains.values():
            known_writers: set[tuple[RetainerKind, str]] = set()
            for s in chain:
                for writer in _writers(s.summary):
                    if writer not in known_writers:
                        known_writers.add(writer)
                        positions.add((*writer, s.snapshot_id))
        for kind, name, snapshot_id in sorted(positions):
            end_ms = _end(self.by_id[snapshot_id].timestamp_ms, self._policy.writer_state_max_age_seconds)
            yield Retainer(kind, name, snapshot_id, end_ms)

    def _is_retained(self, ref: Ref) -> bool:
        end_ms = self._ref_end(ref)
        return ref.snapshot_id in self.by_id and (end_ms is None or self._now_ms <= end_ms)

    def _ref_end(self, ref: Ref) -> int | None:
        """Returns the last time at which the ref stays, None without a limit. `main` always stays."""
        age_ms = ref.max_ref_age_ms
        if age_ms is None:
            age_ms = _number(self._state, _REF_AGE_PROPERTY)
        head = self.by_id.get(ref.snapshot_id)
        if ref.name == MAIN_BRANCH or age_ms is None or head is None:
            return None
        return head.timestamp_ms + age_ms

    def _ancestors(self, snapshot_id: int) -> Iterator[Snapshot]:
        snapshot = self.by_id.get(snapshot_id)
        while snapshot is not None:
            yield snapshot
            snapshot = self.by_id.get(snapshot.parent_id) if snapshot.parent_id is not None else None


def _with_main(state: TableState) -> tuple[Ref, ...]:
    """Returns the refs. The current snapshot is main's even if the metadata name no such ref."""
    if state.snapshot is None or any(r.name == MAIN_BRANCH for r in state.refs):
        return state.refs
    return (Ref(MAIN_BRANCH, "branch", state.snapshot.snapshot_id), *state.refs)


def _writers(summary: Mapping[str, str]) -> Iterator[tuple[RetainerKind, str]]:
    """Yields the streaming writers whose position a snapshot's summary holds, each by the key that the
    writer searches for: Flink's job and operator, Kafka Connect's control topic and group, Spark's query."""
    if _FLINK_CHECKPOINT in summary:
        yield RetainerKind.FLINK, "/".join(summary[k] for k in _FLINK_IDENTITY if k in summary)
    for key in summary:
        if key.startswith(_CONNECT_OFFSETS):
            yield RetainerKind.KAFKA_CONNECT, key.removeprefix(_CONNECT_OFFSETS)
        elif key in _CONNECT_VALID_THROUGH:
            yield RetainerKind.KAFKA_CONNECT, key
    if _SPARK_QUERY in summary:
        yield RetainerKind.SPARK_STREAMING, summary[_SPARK_QUERY]


def _moment(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"  # damaged metadata: a year that no calendar has


def _end(since_ms: int, seconds: int | None) -> int | None:
    return None if seconds is None else since_ms + seconds * 1000


def _number(state: TableState, name: str) -> int | None:
    """Returns a table property as a whole number, None if it is not set or is not a number. The policy
    then decides; the table's readers fail on such a value themselves."""
    try:
        return int(state.properties[name])
    except (KeyError, ValueError):
        return None
