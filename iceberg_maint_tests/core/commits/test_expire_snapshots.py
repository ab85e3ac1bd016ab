"""The gate of an expiry: every way in which its commit could do more or other than was planned."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from iceberg_maint.core.commits.change import STALE_RULES, Rule, is_stale
from iceberg_maint.core.commits.expiry_rules import (
    applied_to,
    check_expiry,
    has_expired,
    lost_with,
    read_removed_refs,
)
from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.planning.work import ExpireSnapshots

Document = dict[str, Any]

WORK = ExpireSnapshots((1, 2), ("old",))
ALLOWED = Retention((1, 2), ("old",), (), ())
MAIN, OLD = {"snapshot-id": 4, "type": "branch"}, {"snapshot-id": 2, "type": "tag"}


def base() -> Document:
    return {
        "table-uuid": "u",
        "location": "file:///t",
        "last-updated-ms": 40,
        "properties": {},
        "schemas": [{"schema-id": 0}, {"schema-id": 1}],
        "current-snapshot-id": 4,
        "refs": {"main": dict(MAIN), "old": dict(OLD), "other": {"snapshot-id": 3, "type": "tag"}},
        "snapshots": [{"snapshot-id": n, "timestamp-ms": n} for n in range(1, 5)],
        "snapshot-log": [{"timestamp-ms": n, "snapshot-id": n} for n in range(1, 5)],
        "statistics": [{"snapshot-id": n, "statistics-path": f"s{n}"} for n in (2, 3)],
        "metadata-log": [],
    }


def planned() -> Document:
    """What the commit should make of it."""
    new = base()
    new["refs"].pop("old")
    new["snapshots"] = new["snapshots"][2:]
    new["snapshot-log"] = new["snapshot-log"][2:]
    new["statistics"] = new["statistics"][1:]
    new["last-updated-ms"] = 50
    new["metadata-log"] = [{"timestamp-ms": 40, "metadata-file": "v1"}]
    return new


def broken(change: Callable[[Document], object], *, of_base: bool = False) -> set[Rule]:
    """The rules broken when one thing is other than planned."""
    before, after = base(), planned()
    change(before if of_base else after)
    return {v.rule for v in check_expiry("u", WORK, before, after, ALLOWED)}


def test_expiry_as_planned_passes() -> None:
    assert check_expiry("u", WORK, base(), planned(), ALLOWED) == ()


@pytest.mark.timeout(60)  # looked at once per snapshot, it would take twice that
def test_expiry_of_a_long_history_is_looked_at_once() -> None:
    """The gate stands between reading the table and the swap: what takes minutes there loses every race."""
    old, young = range(1, 50_001), range(50_001, 100_001)
    before, after = base(), planned()
    for document, ids in ((before, (*old, *young)), (after, young)):
        document["snapshots"] = [{"snapshot-id": n, "timestamp-ms": n} for n in ids]
        document["snapshot-log"] = [{"snapshot-id": n, "timestamp-ms": n} for n in ids]
        document["refs"] = {"main": {"snapshot-id": 100_000, "type": "branch"}}
        document["statistics"] = []
    work = ExpireSnapshots(tuple(old))
    assert check_expiry("u", work, before, after, Retention(tuple(old), (), (), ())) == ()


def test_snapshot_that_appeared_since_the_plan_stays() -> None:
    before, after = base(), planned()
    for document in (before, after):
        document["snapshots"].append({"snapshot-id": 5, "timestamp-ms": 5})
        document["refs"]["main"]["snapshot-id"] = document["current-snapshot-id"] = 5
    assert check_expiry("u", WORK, before, after, ALLOWED) == ()


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (lambda d: d["snapshots"].pop(0), {Rule.SNAPSHOTS}),
        (lambda d: d["snapshots"].append({"snapshot-id": 2, "timestamp-ms": 2}), {Rule.SNAPSHOTS}),
        (lambda d: d["snapshots"].append({"snapshot-id": 9}), {Rule.SNAPSHOTS}),
        (lambda d: d["snapshots"][0].update({"timestamp-ms": 9}), {Rule.SNAPSHOTS}),
        (lambda d: d["refs"].pop("other"), {Rule.REFS}),
        (lambda d: d["refs"].update(old=OLD), {Rule.REFS}),
        (lambda d: d["refs"]["main"].update({"snapshot-id": 3}), {Rule.REFS}),
        (lambda d: d["statistics"].clear(), {Rule.METADATA}),
        (lambda d: d["snapshot-log"].append({"timestamp-ms": 9, "snapshot-id": 3}), {Rule.METADATA}),
        (lambda d: d["schemas"].pop(0), {Rule.METADATA}),
        (lambda d: d["properties"].update(owner="x"), {Rule.METADATA}),
        (lambda d: d.update({"current-snapshot-id": 3}), {Rule.METADATA}),
        (lambda d: d.pop("location"), {Rule.METADATA}),
    ],
    ids=range(13),
)
def test_change_beside_the_plan_is_refused(change: Callable[[Document], object], rules: set[Rule]) -> None:
    assert broken(change) == rules
    assert rules.isdisjoint(STALE_RULES)


def test_ref_on_an_expiring_snapshot_is_refused() -> None:
    """Iceberg's own removal of a snapshot takes the refs on it along without a word."""
    before, after = base(), planned()
    before["refs"]["new"] = after["refs"]["new"] = {"snapshot-id": 1, "type": "tag"}
    assert {v.rule for v in check_expiry("u", WORK, before, after, ALLOWED)} == {Rule.REFS}
    del after["refs"]["new"]
    assert {v.rule for v in check_expiry("u", WORK, before, after, ALLOWED)} == {Rule.REFS}


