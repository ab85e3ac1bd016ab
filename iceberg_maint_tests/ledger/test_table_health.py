from __future__ import annotations

from dataclasses import replace

from sqlalchemy import event

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import KnownTable, StoredMeasurement
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.ledger.values import NAME, OTHER_UUID, TABLE, UUID, measured

RENAMED = TableId("lake", ("db",), "events_old")


def test_health_never_stored_is_none(ledger):
    assert ledger.health.get(TABLE) is None
    assert ledger.health.known_tables() == ()
    assert ledger.health.retired_partitions(TABLE) == ()


def test_health_round_trips(ledger):
    health = measured("day=1", "day=%2E%2E", "day", "spec=1/größe=ß", sequence_number=3)
    assert ledger.health.put(health)
    assert ledger.health.get(TABLE) == health


def test_health_of_an_empty_table_round_trips(ledger):
    assert ledger.health.put(measured())
    assert ledger.health.get(TABLE) == measured()


def test_put_health_newer_replaces_and_older_is_refused(ledger):
    newer, older = measured("day=2", sequence_number=5), measured("day=1", sequence_number=4)
    assert ledger.health.put(newer)
    assert not ledger.health.put(older)
    assert ledger.health.get(TABLE) == newer
    same = measured("day=2", "day=3", sequence_number=5)
    assert ledger.health.put(same)
    assert ledger.health.get(TABLE) == same


def test_put_health_of_a_table_created_again_replaces_the_old_ones(ledger):
    ledger.health.put(measured("day=1", sequence_number=9))
    rewritten = measured("day=2", sequence_number=1, table_uuid=OTHER_UUID)
    assert ledger.health.put(rewritten)
    assert ledger.health.get(TABLE) == rewritten
    assert [k.table_uuid for k in ledger.health.known_tables()] == [OTHER_UUID]


def test_put_health_of_a_renamed_table_forgets_the_old_name(ledger):
    ledger.health.put(measured("day=1"))
    renamed = measured("day=1", table=RENAMED)
    assert ledger.health.put(renamed)
    assert ledger.health.get(TABLE) is None
    assert ledger.health.get(RENAMED) == renamed


def test_put_health_of_two_tables_that_swapped_names(ledger):
    ledger.health.put(measured("day=1"))
    ledger.health.put(measured("day=2", table_uuid=OTHER_UUID, table=RENAMED))
    ledger.health.put(measured("day=1", sequence_number=2, table=RENAMED))
    ledger.health.put(measured("day=2", sequence_number=2, table_uuid=OTHER_UUID))
    assert (ledger.health.get(TABLE).table_uuid, ledger.health.get(RENAMED).table_uuid) == (OTHER_UUID, UUID)


def test_known_tables_are_sorted_with_their_pointers(ledger):
    before = ledger.registry.now_ms()
    ledger.health.put(measured("day=1", table_uuid=OTHER_UUID, table=RENAMED))
    ledger.health.put(measured("day=1", sequence_number=4))
    first, second = ledger.health.known_tables()
    assert first == KnownTable(TABLE, UUID, f"{UUID}/v4.json", first.observed_ms)
    assert (second.table, second.pointer) == (RENAMED, f"{OTHER_UUID}/v1.json")
    assert before <= second.observed_ms <= first.observed_ms <= ledger.registry.now_ms()


def test_forget_table_drops_its_health_only(ledger):
    ledger.health.put(measured("day=1"))
    ledger.health.put(measured("day=1", table_uuid=OTHER_UUID, table=RENAMED))
    lease = ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    ledger.health.forget_table(TABLE)
    ledger.health.forget_table(TABLE)
    assert ledger.health.get(TABLE) is None
    assert [k.table for k in ledger.health.known_tables()] == [RENAMED]
    assert ledger.leases.holds(lease)


def test_forget_table_drops_its_missing_partitions_only(ledger: Ledger) -> None:
    observe(ledger, ("a", "b"), ("a",))
    ledger.health.put(measured("a", "c", table_uuid=OTHER_UUID, table=RENAMED))
    ledger.health.put(measured("a", table_uuid=OTHER_UUID, table=RENAMED, sequence_number=2))
    ledger.health.forget_table(RENAMED)
    ledger.health.put(measured("a", table_uuid=OTHER_UUID, table=RENAMED))
    assert ledger.health.missing_partitions(TABLE) == ("b",)
    assert ledger.health.missing_partitions(RENAMED) == ()


