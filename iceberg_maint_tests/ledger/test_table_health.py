from __future__ import annotations

from dataclasses import replace

from sqlalchemy import event

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.ledger.ledger import SqlLedger
from iceberg_maint.ports.stored import KnownTable, StoredMeasurement
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.ledger.values import NAME, OTHER_UUID, TABLE, UUID, measured

RENAMED = TableId("lake", ("db",), "events_old")


def test_health_never_stored_is_none(ledger):
    assert ledger.health(TABLE) is None
    assert ledger.known_tables() == ()
    assert ledger.retired_partitions(TABLE) == ()


def test_health_round_trips(ledger):
    health = measured("day=1", "day=%2E%2E", "day", "spec=1/größe=ß", sequence_number=3)
    assert ledger.put_health(health)
    assert ledger.health(TABLE) == health


def test_health_of_an_empty_table_round_trips(ledger):
    assert ledger.put_health(measured())
    assert ledger.health(TABLE) == measured()


def test_put_health_newer_replaces_and_older_is_refused(ledger):
    newer, older = measured("day=2", sequence_number=5), measured("day=1", sequence_number=4)
    assert ledger.put_health(newer)
    assert not ledger.put_health(older)
    assert ledger.health(TABLE) == newer
    same = measured("day=2", "day=3", sequence_number=5)
    assert ledger.put_health(same)
    assert ledger.health(TABLE) == same


def test_put_health_of_a_table_created_again_replaces_the_old_ones(ledger):
    ledger.put_health(measured("day=1", sequence_number=9))
    rewritten = measured("day=2", sequence_number=1, table_uuid=OTHER_UUID)
    assert ledger.put_health(rewritten)
    assert ledger.health(TABLE) == rewritten
    assert [k.table_uuid for k in ledger.known_tables()] == [OTHER_UUID]


def test_put_health_of_a_renamed_table_forgets_the_old_name(ledger):
    ledger.put_health(measured("day=1"))
    renamed = measured("day=1", table=RENAMED)
    assert ledger.put_health(renamed)
    assert ledger.health(TABLE) is None
    assert ledger.health(RENAMED) == renamed


def test_put_health_of_two_tables_that_swapped_names(ledger):
    ledger.put_health(measured("day=1"))
    ledger.put_health(measured("day=2", table_uuid=OTHER_UUID, table=RENAMED))
    ledger.put_health(measured("day=1", sequence_number=2, table=RENAMED))
    ledger.put_health(measured("day=2", sequence_number=2, table_uuid=OTHER_UUID))
    assert (ledger.health(TABLE).table_uuid, ledger.health(RENAMED).table_uuid) == (OTHER_UUID, UUID)


def test_stored_name_with_an_empty_part_is_no_known_table(ledger, place: Place):
    ledger.put_health(measured())
    place.sql("UPDATE icm_health SET table_name = 'lake.db...'")
    assert ledger.known_tables() == ()


def test_known_tables_are_sorted_with_their_pointers(ledger):
    before = ledger.now_ms()
    ledger.put_health(measured("day=1", table_uuid=OTHER_UUID, table=RENAMED))
    ledger.put_health(measured("day=1", sequence_number=4))
    first, second = ledger.known_tables()
    assert first == KnownTable(TABLE, UUID, f"{UUID}/v4.json", first.observed_ms)
    assert (second.table, second.pointer) == (RENAMED, f"{OTHER_UUID}/v1.json")
    assert before <= second.observed_ms <= first.observed_ms <= ledger.now_ms()


def test_forget_table_drops_its_health_only(ledger):
    ledger.put_health(measured("day=1"))
    ledger.put_health(measured("day=1", table_uuid=OTHER_UUID, table=RENAMED))
    lease = ledger.acquire_lease(UUID, NAME, "run-1", 60, 0)
    ledger.forget_table(TABLE)
    ledger.forget_table(TABLE)
    assert ledger.health(TABLE) is None
    assert [k.table for k in ledger.known_tables()] == [RENAMED]
    assert ledger.holds(lease)