def test_ref_set_after_the_plan_is_stale_unless_another_ref_is_removed_too() -> None:
    retention = Retention((2,), ("old",), (), ())
    before, after = base(), planned()
    before["refs"]["new"] = {"snapshot-id": 1, "type": "tag"}
    violations = check_expiry("u", WORK, before, after, retention)
    assert ({v.rule for v in violations}, is_stale(violations)) == ({Rule.RETENTION, Rule.REFS}, True)

    del after["refs"]["other"]
    assert not is_stale(check_expiry("u", WORK, before, after, retention))


@pytest.mark.parametrize(
    ("allowed", "facts"),
    [
        (Retention((2,), ("old",), (), ()), ["snapshot 1 may no longer expire (1 in all)"]),
        (Retention((), ("old",), (), ()), ["snapshot 1 may no longer expire (2 in all)"]),
        (Retention((1, 2), (), (), ()), ["ref old may no longer expire"]),
    ],
)
def test_what_came_to_be_held_since_the_plan_is_stale(allowed: Retention, facts: list[str]) -> None:
    found = check_expiry("u", WORK, base(), planned(), allowed)
    assert [v.fact for v in found] == facts
    assert {v.rule for v in found} == {Rule.RETENTION} <= STALE_RULES


@pytest.mark.parametrize(
    ("changed", "rule"),
    [({"table-uuid": "other"}, Rule.TABLE_UUID), ({"properties": {"gc.enabled": "FALSE"}}, Rule.RETENTION)],
)
def test_table_that_is_no_longer_the_planned_one_is_stale(changed: Document, rule: Rule) -> None:
    before, after = base() | changed, planned() | copy.deepcopy(changed)
    assert {v.rule for v in check_expiry("u", WORK, before, after, ALLOWED)} == {rule} <= STALE_RULES


def test_commit_applied_to_what_it_was_checked_against_loses_nothing() -> None:
    assert lost_with(WORK, base(), base()) == ()


