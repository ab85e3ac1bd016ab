"""A time that keeps for how long a decision made with it stays the same.

A decision is a function of its inputs and the time. While every comparison of the time has the same answer, the function takes
the same way and returns the same value. So this time answers comparisons and nothing else: it has no text, no hash and
no number, and a value that contains it cannot be stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")


def decided(decide: Callable[[int], T], now_ms: int) -> tuple[T, int, int]:
    """Returns what `decide` returns for this time, and the first and the last time, ms since epoch, for which it is the same.

    Both are `now_ms` if `decide` asks something else of the time than how it compares.
    """
    span = _Span(now_ms)
    try:
        value = decide(cast("int", LastingTime(now_ms, span)))
    except TypeError:
        return decide(now_ms), now_ms, now_ms
    return value, span.first_ms, span.last_ms


_EVER = 1 << 62


class _Span:
    """The times for which all answers so far are the same."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.first_ms, self.last_ms = -_EVER, _EVER

    def changes_at(self, at_ms: int) -> None:
        """Ends the span where an answer changes: at this time it is another one than a millisecond before."""
        if at_ms <= self._now_ms:
            self.first_ms = max(self.first_ms, at_ms)
        else:
            self.last_ms = min(self.last_ms, at_ms - 1)

    def is_unknown(self) -> None:
        """Ends the span at once."""
        self.first_ms = self.last_ms = self._now_ms


class LastingTime:
    """The time less `minus` ms, divided by `per` if that is a number. It stands in for an integer, or for a float."""

    __slots__ = ("_minus", "_now_ms", "_per", "_span")

    def __init__(self, now_ms: int, span: _Span, minus: int = 0, per: int | None = None) -> None:
        self._now_ms, self._span, self._minus, self._per = now_ms, span, minus, per

    def _at(self, ms: int) -> float:
        """The number at a time. It never falls as the time grows: a division rounds correctly."""
        return ms - self._minus if self._per is None else (ms - self._minus) / self._per

    def _answer(self, holds: Callable[[float], bool], near: float) -> bool:
        """Returns whether the number is one for which a comparison holds that holds from some number, near this one, on."""
        if math.isfinite(near):
            estimate = math.ceil(near * (self._per or 1)) + self._minus
            for at_ms in range(estimate - 1, estimate + 3):
                if holds(self._at(at_ms)) and not holds(self._at(at_ms - 1)):
                    self._span.changes_at(at_ms)
                    break
            else:
                self._span.is_unknown()
        else:
            self._span.is_unknown()
        return holds(self._at(self._now_ms))

    def __ge__(self, other: float) -> bool:
        return self._answer(lambda number: number >= other, other)

    def __gt__(self, other: float) -> bool:
        return self._answer(lambda number: number > other, other)

    def __lt__(self, other: float) -> bool:
        return not self >= other

    def __le__(self, other: float) -> bool:
        return not self > other

    def __sub__(self, ms: int) -> LastingTime:
        if self._per is not None or not isinstance(ms, int):
            return NotImplemented
        return LastingTime(self._now_ms, self._span, self._minus + ms)

    def __truediv__(self, by: int) -> LastingTime:
        if self._per is not None or not isinstance(by, int) or by <= 0:
            return NotImplemented
        return LastingTime(self._now_ms, self._span, self._minus, by)

    def __floordiv__(self, by: int) -> int:
        """The number itself, which changes at its next multiple."""
        if self._per is not None or not isinstance(by, int) or by <= 0:
            return NotImplemented
        whole = (self._now_ms - self._minus) // by
        self._span.changes_at(self._minus + whole * by)
        self._span.changes_at(self._minus + (whole + 1) * by)
        return whole

    def __bool__(self) -> bool:
        raise TypeError("a lasting time is not a number")

    def __eq__(self, other: object) -> bool:
        raise TypeError("a lasting time is not a number")

    def __hash__(self) -> int:
        raise TypeError("a lasting time is not a number")

    def __repr__(self) -> str:
        raise TypeError("a lasting time has no text")