def test_health_of_another_form_counts_as_not_measured(ledger, place: Place):
    ledger.put_health(measured("day=1"))
    place.sql("UPDATE icm_health SET form = 'older'")
    assert ledger.health(TABLE) is None
    assert ledger.known_tables() == ()
    assert ledger.put_health(measured("day=1"))
    assert ledger.health(TABLE) == measured("day=1")


def observe(ledger: SqlLedger, *runs: tuple[str, ...]) -> None:
    """One observation per tuple of keys, each of a newer snapshot."""
    known = {k.table: k for k in ledger.known_tables()}
    start = int(known[TABLE].pointer.rsplit("/v")[1][: -len(".json")]) if TABLE in known else 0
    for sequence_number, keys in enumerate(runs, start + 1):
        assert ledger.put_health(measured(*keys, sequence_number=sequence_number))


def test_retired_a_key_missing_once_is_kept(ledger):
    observe(ledger, ("a", "b"), ("a",))
    assert ledger.retired_partitions(TABLE) == ()


def test_retired_keys_missing_twice_in_a_row(ledger):
    observe(ledger, ("a", "c", "b"), ("a",), ("a",))
    assert ledger.retired_partitions(TABLE) == ("b", "c")


def test_missing_keys_are_those_that_a_partition_had_and_no_others(ledger):
    assert ledger.missing_partitions(TABLE) == ()
    observe(ledger, ("a", "c", "b"), ("a",))
    assert ledger.missing_partitions(TABLE) == ("b", "c")
    observe(ledger, ("a", "b"))
    assert ledger.missing_partitions(TABLE) == ("c",)
    observe(ledger, ())
    assert ledger.missing_partitions(TABLE) == ("a", "b", "c")


def test_retired_a_key_that_came_back_starts_over(ledger):
    observe(ledger, ("a", "b"), ("a",), ("a", "b"), ("a",))
    assert ledger.retired_partitions(TABLE) == ()
    observe(ledger, ("a",))
    assert ledger.retired_partitions(TABLE) == ("b",)


def test_retired_key_that_comes_back_is_not_retired(ledger):
    observe(ledger, ("a", "b"), ("a",), ("a",), ("a", "b"))
    assert ledger.retired_partitions(TABLE) == ()


def test_retired_an_empty_observation_is_no_evidence(ledger):
    observe(ledger, ("a", "b"), (), (), ())
    assert ledger.retired_partitions(TABLE) == ()
    observe(ledger, ("a",))
    assert ledger.retired_partitions(TABLE) == ()
    observe(ledger, ("a",))
    assert ledger.retired_partitions(TABLE) == ("b",)


def test_retired_a_refused_observation_does_not_count(ledger):
    observe(ledger, ("a", "b"), ("a",))
    assert not ledger.put_health(measured("a", sequence_number=1))
    assert ledger.retired_partitions(TABLE) == ()


def test_retired_the_same_observation_twice_at_one_time_counts_once(ledger, place: Place):
    observe(ledger, ("a", "b"), ("a",))
    place.sql("UPDATE icm_health SET observed_ms = observed_ms + 1000000")
    ledger.put_health(measured("a", sequence_number=2))
    assert ledger.retired_partitions(TABLE) == ()


def test_retired_the_same_snapshot_seen_later_counts(ledger, place: Place):
    observe(ledger, ("a", "b"), ("a",))
    place.age("icm_health", "observed_ms", 1000)
    ledger.put_health(measured("a", sequence_number=2))
    assert ledger.retired_partitions(TABLE) == ("b",)


def test_retired_none_while_somebody_works_on_the_table(ledger):
    observe(ledger, ("a", "b"), ("a",), ("a",))
    lease = ledger.acquire_lease(UUID, NAME, "run-1", 60, 0)
    assert ledger.retired_partitions(TABLE) == ()
    ledger.release_lease(lease)
    assert ledger.retired_partitions(TABLE) == ("b",)


def test_retired_a_table_created_again_starts_over(ledger):
    observe(ledger, ("a", "b"), ("a",), ("a",))
    ledger.put_health(measured("a", table_uuid=OTHER_UUID))
    assert ledger.retired_partitions(TABLE) == ()