def test_health_of_another_form_counts_as_not_measured(ledger, place: Place):
    ledger.health.put(measured("day=1"))
    place.sql("UPDATE icm_health SET form = 'older'")
    assert ledger.health.get(TABLE) is None
    assert ledger.health.known_tables() == ()
    assert ledger.health.put(measured("day=1"))
    assert ledger.health.get(TABLE) == measured("day=1")


def observe(ledger: Ledger, *runs: tuple[str, ...]) -> None:
    """One observation per tuple of keys, each of a newer snapshot."""
    known = {k.table: k for k in ledger.health.known_tables()}
    start = int(known[TABLE].pointer.rsplit("/v")[1][: -len(".json")]) if TABLE in known else 0
    for sequence_number, keys in enumerate(runs, start + 1):
        assert ledger.health.put(measured(*keys, sequence_number=sequence_number))


def test_retired_a_key_missing_once_is_kept(ledger):
    observe(ledger, ("a", "b"), ("a",))
    assert ledger.health.retired_partitions(TABLE) == ()


def test_retired_keys_missing_twice_in_a_row(ledger):
    observe(ledger, ("a", "c", "b"), ("a",), ("a",))
    assert ledger.health.retired_partitions(TABLE) == ("b", "c")


def test_missing_keys_are_those_that_a_partition_had_and_no_others(ledger):
    assert ledger.health.missing_partitions(TABLE) == ()
    observe(ledger, ("a", "c", "b"), ("a",))
    assert ledger.health.missing_partitions(TABLE) == ("b", "c")
    observe(ledger, ("a", "b"))
    assert ledger.health.missing_partitions(TABLE) == ("c",)
    observe(ledger, ())
    assert ledger.health.missing_partitions(TABLE) == ("a", "b", "c")


def test_retired_a_key_that_came_back_starts_over(ledger):
    observe(ledger, ("a", "b"), ("a",), ("a", "b"), ("a",))
    assert ledger.health.retired_partitions(TABLE) == ()
    observe(ledger, ("a",))
    assert ledger.health.retired_partitions(TABLE) == ("b",)


def test_retired_key_that_comes_back_is_not_retired(ledger):
    observe(ledger, ("a", "b"), ("a",), ("a",), ("a", "b"))
    assert ledger.health.retired_partitions(TABLE) == ()


def test_retired_an_empty_observation_is_no_evidence(ledger):
    observe(ledger, ("a", "b"), (), (), ())
    assert ledger.health.retired_partitions(TABLE) == ()
    observe(ledger, ("a",))
    assert ledger.health.retired_partitions(TABLE) == ()
    observe(ledger, ("a",))
    assert ledger.health.retired_partitions(TABLE) == ("b",)


def test_retired_a_refused_observation_does_not_count(ledger):
    observe(ledger, ("a", "b"), ("a",))
    assert not ledger.health.put(measured("a", sequence_number=1))
    assert ledger.health.retired_partitions(TABLE) == ()


def test_retired_the_same_observation_twice_at_one_time_counts_once(ledger, place: Place):
    observe(ledger, ("a", "b"), ("a",))
    place.sql("UPDATE icm_health SET observed_ms = observed_ms + 1000000")
    ledger.health.put(measured("a", sequence_number=2))
    assert ledger.health.retired_partitions(TABLE) == ()


def test_retired_the_same_snapshot_seen_later_counts(ledger, place: Place):
    observe(ledger, ("a", "b"), ("a",))
    place.age("icm_health", "observed_ms", 1000)
    ledger.health.put(measured("a", sequence_number=2))
    assert ledger.health.retired_partitions(TABLE) == ("b",)


def test_retired_none_while_somebody_works_on_the_table(ledger):
    observe(ledger, ("a", "b"), ("a",), ("a",))
    lease = ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    assert ledger.health.retired_partitions(TABLE) == ()
    ledger.leases.release(lease)
    assert ledger.health.retired_partitions(TABLE) == ("b",)


def test_retired_a_table_created_again_starts_over(ledger):
    observe(ledger, ("a", "b"), ("a",), ("a",))
    ledger.health.put(measured("a", table_uuid=OTHER_UUID))
    assert ledger.health.retired_partitions(TABLE) == ()


