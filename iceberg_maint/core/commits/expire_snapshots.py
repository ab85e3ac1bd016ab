"""Expiry: the rules of a commit that removes snapshots and refs, and what came of one nobody told of.

The two table metadata documents are Iceberg's own JSON (spec: "Table Metadata"). What is compared is
all of them but the time of the change, so that nothing beside the plan can change with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from iceberg_maint.core.commits.gate import Rule, Violation
from iceberg_maint.core.decisions.retention import Retention, gc_enabled
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.settle import Settlement
from iceberg_maint.core.planning.work import ExpireSnapshots

Document = Mapping[str, Any]

_COMPARED_APART = ("snapshots", "refs", "snapshot-log", "statistics", "partition-statistics")
_OF_THE_COMMIT = ("last-updated-ms", "metadata-log")
"""When the metadata was written and what it was before: every commit changes these."""
_LOOKS = 3
LATE_SECONDS = 3600
"""A request that was not answered is taken to be applied within this time or not at all: far longer than
clients, proxies and servers usually wait."""


def check_expiry(
    table_uuid: str, work: ExpireSnapshots, base: Document, new: Document, retention: Retention
) -> tuple[Violation, ...]:
    """Every rule that going from `base` to `new` would break; () lets it pass. `retention` is what
    may expire of `base` now: the plan must not say more, whoever has come to depend on it since."""
    return (*_allowed(table_uuid, work, base, retention), *_as_planned(work, base, new))


def expired(work: ExpireSnapshots, state: TableState) -> bool:
    """Whether everything that the work meant to expire is gone from the table."""
    gone = {s.snapshot_id for s in state.snapshots}.isdisjoint(work.snapshots)
    return gone and {r.name for r in state.refs}.isdisjoint(work.refs)


def lost_with(work: ExpireSnapshots, base: Document, swapped: Document) -> tuple[str, ...]:
    """What others depend on and what went with the work's snapshots, as sentences: `base` is the
    metadata that the commit was checked against, `swapped` that which the catalog applied it to.

    A REST catalog does not compare the two: to remove snapshots, and the refs that point at them,
    it is asked to hold nothing but the table's identity (`UpdateRequirements.forUpdateTable`).
    """
    planned, before = frozenset(work.snapshots), _refs(base)
    found = []
    for name, ref in sorted(_refs(swapped).items()):
        if int(ref["snapshot-id"]) in planned and name not in work.refs:
            found.append(f"{ref['type']} {name} on snapshot {ref['snapshot-id']}")
        elif name in work.refs and ref != before.get(name):
            found.append(f"{ref['type']} {name}, set anew on snapshot {ref['snapshot-id']}")
    known = _by_id(base)
    for number, snapshot in _by_id(swapped).items():
        if number not in known and snapshot.get("parent-snapshot-id") in planned:
            found.append(
                f"snapshot {snapshot['parent-snapshot-id']}, the parent of the new snapshot {number}"
            )
    return tuple(found)


def applied_to(
    work: ExpireSnapshots, base_location: str, log: Sequence[str], read: Callable[[str], Document]
) -> Document | None:
    """The metadata that the catalog applied the work's commit to, where that is not the metadata at
    `base_location`, which it was checked against. `log` is the metadata log of the table that shows the
    commit, oldest first (spec: "Table Metadata", metadata-log); None also where a catalog keeps none.

    Raises LookupError where the log does not reach back to the commit, and what `read` raises.
    """
    is_logged = base_location in log
    found = None
    for location in log[log.index(base_location) + 1 :] if is_logged else log:
        document = read(location)
        if has_expired(work, document):
            break
        found = document
    if found is None and log and not is_logged:
        raise LookupError(f"the metadata log does not reach back to {base_location}")
    return found


def look_for_lost(
    look: Callable[[], tuple[str, ...]],
    pause: Callable[[int], None],
    one_line: Callable[[BaseException], str],
) -> tuple[str, ...]:
    """What `look` says has gone with a commit, asked a few times, because an expiry of which it cannot be
    told waits for a person; `pause(n)` waits after the nth look."""
    told = ""
    for n in range(1, _LOOKS + 1):
        try:
            return look()
        except Exception as why:  # noqa: BLE001 - it is committed, whatever can be told of it
            told = one_line(why)
        if n < _LOOKS:
            pause(n)
    return (f"it cannot be told what: {told}",)


def has_expired(work: ExpireSnapshots, document: Document) -> bool:
    """Whether nothing of what the work removes is in the metadata."""
    return _by_id(document).keys().isdisjoint(work.snapshots) and _refs(document).keys().isdisjoint(work.refs)


def settle_expiry(
    work: ExpireSnapshots | None, base_location: str | None, state: TableState, *, may_come: bool
) -> Settlement:
    """What came of an attempt that never reported back, based on the metadata at `base_location`
    (None: its commit was never attempted); `work` is None where another attempt has done it by now.

    No snapshot carries its token, so what it meant to remove is looked for. Where the catalog compares
    the base, a table that has moved past it cannot take the swap any more. Where it does not, a late one
    removes the work's snapshots and whatever points at them by then: while it `may_come`, nobody can tell.
    """
    if base_location is None:
        return Settlement(CommitStatus.REJECTED, None, "the commit was never attempted")
    if work is not None and expired(work, state):
        return Settlement(CommitStatus.COMMITTED, None, "what it meant to expire is gone")
    if state.metadata_location == base_location:
        return Settlement(CommitStatus.UNKNOWN, None, "the table is still at its base")
    if may_come:
        return Settlement(CommitStatus.UNKNOWN, None, "the catalog may still be asked to apply it")
    return Settlement(CommitStatus.REJECTED, None, "the table moved past its base without it")


def _allowed(
    table_uuid: str, work: ExpireSnapshots, base: Document, retention: Retention
) -> Iterator[Violation]:
    if base["table-uuid"] != table_uuid:
        yield Violation(Rule.TABLE_UUID, f"the table is {base['table-uuid']}, the plan was for {table_uuid}")
    if not gc_enabled(base.get("properties") or {}):
        yield Violation(Rule.RETENTION, "gc.enabled is false by now")
    may_go = frozenset(retention.expire)
    kept = [s for s in work.snapshots if s not in may_go]
    if kept:
        yield Violation(Rule.RETENTION, f"snapshot {kept[0]} may no longer expire, {len(kept)} in all")
    for name in work.refs:
        if name not in retention.expire_refs:
            yield Violation(Rule.RETENTION, f"ref {name} may no longer expire")


def _as_planned(work: ExpireSnapshots, base: Document, new: Document) -> Iterator[Violation]:
    planned = frozenset(work.snapshots)
    before, after = _by_id(base), _by_id(new)
    if removed := before.keys() - after.keys() - planned:
        yield Violation(Rule.SNAPSHOTS, f"would remove snapshot {min(removed)}, which was not planned")
    if kept := planned & after.keys():
        yield Violation(Rule.SNAPSHOTS, f"would not remove snapshot {min(kept)}")
    if any(after[s] != before.get(s) for s in after):
        yield Violation(Rule.SNAPSHOTS, "would add or change a snapshot")
    refs = _refs(base)
    wanted = {name: ref for name, ref in refs.items() if name not in work.refs}
    if _refs(new) != wanted:
        yield Violation(Rule.REFS, f"would leave other refs than {sorted(wanted)}")
    if gone := {int(ref["snapshot-id"]) for ref in wanted.values()} & planned:
        yield Violation(Rule.REFS, f"a ref points at snapshot {min(gone)}")
    for key in ("statistics", "partition-statistics"):
        if _rows(new, key) != [f for f in _rows(base, key) if int(f["snapshot-id"]) not in planned]:
            yield Violation(Rule.METADATA, f"would change {key} of snapshots that stay")
    if _log(new) - _log(base):
        yield Violation(Rule.METADATA, "would change the snapshot log")
    rest = _COMPARED_APART + _OF_THE_COMMIT
    if changed := sorted(_differing(_without(base, rest), _without(new, rest))):
        yield Violation(Rule.METADATA, f"would change {', '.join(changed)}")


def _by_id(document: Document) -> dict[int, Any]:
    return {int(s["snapshot-id"]): s for s in _rows(document, "snapshots")}


def _refs(document: Document) -> dict[str, Any]:
    return dict(document.get("refs") or {})


def _rows(document: Document, key: str) -> list[Any]:
    return list(document.get(key) or ())


def _log(document: Document) -> set[tuple[int, int]]:
    return {(int(e["timestamp-ms"]), int(e["snapshot-id"])) for e in _rows(document, "snapshot-log")}


def _without(document: Document, keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


def _differing(one: Document, other: Document) -> Iterator[str]:
    return (key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