def statements(ledger: SqlLedger, health: Measured) -> int:
    """How many it takes to store the health of a newer snapshot and to read it."""
    ran: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        ran.append(statement)

    engine = ledger._database._engine
    event.listen(engine, "before_cursor_execute", note)
    assert ledger.put_health(health)
    assert ledger.health(TABLE) == health
    event.remove(engine, "before_cursor_execute", note)
    return len(ran)


def test_health_of_many_partitions_takes_no_more_statements(ledger: SqlLedger) -> None:
    many = [f"day={n}" for n in range(3_000)]
    ledger.put_health(measured("day=1", sequence_number=1))
    few = statements(ledger, measured("day=1", sequence_number=2))
    ledger.put_health(measured(*many, sequence_number=3))
    assert statements(ledger, measured(*many, sequence_number=4)) == few > 0


def test_healths_and_measurements_are_of_the_given_tables(ledger):
    health = replace(measured("day=1", sequence_number=3), basis="b", maintenance_properties={"k": "v"})
    ledger.put_health(health)
    ledger.put_health(measured("day=1", table_uuid=OTHER_UUID, table=RENAMED))
    unknown = TableId("lake", ("db",), "unknown")
    assert ledger.healths([TABLE, unknown]) == {TABLE: health}
    assert ledger.measurements([TABLE, unknown]) == (
        StoredMeasurement(TABLE, UUID, health.metadata_location, "b", {"k": "v"}),
    )


def test_confirm_counts_an_observation_as_storing_equal_health_does(ledger):
    observe(ledger, ("a", "b"), ("a",))
    pointer = ledger.health(TABLE).metadata_location
    ledger.confirm_health({UUID: "another.json"})
    assert ledger.retired_partitions(TABLE) == ()
    ledger.confirm_health({UUID: pointer, OTHER_UUID: "unknown.json"})
    assert ledger.retired_partitions(TABLE) == ("b",)


def test_confirm_of_health_without_partitions_is_no_evidence(ledger):
    observe(ledger, ("a", "b"), ())
    for _ in range(3):
        ledger.confirm_health({UUID: ledger.health(TABLE).metadata_location})
    assert ledger.retired_partitions(TABLE) == ()
    observe(ledger, ("a",))
    assert ledger.retired_partitions(TABLE) == ()
    ledger.confirm_health({UUID: ledger.health(TABLE).metadata_location})
    assert ledger.retired_partitions(TABLE) == ("b",)


def changes(ledger: SqlLedger, health: Measured) -> list[str]:
    """The statements that change a row when this health is stored."""
    ran: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        ran.append(statement.split(maxsplit=1)[0])

    engine = ledger._database._engine
    event.listen(engine, "before_cursor_execute", note)
    assert ledger.put_health(health)
    event.remove(engine, "before_cursor_execute", note)
    return [word for word in ran if word in ("INSERT", "UPDATE", "DELETE")]


def test_equal_health_a_moment_later_changes_no_row(ledger: SqlLedger) -> None:
    ledger.put_health(measured("a"))
    assert changes(ledger, measured("a")) == []


def test_equal_health_ten_seconds_later_is_stored(ledger: SqlLedger, place: Place) -> None:
    ledger.put_health(measured("a"))
    place.age("icm_health", "observed_ms", 10_000)
    assert changes(ledger, measured("a"))
    [known] = ledger.known_tables()
    assert ledger.now_ms() - known.observed_ms < 10_000


def test_health_of_the_same_pointer_by_another_policy_is_stored(ledger: SqlLedger) -> None:
    ledger.put_health(measured("a"))
    other = replace(measured("a"), basis="another policy")
    assert changes(ledger, other)
    assert ledger.health(TABLE) == other


def test_health_that_another_process_replaced_is_stored(ledger: SqlLedger, place: Place) -> None:
    ledger.put_health(measured("a", sequence_number=2))
    place.sql("UPDATE icm_health SET pointer = 'older.json', sequence_number = 1")
    assert changes(ledger, measured("a", sequence_number=2))
    assert ledger.health(TABLE) == measured("a", sequence_number=2)
