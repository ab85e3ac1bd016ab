"""Retention: which snapshots may expire, and who holds the others.

Age, count and the ages of refs are those of the Iceberg spec, "Snapshot Retention Policy", as
`org.apache.iceberg.RemoveSnapshots` computes them; what else depends on history only ever keeps
more. All times are epoch milliseconds in UTC; no calendar is consulted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.model.table_state import Ref, Snapshot, TableState
from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy

MAIN_BRANCH = "main"
_SNAPSHOT_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
_SNAPSHOTS_PROPERTY = "history.expire.min-snapshots-to-keep"
_REF_AGE_PROPERTY = "history.expire.max-ref-age-ms"
_STAGED_PROPERTY = "wap.id"
_PUBLISHED_PROPERTY = "published-wap-id"
_PICKED_PROPERTY = "source-snapshot-id"

_FLINK_CHECKPOINT = "flink.max-committed-checkpoint-id"
_FLINK_IDENTITY = ("flink.job-id", "flink.operator-id")
_CONNECT_OFFSETS = "kafka.connect.offsets."
_CONNECT_VALID_THROUGH = frozenset({"kafka.connect.valid-through-ts", "kafka.connect.vtts"})
_SPARK_QUERY = "spark.sql.streaming.queryId"


class Holder(StrEnum):
    """What depends on a snapshot."""

    TAG = "tag"
    STAGED = "staged"
    FLINK = "flink"
    KAFKA_CONNECT = "kafka_connect"
    SPARK_STREAMING = "spark_streaming"
    READER = "reader"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class RegisteredReader:
    """A reader of the table's changes: the snapshot it has read up to, and when it last said so."""

    name: str
    snapshot_id: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Somebody depends on `snapshot_id` and on what was committed since.

    `blocks` are the snapshots, oldest first, that age and count would let go and that stay for
    this. `until_ms` is when it ends by itself, None: never.
    """

    holder: Holder
    name: str
    snapshot_id: int
    until_ms: int | None = None
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Retention:
    """What may go: snapshots oldest first, and refs past their own age. `holds` are in force,
    `lapsed` ones are not any more: too old, or their snapshot is gone."""

    expire: tuple[int, ...]
    expire_refs: tuple[str, ...]
    holds: tuple[Hold, ...]
    lapsed: tuple[Hold, ...]

    @property
    def blocking(self) -> tuple[Hold, ...]:
        """The holds without which more would go."""
        return tuple(h for h in self.holds if h.blocks)


def gc_enabled(properties: Mapping[str, str]) -> bool:
    """Whether the table's owner lets its files be deleted (table property `gc.enabled`)."""
    return properties.get("gc.enabled", "true").strip().lower() == "true"


