from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.alerts import (
    ACTIONS,
    AlertKind,
    Condition,
    Incident,
    TableConditions,
    follow,
    messages_for,
    taken,
    unfinished,
)
from iceberg_maint.core.model.codec import dumps, loads

QUARANTINE = Condition(AlertKind.QUARANTINE, "1 partition in quarantine.")
DUE = Condition(AlertKind.DUE_TOO_LONG, "1 partition due.", after_seconds=60)
ALL: frozenset[str] = frozenset()


def table(*conditions: Condition, muted: bool = False, owners: tuple[str, ...] = ()) -> TableConditions:
    return TableConditions("lake.db.t", "uuid", owners, conditions, is_muted=muted)


def look(incidents, *tables: TableConditions, now_ms: int, known=("uuid",)) -> tuple[Incident, ...]:
    return follow(incidents, tables, known, now_ms)


def sent(incidents, receiver: str = "ops"):
    """The ids of what the receiver gets, and the incidents after it took them."""
    messages = messages_for(receiver, ALL, incidents)
    ids = ([i.kind.value for i in messages.fired], [i.kind.value for i in messages.cleared])
    return ids, taken(receiver, messages, incidents)


def test_condition_that_lasts_is_sent_once_and_its_end_once():
    incidents = look((), table(QUARANTINE), now_ms=1000)
    first, incidents = sent(incidents)
    incidents = look(incidents, table(QUARANTINE), now_ms=2000)
    again, incidents = sent(incidents)
    incidents = look(incidents, table(), now_ms=3000)
    end, incidents = sent(incidents)
    assert (first, again, end) == ((["quarantine"], []), ([], []), ([], ["quarantine"]))
    assert unfinished(incidents, {"ops"}) == ()


def test_condition_that_ends_before_its_time_leaves_nothing():
    incidents = look((), table(DUE), now_ms=0)
    assert [i.fired_ms for i in incidents] == [None]
    assert sent(incidents)[0] == ([], [])
    assert look(incidents, table(), now_ms=59_000) == ()


def test_condition_that_must_last_fires_at_its_time_counted_from_its_first_look():
    incidents = look((), table(DUE), now_ms=0)
    incidents = look(incidents, table(DUE), now_ms=59_999)
    assert [i.fired_ms for i in incidents] == [None]
    incidents = look(incidents, table(DUE), now_ms=60_000)
    assert [(i.since_ms, i.fired_ms) for i in incidents] == [(0, 60_000)]


def test_condition_that_comes_back_is_a_new_incident_with_another_id():
    fired = look((), table(QUARANTINE), now_ms=1000)
    ended = look(sent(fired)[1], table(), now_ms=2000)
    back = look(ended, table(QUARANTINE), now_ms=3000)
    assert [(i.since_ms, i.cleared_ms) for i in back] == [(1000, 2000), (3000, None)]
    assert len({i.incident_id for i in back}) == 2


def test_muted_table_starts_and_ends_no_incident():
    assert look((), table(QUARANTINE, muted=True), now_ms=1000) == ()
    fired = look((), table(QUARANTINE), now_ms=1000)
    assert look(fired, table(muted=True), now_ms=2000) == fired


def test_table_that_could_not_be_judged_keeps_its_incidents_and_an_unknown_one_ends_them():
    fired = look((), table(QUARANTINE), now_ms=1000)
    assert look(fired, now_ms=2000) == fired
    (gone,) = look(fired, now_ms=2000, known=())
    assert gone.cleared_ms == 2000


def test_summary_follows_the_condition_and_is_not_sent_again():
    _, fired = sent(look((), table(QUARANTINE), now_ms=1000))
    worse = replace(QUARANTINE, summary="2 partitions in quarantine.")
    incidents = look(fired, table(worse), now_ms=2000)
    assert [i.summary for i in incidents] == ["2 partitions in quarantine."]
    assert sent(incidents)[0] == ([], [])


def test_receiver_with_owners_gets_their_incidents_and_the_ends_of_what_it_took():
    fired = look((), table(QUARANTINE, owners=("team-a",)), now_ms=1000)
    assert messages_for("b", frozenset({"team-b"}), fired).fired == ()
    messages = messages_for("a", frozenset({"team-a"}), fired)
    assert messages.fired == fired
    moved = look(taken("a", messages, fired), table(owners=("team-b",)), now_ms=2000)
    assert [i.cleared_ms for i in messages_for("a", frozenset({"team-a"}), moved).cleared] == [2000]
    assert messages_for("b", frozenset({"team-b"}), moved).cleared == ()


def test_end_waits_for_every_configured_receiver_of_the_beginning():
    fired = look((), table(QUARANTINE), now_ms=1000)
    for name in ("ops", "mail"):
        fired = sent(fired, name)[1]
    ended = sent(look(fired, table(), now_ms=2000), "ops")[1]
    assert [i.cleared_to for i in unfinished(ended, {"ops", "mail"})] == [("ops",)]
    assert unfinished(ended, {"ops"}) == ()


def test_incident_survives_its_storage_and_names_action_and_runbook():
    (incident,) = look((), table(QUARANTINE), now_ms=1000)
    assert loads(Incident, dumps(incident)) == incident
    assert incident.incident_id == "quarantine/uuid/1000"
    assert "iceberg-maint release lake.db.t" in incident.action
    assert incident.runbook == "docs/how-to/alerts.md#quarantine"
    assert set(ACTIONS) == set(AlertKind)
