"""Counters of a process that Prometheus scrapes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.telemetry.catalogue import OPERATION_DURATION, OPERATIONS
from iceberg_maint.telemetry.ledger_totals import ZERO_SECONDS, LedgerTotals
from iceberg_maint.telemetry.samples import TableLabels
from iceberg_maint.telemetry.totals import Distribution
from iceberg_maint_tests.support.telemetry.values import record


@dataclass
class Records:
    """A ledger with records and no table."""

    stored: list[Record] = field(default_factory=list)

    def add(self) -> None:
        number = len(self.stored)
        self.stored.append(replace(record("lake.db.t"), record_id=f"r{number}"))

    def records(self, _table: None, limit: int) -> tuple[Record, ...]:
        return tuple(self.stored[::-1][:limit])

    def known_tables(self) -> tuple[()]:
        return ()


class Served:
    """The totals over time."""

    def __init__(self) -> None:
        self.ledger, self.seconds = Records(), 0.0
        self._totals = LedgerTotals(
            self.ledger,  # type: ignore[arg-type]
            lambda _table: None,
            TableLabels(10),
            lambda: self.seconds,
        )

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