def may_be_young(state: TableState, policy: ExpireSnapshotsPolicy, snapshot_id: int, now_ms: int) -> bool:
    """Whether a plan made when this snapshot was main's head may be younger than snapshots must be to
    stay. An older one is of an operation that is turned off or held back: who takes it up again plans
    anew."""
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
    running: Mapping[str, int] | None = None,
    readers: Iterable[RegisteredReader] = (),
) -> Retention:
    """What may expire at `now_ms`. `running` are the snapshots that plans not yet done were made
    at, by plan; for them and for readers the snapshots committed since stay too."""
    history = _History(state, policy, now_ms)
    asked = [
        *(Hold(Holder.RUNNING, name, of) for name, of in sorted((running or {}).items())),
        *(
            Hold(Holder.READER, r.name, r.snapshot_id, _end(r.seen_ms, policy.reader_max_silence_seconds))
            for r in sorted(readers, key=lambda r: r.name)
        ),
        *history.tags(),
        *history.staged(),
        *history.writers(),
    ]
    aged = history.kept_by_age_and_count()
    kept, holds, lapsed = set(aged), [], []
    for hold in asked:
        if hold.snapshot_id not in history.by_id or (hold.until_ms is not None and hold.until_ms < now_ms):
            lapsed.append(hold)
            continue
        needed = history.needed(hold)
        kept |= needed
        beyond = needed - aged
        blocks = tuple(s.snapshot_id for s in history.oldest_first if s.snapshot_id in beyond)
        holds.append(Hold(hold.holder, hold.name, hold.snapshot_id, hold.until_ms, blocks))
    return Retention(
        expire=tuple(s.snapshot_id for s in history.oldest_first if s.snapshot_id not in kept),
        expire_refs=tuple(sorted(r.name for r in state.refs if r not in history.refs)),
        holds=tuple(holds),
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
        """What `RemoveSnapshots` keeps, and of every branch all down to the oldest one it keeps:
        a writer's clock that was slow once makes no hole."""
        age_ms = max(
            self._policy.max_snapshot_age_seconds * 1000, _number(self._state, _SNAPSHOT_AGE_PROPERTY) or 0
        )
        at_least = max(self._policy.min_snapshots_to_keep, _number(self._state, _SNAPSHOTS_PROPERTY) or 1)
        kept = {r.snapshot_id for r in self.refs}
        referenced = set(kept)
        for ref in self.refs:
            chain = self._chains.get(ref.name, ())
            referenced.update(s.snapshot_id for s in chain)
            own_age_ms = age_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
            own_least = at_least if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
            young = [n for n, s in enumerate(chain, 1) if s.timestamp_ms >= self._now_ms - own_age_ms]
            kept.update(s.snapshot_id for s in chain[: max(own_least, *young, 1)])
        kept.update(
            s.snapshot_id
            for s in self._state.snapshots
            if s.snapshot_id not in referenced and s.timestamp_ms >= self._now_ms - age_ms
        )
        return kept

    def needed(self, hold: Hold) -> set[int]:
        """The held snapshot with all that was committed since on the branches that descend from
        it: whoever looks for it walks from a branch's head from parent to parent.

        Publishing a staged overwrite looks for the snapshot it was staged on in the same way
        (`CherryPickOperation`).
        """
        anchors = {hold.snapshot_id}
        if hold.holder is Holder.TAG:
            return anchors
        if hold.holder is Holder.STAGED:
            parent = self.by_id[hold.snapshot_id].parent_id
            if parent is not None:
                anchors.add(parent)
        found = anchors & self.by_id.keys()
        for chain in self._chains.values():
            ids = [s.snapshot_id for s in chain]
            for place in (ids.index(a) for a in anchors if a in ids):
                found.update(ids[: place + 1])
        return found

    def tags(self) -> Iterator[Hold]:
        """The snapshots of retained tags."""
        for ref in self.refs:
            if ref.kind != "branch":
                yield Hold(Holder.TAG, ref.name, ref.snapshot_id, self._ref_end(ref))

    def staged(self) -> Iterator[Hold]:
        """Snapshots staged by write-audit-publish of which no branch shows the rows yet."""
        on_branches = {s.snapshot_id for chain in self._chains.values() for s in chain}
        published = {s.summary.get(_PUBLISHED_PROPERTY) for s in self._state.snapshots}
        picked = {s.summary.get(_PICKED_PROPERTY) for s in self._state.snapshots}
        for s in self.oldest_first:
            wap_id = s.summary.get(_STAGED_PROPERTY)
            if wap_id is None or s.snapshot_id in on_branches:
                continue
            if wap_id not in published and str(s.snapshot_id) not in picked:
                end_ms = _end(s.timestamp_ms, self._policy.staged_max_age_seconds)
                yield Hold(Holder.STAGED, wap_id, s.snapshot_id, end_ms)

    def writers(self) -> Iterator[Hold]:
        """Of every branch, the newest snapshot that holds each streaming writer's position: where
        the writer finds none it commits again what it had committed."""
        found: set[tuple[Holder, str, int]] = set()
        for chain in self._chains.values():
            seen: set[tuple[Holder, str]] = set()
            for s in chain:
                for writer in _writers(s.summary):
                    if writer not in seen:
                        seen.add(writer)
                        found.add((*writer, s.snapshot_id))
        for holder, name, snapshot_id in sorted(found):
            end_ms = _end(self.by_id[snapshot_id].timestamp_ms, self._policy.writer_state_max_age_seconds)
            yield Hold(holder, name, snapshot_id, end_ms)

    def _is_retained(self, ref: Ref) -> bool:
        end_ms = self._ref_end(ref)
        return ref.snapshot_id in self.by_id and (end_ms is None or self._now_ms <= end_ms)

    def _ref_end(self, ref: Ref) -> int | None:
        """The last moment at which the ref stays; `main` always does."""
        age_ms = ref.max_ref_age_ms
        if age_ms is None:
            age_ms = _number(self._state, _REF_AGE_PROPERTY)
        head = self.by_id.get(ref.snapshot_id)
        if ref.name == MAIN_BRANCH or age_ms is None or head is None:
            return None
        return head.timestamp_ms + age_ms

    def _ancestors(self, snapshot_id: int) -> Iterator[Snapshot]:
        at = self.by_id.get(snapshot_id)
        while at is not None:
            yield at
            at = self.by_id.get(at.parent_id) if at.parent_id is not None else None


def _with_main(state: TableState) -> tuple[Ref, ...]:
    """The refs; the current snapshot is main's also where the metadata names no such ref."""
    if state.snapshot is None or any(r.name == MAIN_BRANCH for r in state.refs):
        return state.refs
    return (Ref(MAIN_BRANCH, "branch", state.snapshot.snapshot_id), *state.refs)


def _writers(summary: Mapping[str, str]) -> Iterator[tuple[Holder, str]]:
    """The streaming writers whose position a snapshot's summary holds, each by what it looks for:
    Flink's job and operator, Kafka Connect's control topic and group, Spark's query."""
    if _FLINK_CHECKPOINT in summary:
        yield Holder.FLINK, "/".join(summary[k] for k in _FLINK_IDENTITY if k in summary)
    for key in summary:
        if key.startswith(_CONNECT_OFFSETS):
            yield Holder.KAFKA_CONNECT, key.removeprefix(_CONNECT_OFFSETS)
        elif key in _CONNECT_VALID_THROUGH:
            yield Holder.KAFKA_CONNECT, key
    if _SPARK_QUERY in summary:
        yield Holder.SPARK_STREAMING, summary[_SPARK_QUERY]


def _end(since_ms: int, seconds: int | None) -> int | None:
    return None if seconds is None else since_ms + seconds * 1000


def _number(state: TableState, name: str) -> int | None:
    """A whole-number table property; one that is not a number counts as not set, as policy then
    decides and the table's readers fail on it themselves."""
    try:
        return int(state.properties[name])
    except (KeyError, ValueError):
        return None
