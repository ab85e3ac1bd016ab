"""Clocks: whether the times by which something is removed agree.

Age is the difference of two clocks: the writer's, which dated a snapshot or a file, and the one that
says now. A wrong clock ages everything at once. So all clocks that can be read are compared before
anything is removed, and what the ledger keeps of earlier readings with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

MAX_SKEW_MS = 5 * 60 * 1000
FIX = (
    "set the clock that is wrong by NTP; where this machine's clock was put right since, run "
    "'iceberg-maint doctor --accept-clock'."
)


@dataclass(frozen=True, slots=True)
class Uptime:
    """`ms` since the machine booted, sleep included, which no setting of the clock changes; `boot`
    names the boot."""

    boot: str
    ms: int


@dataclass(frozen=True, slots=True)
class ClockMark:
    """What the ledger keeps of earlier readings that agreed. `newest_ms` is the newest of all, by the
    database's clock; `booted_ms` is when the present boot of this machine began, by this machine's clock
    at its last reading, None where there is no reading of this boot."""

    newest_ms: int = 0
    booted_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Clocks:
    """All clocks at one moment, ms since epoch. `store_ms` and `updated_ms`, the table's
    `last-updated-ms`, are None where they were not read; `uptime_ms` where the machine tells none."""

    machine_ms: int
    ledger_ms: int
    mark: ClockMark = ClockMark()
    uptime_ms: int | None = None
    store_ms: int | None = None
    updated_ms: int | None = None

    @property
    def earliest_ms(self) -> int:
        """The clock that is behind: by it everything is youngest."""
        return min(self.machine_ms, self.ledger_ms, *(() if self.store_ms is None else (self.store_ms,)))


def disagreement(clocks: Clocks) -> str | None:
    """What is wrong with the clocks, with every clock's time; None where they agree to `MAX_SKEW_MS`.

    A table that was updated long ago is idle. One that was updated later than now was dated by a
    clock that is ahead, or the clocks here are behind.
    """
    wrong = "; ".join(_contradictions(clocks))
    return f"{wrong}. {_times(clocks)}; the limit is {MAX_SKEW_MS // 1000} s" if wrong else None


def _contradictions(clocks: Clocks) -> Iterator[str]:
    machine, ledger, store = ("this machine", "the ledger", "the store")
    yield from _apart(machine, clocks.machine_ms, ledger, clocks.ledger_ms)
    if clocks.store_ms is not None:
        yield from _apart(machine, clocks.machine_ms, store, clocks.store_ms)
        yield from _apart(ledger, clocks.ledger_ms, store, clocks.store_ms)
    if clocks.updated_ms is not None and clocks.updated_ms - clocks.earliest_ms > MAX_SKEW_MS:
        ahead = _seconds(clocks.updated_ms - clocks.earliest_ms)
        yield f"the table's last-updated-ms is {ahead} ahead of the clocks"
    if clocks.mark.newest_ms - clocks.earliest_ms > MAX_SKEW_MS:
        back = _seconds(clocks.mark.newest_ms - clocks.earliest_ms)
        yield f"a clock moved backwards: the ledger holds a time {back} later"
    if clocks.uptime_ms is not None and clocks.mark.booted_ms is not None:
        moved_ms = clocks.machine_ms - clocks.uptime_ms - clocks.mark.booted_ms
        if abs(moved_ms) > MAX_SKEW_MS:
            where = "forwards" if moved_ms > 0 else "backwards"
            yield f"the clock of this machine was set {where} by {_seconds(abs(moved_ms))} while it ran"


def _apart(one: str, one_ms: int, other: str, other_ms: int) -> Iterator[str]:
    if abs(one_ms - other_ms) > MAX_SKEW_MS:
        yield f"the clocks of {one} and of {other} are {_seconds(abs(one_ms - other_ms))} apart"


def _times(clocks: Clocks) -> str:
    times = {
        "this machine": clocks.machine_ms,
        "ledger": clocks.ledger_ms,
        "store": clocks.store_ms,
        "last-updated-ms": clocks.updated_ms,
        "newest time in the ledger": clocks.mark.newest_ms or None,
    }
    return ", ".join(f"{name} {_moment(ms)}" for name, ms in times.items() if ms is not None)


def _seconds(ms: int) -> str:
    return f"{ms // 1000} s"


def _moment(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
