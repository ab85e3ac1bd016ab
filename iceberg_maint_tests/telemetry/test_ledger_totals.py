"""Counters of a process that Prometheus scrapes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.integrations.telemetry.catalogue import OPERATION_DURATION, OPERATIONS, TRASH_FILES
from iceberg_maint.integrations.telemetry.samples import ZERO_SECONDS, LedgerTotals, TableLabels
from iceberg_maint.integrations.telemetry.series import Distribution, Series
from iceberg_maint.ports.stored import KnownTable
from iceberg_maint_tests.support.telemetry.values import record


@dataclass
class Records:
    """Two parts of a ledger: records and the tables that exist, by name; the UUID of each is its name."""

    stored: list[Record] = field(default_factory=list)
    tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.records = self.health = self

    def add(self, table: str = "lake.db.t") -> Record:
        number = len(self.stored)
        self.stored.append(replace(record(table), record_id=f"r{number}", table_uuid=table))
        return self.stored[-1]

    def newest(self, _table: None, limit: int) -> tuple[Record, ...]:
        return tuple(self.stored[::-1][:limit])

    def known_tables(self) -> tuple[KnownTable, ...]:
        return tuple(KnownTable(TableId.parse(name), name, "p", 1) for name in self.tables)


class Served:
    """The totals over time."""

    def __init__(self, most_tables: int = 10) -> None:
        self.ledger, self.seconds = Records(), 0.0
        self.observed: list[str] = []
        self._totals = LedgerTotals(
            self.ledger,  # type: ignore[arg-type]
            lambda table: self.observed.append(str(table)),
            TableLabels(most_tables),
            lambda: self.seconds,
        )

    def tables(self, series: Series) -> list[str]:
        """The tables that have a value of the series."""
        return sorted({labels[2] for labels, _ in dict(self._totals().families()).get(series, [])})

    def operations(self) -> float | None:
        """The number of operations and of their durations, which are equal."""
        families = dict(self._totals().families())
        if OPERATIONS not in families:
            return None
        [(_, value)], [(_, durations)] = families[OPERATIONS], families[OPERATION_DURATION]
        assert isinstance(value, float | int)
        assert isinstance(durations, Distribution)
        assert durations.count == value
        return value


def test_counter_of_the_first_call_has_its_value() -> None:
    served = Served()
    served.ledger.add()
    assert served.operations() == 1


def test_counter_that_appears_later_is_zero_until_every_scrape_has_seen_it() -> None:
    served = Served()
    assert served.operations() is None
    served.ledger.add()
    assert served.operations() == 0
    served.seconds = ZERO_SECONDS - 1
    served.ledger.add()
    assert served.operations() == 0
    served.seconds = ZERO_SECONDS
    assert served.operations() == 2
    served.ledger.add()
    assert served.operations() == 3


def test_dropped_table_has_no_gauges_and_keeps_its_counters() -> None:
    """Else its orphan files wait for approval in Prometheus for as long as the ledger has its records."""
    served = Served()
    served.ledger.tables = ("lake.db.t", "lake.db.u")
    for table in served.ledger.tables:
        served.ledger.add(table)
    assert served.tables(TRASH_FILES) == ["t", "u"]
    served.ledger.tables = ("lake.db.u",)
    assert (served.tables(TRASH_FILES), served.tables(OPERATIONS)) == (["u"], ["t", "u"])


def test_table_that_was_renamed_has_no_gauges_under_its_old_name() -> None:
    served = Served()
    served.ledger.tables = ("lake.db.t",)
    renamed = served.ledger.add("lake.db.old")
    served.ledger.stored[-1] = replace(renamed, table_uuid="lake.db.t")
    assert served.tables(TRASH_FILES) == []


def test_tables_that_exist_have_labels_before_those_that_were_dropped() -> None:
    served = Served(most_tables=2)
    for table in ("lake.db.dropped1", "lake.db.dropped2", "lake.db.t"):
        served.ledger.add(table)
    served.ledger.tables = ("lake.db.t",)
    assert served.tables(OPERATIONS) == ["_other", "dropped1", "t"]


def test_table_without_labels_of_its_own_is_not_decided_on() -> None:
    served = Served(most_tables=1)
    served.ledger.tables = ("lake.db.t", "lake.db.u")
    assert served.tables(OPERATIONS) == []
    assert served.observed == ["lake.db.t"]


def test_record_that_becomes_visible_after_a_newer_one_is_counted_once() -> None:
    served = Served()
    served.ledger.add()
    late = served.ledger.add()
    served.ledger.add()
    served.ledger.stored.remove(late)
    assert served.operations() == 2
    served.ledger.stored.insert(1, late)
    assert (served.operations(), served.operations()) == (3, 3)
    for _ in range(300):
        served.ledger.add()
    assert (served.operations(), served.operations()) == (303, 303)
