"""Expiry: the rules of a commit that removes snapshots and refs, and the settlement of one without a
report.

Both table metadata documents are Iceberg's own JSON (spec: "Table Metadata"). They are compared
completely, except for the time of the change, so that nothing outside the plan can change with the
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from iceberg_maint.core.commits.change import Rule, Violation
from iceberg_maint.core.decisions.snapshot_retention import Retention, gc_enabled
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.record import Settlement
from iceberg_maint.core.planning.work import ExpireSnapshots

Document = Mapping[str, Any]

_COMPARED_APART = ("snapshots", "refs", "snapshot-log", "statistics", "partition-statistics")
_OF_THE_COMMIT = ("last-updated-ms", "metadata-log")
"""The keys for the time of the metadata and its previous versions: every commit changes these."""
_READINGS = 3
LATE_SECONDS = 3600
"""An unanswered request counts as applied within this time or not at all. It is far longer than clients,
proxies and servers usually wait."""


def check_expiry(
    table_uuid: str, work: ExpireSnapshots, base: Document, new: Document, retention: Retention
) -> tuple[Violation, ...]:
    """Returns every rule that the change from `base` to `new` would break; () if it may be committed.
    `retention` is what may expire of `base` now. The plan must not remove more, although a new reader or ref may
    have appeared since the plan."""
    return (*_allowed(table_uuid, work, base, retention), *_as_planned(work, base, new))


def expired(work: ExpireSnapshots, state: TableState) -> bool:
    """Returns whether everything that the work should expire is gone from the table."""
    snapshots_gone = {s.snapshot_id for s in state.snapshots}.isdisjoint(work.snapshots)
    return snapshots_gone and {r.name for r in state.refs}.isdisjoint(work.refs)


def lost_with(work: ExpireSnapshots, base: Document, swapped: Document) -> tuple[str, ...]:
    """Returns what others depend on and what was removed with the work's snapshots, as sentences. `base`
    is the metadata that the commit was checked against. `swapped` is the metadata that the catalog
    applied the commit to.

    A REST catalog does not compare the two. For the removal of snapshots, and of the refs that point at
    them, the request requires only the table's identity (`UpdateRequirements.forUpdateTable`).
    """
    planned, before = frozenset(work.snapshots), _refs(base)
    sentences = []
    for name, ref in sorted(_refs(swapped).items()):
        if int(ref["snapshot-id"]) in planned and name not in work.refs:
            sentences.append(f"{ref['type']} {name} on snapshot {ref['snapshot-id']}")
        elif name in work.refs and ref != before.get(name):
            sentences.append(f"{ref['type']} {name}, moved to snapshot {ref['snapshot-id']}")
    base_snapshots = _by_id(base)
    for number, snapshot in _by_id(swapped).items():
        if number not in base_snapshots and snapshot.get("parent-snapshot-id") in planned:
            sentences.append(
                f"snapshot {snapshot['parent-snapshot-id']}, the parent of the new snapshot {number}"
            )
    return tuple(sentences)


def applied_to(
    work: ExpireSnapshots, base_location: str, log: Sequence[str], read: Callable[[str], Document]
) -> Document | None:
    """Returns the metadata that the catalog applied the work's commit to, if that is not the metadata at
    `base_location`, which the commit was checked against. `log` is the metadata log of the table that
    shows the commit, oldest first (spec: "Table Metadata", metadata-log). Returns None as well if the
    catalog keeps no log.

    Raises LookupError if the log does not reach back to the commit, and any error of `read`.
    """
    is_logged = base_location in log
    latest = None
    for location in log[log.index(base_location) + 1 :] if is_logged else log:
        document = read(location)
        if has_expired(work, document):
            break
        latest = document
    if latest is None and log and not is_logged:
        raise LookupError(f"the metadata log does not reach back to {base_location}")
    return latest


def read_removed_refs(
    read_removed: Callable[[], tuple[str, ...]],
    pause: Callable[[int], None],
    one_line: Callable[[BaseException], str],
) -> tuple[str, ...]:
    """Returns what `read_removed` reports as removed with a commit. It is called a few times, because an expiry
    with an unknown result waits for a person. `pause(n)` waits after the nth call."""
    error_line = ""
    for n in range(1, _READINGS + 1):
        try:
            return read_removed()
        except Exception as why:  # noqa: BLE001 - the commit is applied, whether or not this check works
            error_line = one_line(why)
        if n < _READINGS:
            pause(n)
    return (f"the check for lost snapshots and refs failed: {error_line}",)


def has_expired(work: ExpireSnapshots, document: Document) -> bool:
    """Returns whether the metadata contain nothing of what the work removes."""
    return _by_id(document).keys().isdisjoint(work.snapshots) and _refs(document).keys().isdisjoint(work.refs)


def settle_expiry(
    work: ExpireSnapshots | None, base_location: str | None, state: TableState, *, may_come: bool
) -> Settlement:
    """Settles an attempt that never reported back. Its commit is based on the metadata at `base_location`
    (None: no commit was attempted). `work` is None if another attempt has completed it.

    No snapshot carries the attempt's token, so the settlement checks what the work should remove. If the
    catalog compares the base, a table that has moved past it can no longer accept the swap. If the
    catalog does not compare it, a late swap removes the work's snapshots and everything that points at
    them at that time. While it `may_come`, the result is UNKNOWN.
    """
    if base_location is None:
        return Settlement(CommitStatus.REJECTED, None, "no commit was attempted")
    if work is not None and expired(work, state):
        return Settlement(CommitStatus.COMMITTED, None, "everything that the batch should expire is gone")
    if state.metadata_location == base_location:
        return Settlement(CommitStatus.UNKNOWN, None, "the table is still at its base")
    if may_come:
        return Settlement(CommitStatus.UNKNOWN, None, "a late request may still reach the catalog")
    return Settlement(CommitStatus.REJECTED, None, "the table moved past its base without it")


_MOVED_ON = frozenset({Rule.RETENTION, Rule.TABLE_UUID})
"""What explains a ref on a snapshot that is to expire: it was set after the plan."""


def _allowed(
    table_uuid: str, work: ExpireSnapshots, base: Document, retention: Retention
) -> Iterator[Violation]:
    if base["table-uuid"] != table_uuid:
        yield Violation(Rule.TABLE_UUID, f"the table is {base['table-uuid']}, the plan was for {table_uuid}")
    if not gc_enabled(base.get("properties") or {}):
        yield Violation(Rule.RETENTION, "gc.enabled is false now")
    may_go = frozenset(retention.expire)
    held = [s for s in work.snapshots if s not in may_go]
    if held:
        yield Violation(Rule.RETENTION, f"snapshot {held[0]} may no longer expire ({len(held)} in all)")
    for name in work.refs:
        if name not in retention.expire_refs:
            yield Violation(Rule.RETENTION, f"ref {name} may no longer expire")


def _as_planned(work: ExpireSnapshots, base: Document, new: Document) -> Iterator[Violation]:
    planned = frozenset(work.snapshots)
    before, after = _by_id(base), _by_id(new)
    if removed := before.keys() - after.keys() - planned:
        yield Violation(Rule.SNAPSHOTS, f"would remove snapshot {min(removed)}, which was not planned")
    if unremoved := planned & after.keys():
        yield Violation(Rule.SNAPSHOTS, f"would not remove snapshot {min(unremoved)}")
    if any(after[s] != before.get(s) for s in after):
        yield Violation(Rule.SNAPSHOTS, "would add or change a snapshot")
    refs = _refs(base)
    expected = {name: ref for name, ref in refs.items() if name not in work.refs}
    if (after_refs := _refs(new)) != expected:
        # Iceberg removes refs with their snapshots, so a ref set since the plan is removed too.
        without_dangling = {
            name: ref for name, ref in expected.items() if int(ref["snapshot-id"]) not in planned
        }
        yield Violation(
            Rule.REFS,
            f"would not leave exactly the refs {sorted(expected)}",
            explained_by=_MOVED_ON if after_refs == without_dangling else frozenset(),
        )
    if dangling := {int(ref["snapshot-id"]) for ref in expected.values()} & planned:
        yield Violation(
            Rule.REFS,
            f"a ref points at snapshot {min(dangling)}",
            explained_by=_MOVED_ON,
        )
    for key in ("statistics", "partition-statistics"):
        if _rows(new, key) != [f for f in _rows(base, key) if int(f["snapshot-id"]) not in planned]:
            yield Violation(Rule.METADATA, f"would change {key} of snapshots that stay")
    if _log(new) - _log(base):
        yield Violation(Rule.METADATA, "would change the snapshot log")
    compared_elsewhere = _COMPARED_APART + _OF_THE_COMMIT
    if changed := sorted(_differing(_without(base, compared_elsewhere), _without(new, compared_elsewhere))):
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


def _differing(first: Document, second: Document) -> Iterator[str]:
    return (key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