@pytest.mark.parametrize(
    ("meanwhile", "told"),
    [
        (lambda d: d["refs"].update(v={"snapshot-id": 1, "type": "tag"}), "tag v on snapshot 1"),
        (lambda d: d["refs"]["main"].update({"snapshot-id": 2}), "branch main on snapshot 2"),
        (lambda d: d["refs"]["other"].update({"snapshot-id": 1}), "tag other on snapshot 1"),
        (lambda d: d["refs"]["old"].update({"snapshot-id": 3}), "tag old, moved to snapshot 3"),
        (lambda d: d["refs"]["old"].update({"max-ref-age-ms": 9}), "tag old, moved to snapshot 2"),
        (
            lambda d: d["snapshots"].append({"snapshot-id": 9, "parent-snapshot-id": 2}),
            "snapshot 2, the parent of the new snapshot 9",
        ),
    ],
)
def test_what_others_set_and_the_commit_removed_is_reported(
    meanwhile: Callable[[Document], object], told: str
) -> None:
    swapped = base()
    meanwhile(swapped)
    assert lost_with(WORK, base(), swapped) == (told,)


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda d: d["refs"].update(v={"snapshot-id": 3, "type": "tag"}),
        lambda d: d["refs"].pop("old"),
        lambda d: d["snapshots"].append({"snapshot-id": 9, "parent-snapshot-id": 4}),
        lambda d: d["properties"].update(owner="x"),
    ],
)
def test_what_others_do_elsewhere_is_no_loss(meanwhile: Callable[[Document], object]) -> None:
    swapped = base()
    meanwhile(swapped)
    assert lost_with(WORK, base(), swapped) == ()


def test_metadata_without_its_snapshots_and_refs_has_expired_them() -> None:
    assert has_expired(WORK, planned())
    assert not has_expired(WORK, base())
    assert not has_expired(WORK, planned() | {"refs": {"old": OLD}})
    assert not has_expired(ExpireSnapshots((3,), ("old",)), planned())


@pytest.mark.parametrize(
    ("log", "found", "reads"),
    [
        ((), None, []),
        (("before", "base"), None, []),
        (("base", "expired", "later"), None, ["expired"]),
        (("base", "raced", "expired", "later"), "raced", ["raced", "expired"]),
        (("base", "other", "raced"), "raced", ["other", "raced"]),
        (("raced", "expired", "later"), "raced", ["raced", "expired"]),
    ],
    ids=["no log", "at the base", "at the base, of old", "raced", "raced twice", "reaches back just so far"],
)
def test_log_reports_which_metadata_the_commit_was_applied_to(
    log: tuple[str, ...], found: str | None, reads: list[str]
) -> None:
    """`log` is what was before the table's current metadata, which has expired them."""
    asked: list[str] = []

    def read(location: str) -> Document:
        asked.append(location)
        document = planned() if location in ("expired", "later") else base()
        return document | {"properties": {"at": location}}

    document = applied_to(WORK, "base", log, read)
    assert (document and document["properties"]["at"], asked) == (found, reads)


def test_log_that_does_not_reach_back_to_the_commit_reports_nothing() -> None:
    with pytest.raises(LookupError, match="the metadata log does not reach back to base"):
        applied_to(WORK, "base", ("expired", "later"), lambda _: planned())


@pytest.mark.parametrize(
    ("failures", "told", "pauses"),
    [
        (0, ("tag v",), []),
        (2, ("tag v",), [1, 2]),
        (3, ("the check for lost snapshots and refs failed: ConnectionError: 3",), [1, 2]),
    ],
)
def test_what_was_lost_is_looked_for_a_few_times(
    failures: int, told: tuple[str, ...], pauses: list[int]
) -> None:
    looks: list[int] = []
    waited: list[int] = []

    def look() -> tuple[str, ...]:
        looks.append(1)
        if len(looks) <= failures:
            raise ConnectionError(len(looks))
        return ("tag v",)

    found = read_removed_refs(look, waited.append, lambda why: f"{type(why).__name__}: {why}")
    assert (found, waited) == (told, pauses)


def test_interrupt_of_the_look_is_no_failure_of_it() -> None:
    def look() -> tuple[str, ...]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_removed_refs(look, lambda _: None, str)
