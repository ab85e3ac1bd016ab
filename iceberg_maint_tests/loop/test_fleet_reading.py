"""The look at many tables: what is unchanged, read, late, or given up."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.loop import read_table
from iceberg_maint.loop.fleet.catalogs import late_table
from iceberg_maint.loop.fleet.known_tables import (
    UnchangedTable,
    ask_catalogs,
    list_and_forget,
    list_tables,
    read_known_pointers,
)
from iceberg_maint.loop.fleet.read_fleet import in_order, observe_tables, read_tables
from iceberg_maint.loop.read_table import TableReading
from iceberg_maint.machine.bounded_calls import CallLimits, LateError, Limit
from iceberg_maint_tests.cli.conftest import table_of
from iceberg_maint_tests.support.context import context_with, no_spark
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.loop.world import POLICY, SetClock

NEVER_SECONDS = 60.0
LATE_SECONDS = 1.0


class SlowCatalog(FakeCatalog):
    """A service in memory. The pointer of a table in `silent`, the metadata of one in `stuck` and, with `is_mute`, the list
    are not answered before `end` is set."""

    asks_each_table = True

    def __init__(self, name: str, tables: Collection[str]) -> None:
        super().__init__(name, [table_of(f"{name}.db.{t}", {"1": 2}) for t in tables])
        self.cycle_limits = CallLimits(4, LATE_SECONDS, NEVER_SECONDS)
        self.end = threading.Event()
        self.silent: set[str] = set()
        self.stuck: set[str] = set()
        self.is_mute = False
        self.asked: list[str] = []

    def tables(self) -> tuple[TableId, ...]:
        if self.is_mute:
            self.end.wait(NEVER_SECONDS)
        return super().tables()

    def pointers(self, tables: Collection[TableId]) -> Mapping[TableId, str]:
        [table] = tables
        self.asked.append(table.name)
        if table.name in self.silent:
            self.end.wait(NEVER_SECONDS)
        return super().pointers(tables)

    def pin(self, table: TableId, known: TableState | None = None) -> TableState:
        if table.name in self.stuck:
            self.end.wait(NEVER_SECONDS)
        return super().pin(table, known)


class Fleet:
    """Two services, and the context over them."""

    def __init__(self, lake: Collection[str] = "abcd") -> None:
        self.lake, self.pond = SlowCatalog("lake", lake), SlowCatalog("pond", "xy")
        self.context = context_with(
            catalogs={"lake": self.lake, "pond": self.pond},
            ledger=memory_ledger(),
            clock=SetClock(),
            policy_for=lambda _table, _properties: POLICY,
            engine=no_spark,
        )
        self.names = self.context.catalogs.tables()

    def observe(self) -> dict[str, Any]:
        return {
            str(t): found.code if isinstance(found, IcebergMaintError) else "measured"
            for t, found in observe_tables(self.names, self.context)
        }

    def look(self) -> dict[str, Any]:
        return {str(t): found for t, found in read_tables(self.names, self.context, observe=False)}


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.lake.end.set()
    fleet.pond.end.set()


def test_tables_are_read_then_unchanged_and_stay_in_order(fleet: Fleet) -> None:
    assert {type(found) for found in fleet.look().values()} == {TableReading}
    names = ["lake.db.a", "lake.db.b", "lake.db.c", "lake.db.d", "pond.db.x", "pond.db.y"]
    assert list(fleet.observe().items()) == [(n, "measured") for n in names]
    assert {type(found) for found in fleet.look().values()} == {UnchangedTable}


def test_changed_table_is_read_and_its_new_health_is_stored(fleet: Fleet) -> None:
    fleet.observe()
    changed = table_of("lake.db.b", {"1": 7})
    fleet.lake.put(replace(changed, state=replace(changed.state, metadata_location="file:///mem/new")))
    found = fleet.look()
    assert [n for n, f in found.items() if isinstance(f, TableReading)] == ["lake.db.b"]
    fleet.observe()
    health = fleet.context.ledger.health.get(TableId.parse("lake.db.b"))
    assert health is not None
    assert (health.metadata_location, health.partitions["day=1"].data_files) == ("file:///mem/new", 7)


def test_pointer_that_does_not_come_leaves_its_table_unknown(fleet: Fleet) -> None:
    fleet.observe()
    before = fleet.context.ledger.health.known_tables()
    fleet.lake.silent = {"b"}
    fleet.lake.stuck = {"b"}
    found = fleet.observe()
    assert [n for n, f in found.items() if f == "ICM-179"] == ["lake.db.b"]
    assert [(k.table, k.pointer) for k in fleet.context.ledger.health.known_tables()] == [
        (k.table, k.pointer) for k in before
    ]
    list_and_forget(fleet.context)
    assert fleet.context.ledger.health.get(TableId.parse("lake.db.b")) is not None


def test_catalog_whose_tables_all_hang_holds_no_other(fleet: Fleet) -> None:
    fleet.lake.stuck = set("abcd")
    assert list(fleet.observe().values()) == ["ICM-179"] * 4 + ["measured"] * 2


def test_catalog_whose_list_does_not_come_is_an_error_and_forgets_no_table(fleet: Fleet) -> None:
    fleet.observe()
    fleet.lake.is_mute = True
    listing = list_and_forget(fleet.context)
    assert [str(t) for t in listing.tables] == ["pond.db.x", "pond.db.y"]
    assert str(listing.errors["lake"]).startswith(
        "ICM-179 catalog 'lake' did not list its tables within 1 seconds (catalogs.lake.read_timeout_seconds)."
    )
    assert len(fleet.context.ledger.health.known_tables()) == 6
    fleet.pond.is_mute = True
    with pytest.raises(IcebergMaintError, match="ICM-179 catalog 'pond'"):
        list_tables(fleet.context)


def test_catalog_that_fails_as_a_whole_is_asked_a_few_times_only() -> None:
    fleet = Fleet([f"t{n}" for n in range(100)])
    fleet.observe()
    fleet.lake.cycle_limits = CallLimits(1, NEVER_SECONDS, NEVER_SECONDS)
    fleet.lake.asked.clear()
    fleet.lake.unreachable = True
    assert list(fleet.observe().values()) == ["ICM-104"] * 100 + ["measured"] * 2
    # Further calls begin while the answer of the third is on its way.
    assert 3 <= len(fleet.lake.asked) < 50


def test_table_that_was_observed_the_longest_time_ago_is_asked_for_first(fleet: Fleet) -> None:
    fleet.lake.cycle_limits = CallLimits(1, NEVER_SECONDS, NEVER_SECONDS)
    for name in ("lake.db.c", "lake.db.a", "lake.db.d", "lake.db.b"):
        list(observe_tables([TableId.parse(name)], fleet.context))
        start = fleet.context.ledger.registry.now_ms()
        while fleet.context.ledger.registry.now_ms() == start:
            pass
    fleet.lake.asked.clear()
    fleet.look()
    assert fleet.lake.asked == ["c", "a", "d", "b"]


def test_caller_in_a_hurry_gets_what_is_answered_and_which_catalog_is_late(fleet: Fleet) -> None:
    fleet.lake.cycle_limits = CallLimits(4, NEVER_SECONDS, NEVER_SECONDS)
    fleet.lake.silent = {"b"}
    pointers, errors = read_known_pointers(fleet.names, fleet.context.within(LATE_SECONDS))
    assert {t.name for t in pointers} == set("acdxy")
    assert list(errors) == ["lake"]
    assert " within 1 seconds, the time of a tick. What is known of it stays as it is." in str(errors["lake"])
    fleet.lake.is_mute = True
    assert list(ask_catalogs(fleet.context.within(LATE_SECONDS)).errors) == ["lake"]


def test_large_tables_are_measured_one_at_a_time(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_table, "_SMALL_BYTES", -1)
    lock, now, most = threading.Lock(), 0, 0
    measure = FakeCatalog.measure

    def counted(catalog: FakeCatalog, state: TableState, policy: Any) -> Measured:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        try:
            return measure(catalog, state, policy)
        finally:
            with lock:
                now -= 1

    monkeypatch.setattr(FakeCatalog, "measure", counted)
    fleet.names = fleet.lake.tables()
    assert set(fleet.observe().values()) == {"measured"}
    assert most == 1


def test_health_is_written_by_the_thread_of_the_caller_alone(fleet: Fleet) -> None:
    writers = set()
    put = fleet.context.ledger.health.put

    def noted(measured: Measured) -> None:
        writers.add(threading.get_ident())
        put(measured)

    fleet.context.ledger.health.put = noted  # type: ignore[method-assign]
    fleet.observe()
    assert writers == {threading.get_ident()}


def test_table_of_a_catalog_that_the_configuration_lacks_is_an_error(fleet: Fleet) -> None:
    fleet.names = (TableId.parse("sea.db.t"), TableId.parse("pond.db.x"))
    assert fleet.observe() == {"sea.db.t": "ICM-126", "pond.db.x": "measured"}


def test_fault_of_the_program_in_one_table_hides_no_other(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = fleet.lake.pin

    def broken(table: TableId, known: TableState | None = None) -> TableState:
        if table.name == "b":
            raise RuntimeError("a fault of the program")
        return pin(table, known)

    monkeypatch.setattr(fleet.lake, "pin", broken)
    observed = fleet.observe()
    assert observed.pop("lake.db.b") == "ICM-181"
    assert set(observed.values()) == {"measured"}


def test_order_holds_what_is_done_too_early() -> None:
    a, b, c = (TableId.parse(f"lake.db.{n}") for n in "abc")
    assert list(in_order((a, b, c), [(c, 3), (a, 1), (b, 2)])) == [(a, 1), (b, 2), (c, 3)]


def test_run_of_a_table_whose_metadata_do_not_come_ends_with_its_code(fleet: Fleet) -> None:
    fleet.lake.stuck = {"a"}
    with pytest.raises(IcebergMaintError, match=r"^ICM-179 lake\.db\.a: .* within 1 seconds"):
        fleet.context.of_one_run().catalogs.pin(TableId.parse("lake.db.a"))


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        (Limit.CALL, "lake.db.a: catalog 'lake' or the store of the table gave no answer within 3 seconds"),
        (Limit.ALL, "lake.db.a: the cycle over catalog 'lake' did not come to it within 3 seconds"),
        (Limit.LOST, "lake.db.a: 8 other tables of catalog 'lake' gave no answer within 3 seconds"),
    ],
)
def test_table_that_was_not_read_in_time_is_named_with_the_limit(limit: Limit, what: str) -> None:
    error = late_table(TableId.parse("lake.db.a"), LateError(limit, 3), within=3)
    assert str(error).startswith(f"ICM-179 {what}, the time of a tick")
