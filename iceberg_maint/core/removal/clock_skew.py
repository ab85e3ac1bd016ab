"""Checks that the clocks agree before anything is removed by its age.

Age is the difference of two clocks: the writer's clock, which dated a snapshot or a file, and the clock
that gives the current time. A wrong clock makes everything look older at once. Before anything is
removed, the program therefore compares all clocks that it can read, and the earlier readings that the
ledger keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

MAX_SKEW_MS = 5 * 60 * 1000
FIX = (
    "correct the wrong clock by NTP. If the clock of this machine was corrected since then, run "
    "'iceberg-maint doctor --accept-clock'."
)


@dataclass(frozen=True, slots=True)
class Uptime:
    """`ms` is the time since the machine booted, sleep included. Setting the clock does not change it.
    `boot` identifies the boot."""

    boot: str
    ms: int


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The earlier readings in the ledger, from clocks that agreed. `newest_ms` is the newest reading of
    the database's clock. `booted_ms` is the start of this machine's present boot by its own clock at its
    last reading, None if there is no reading of this boot."""

    newest_ms: int = 0
    booted_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Clocks:
    """All clocks at one moment, ms since epoch. `store_ms`, and `updated_ms` (the table's
    `last-updated-ms`), are None if they were not read. `uptime_ms` is None if the machine does not report
    it."""

    machine_ms: int
    ledger_ms: int
    earlier: ClockReading = ClockReading()
    uptime_ms: int | None = None
    store_ms: int | None = None
    updated_ms: int | None = None

    @property
    def earliest_ms(self) -> int:
        """The earliest clock. By it everything is youngest."""
        return min(self.machine_ms, self.ledger_ms, *(() if self.store_ms is None else (self.store_ms,)))


def clock_skew_text(clocks: Clocks) -> str | None:
    """Returns how the clocks disagree, with every clock's time. None if they agree to `MAX_SKEW_MS`.

    A table that was last updated long ago is idle. If it was updated later than now, the clock that dated
    it is ahead or the clocks here are behind.
    """
    contradictions = "; ".join(_contradictions(clocks))
    return (
        f"{contradictions}. {_times(clocks)}; the limit is {MAX_SKEW_MS // 1000} s"
        if contradictions
        else None
    )


def _contradictions(clocks: Clocks) -> Iterator[str]:
    machine, ledger, store = ("this machine", "the ledger", "the store")
    yield from _apart(machine, clocks.machine_ms, ledger, clocks.ledger_ms)
    if clocks.store_ms is not None:
        yield from _apart(machine, clocks.machine_ms, store, clocks.store_ms)
        yield from _apart(ledger, clocks.ledger_ms, store, clocks.store_ms)
    if clocks.updated_ms is not None and clocks.updated_ms - clocks.earliest_ms > MAX_SKEW_MS:
        ahead = _seconds(clocks.updated_ms - clocks.earliest_ms)
        yield f"the table's last-updated-ms is {ahead} ahead of the clocks"
    if clocks.earlier.newest_ms - clocks.earliest_ms > MAX_SKEW_MS:
        back = _seconds(clocks.earlier.newest_ms - clocks.earliest_ms)
        yield f"a clock moved backwards: the ledger holds a time {back} later"
    if clocks.uptime_ms is not None and clocks.earlier.booted_ms is not None:
        moved_ms = clocks.machine_ms - clocks.uptime_ms - clocks.earlier.booted_ms
        if abs(moved_ms) > MAX_SKEW_MS:
            where = "forwards" if moved_ms > 0 else "backwards"
            yield f"the clock of this machine was set {where} by {_seconds(abs(moved_ms))} while it ran"


def _apart(first: str, first_ms: int, second: str, second_ms: int) -> Iterator[str]:
    if abs(first_ms - second_ms) > MAX_SKEW_MS:
        yield f"the clocks of {first} and of {second} are {_seconds(abs(first_ms - second_ms))} apart"


def _times(clocks: Clocks) -> str:
    times = {
        "this machine": clocks.machine_ms,
        "ledger": clocks.ledger_ms,
        "store": clocks.store_ms,
        "last-updated-ms": clocks.updated_ms,
        "newest time in the ledger": clocks.earlier.newest_ms or None,
    }
    return ", ".join(f"{name} {_moment(ms)}" for name, ms in times.items() if ms is not None)


def _seconds(ms: int) -> str:
    return f"{ms // 1000} s"


def _moment(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