def statements(ledger: Ledger, health: Measured) -> int:
    """How many it takes to store the health of a newer snapshot and to read it."""
    ran: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        ran.append(statement)

    engine = ledger.work._database._engine
    event.listen(engine, "before_cursor_execute", note)
    assert ledger.health.put(health)
    assert ledger.health.get(TABLE) == health
    event.remove(engine, "before_cursor_execute", note)
    return len(ran)


def test_health_of_many_partitions_takes_no_more_statements(ledger: Ledger) -> None:
    many = [f"day={n}" for n in range(3_000)]
    ledger.health.put(measured("day=1", sequence_number=1))
    few = statements(ledger, measured("day=1", sequence_number=2))
    ledger.health.put(measured(*many, sequence_number=3))
    assert statements(ledger, measured(*many, sequence_number=4)) == few > 0


def test_healths_and_measurements_are_of_the_given_tables(ledger):
    health = replace(measured("day=1", sequence_number=3), basis="b", maintenance_properties={"k": "v"})
    ledger.health.put(health)
    ledger.health.put(measured("day=1", table_uuid=OTHER_UUID, table=RENAMED))
    unknown = TableId("lake", ("db",), "unknown")
    assert ledger.health.get_all([TABLE, unknown]) == {TABLE: health}
    assert ledger.health.measurements([TABLE, unknown]) == (
        StoredMeasurement(TABLE, UUID, health.metadata_location, "b", {"k": "v"}),
    )


def test_confirm_counts_an_observation_as_storing_equal_health_does(ledger):
    observe(ledger, ("a", "b"), ("a",))
    pointer = ledger.health.get(TABLE).metadata_location
    ledger.health.confirm({UUID: "another.json"})
    assert ledger.health.retired_partitions(TABLE) == ()
    ledger.health.confirm({UUID: pointer, OTHER_UUID: "unknown.json"})
    assert ledger.health.retired_partitions(TABLE) == ("b",)


def test_confirm_of_health_without_partitions_is_no_evidence(ledger):
    observe(ledger, ("a", "b"), ())
    for _ in range(3):
        ledger.health.confirm({UUID: ledger.health.get(TABLE).metadata_location})
    assert ledger.health.retired_partitions(TABLE) == ()
    observe(ledger, ("a",))
    assert ledger.health.retired_partitions(TABLE) == ()
    ledger.health.confirm({UUID: ledger.health.get(TABLE).metadata_location})
    assert ledger.health.retired_partitions(TABLE) == ("b",)


def changes(ledger: Ledger, health: Measured) -> list[str]:
    """The statements that change a row when this health is stored."""
    ran: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        ran.append(statement.split(maxsplit=1)[0])

    engine = ledger.work._database._engine
    event.listen(engine, "before_cursor_execute", note)
    assert ledger.health.put(health)
    event.remove(engine, "before_cursor_execute", note)
    return [word for word in ran if word in ("INSERT", "UPDATE", "DELETE")]


def test_equal_health_a_moment_later_changes_no_row(ledger: Ledger) -> None:
    ledger.health.put(measured("a"))
    assert changes(ledger, measured("a")) == []


def test_equal_health_ten_seconds_later_is_stored(ledger: Ledger, place: Place) -> None:
    ledger.health.put(measured("a"))
    place.age("icm_health", "observed_ms", 10_000)
    assert changes(ledger, measured("a"))
    [known] = ledger.health.known_tables()
    assert ledger.registry.now_ms() - known.observed_ms < 10_000


def test_health_of_the_same_pointer_by_another_policy_is_stored(ledger: Ledger) -> None:
    ledger.health.put(measured("a"))
    other = replace(measured("a"), basis="another policy")
    assert changes(ledger, other)
    assert ledger.health.get(TABLE) == other


def test_health_that_another_process_replaced_is_stored(ledger: Ledger, place: Place) -> None:
    ledger.health.put(measured("a", sequence_number=2))
    place.sql("UPDATE icm_health SET pointer = 'older.json', sequence_number = 1")
    assert changes(ledger, measured("a", sequence_number=2))
    assert ledger.health.get(TABLE) == measured("a", sequence_number=2)
