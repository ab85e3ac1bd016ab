"""Faults: what may go wrong at a step of a process, in the catalog and in an engine's swap."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum


class Killed(BaseException):
    """SIGKILL: nothing of the process runs after it; every port refuses from then on."""


class Terminated(BaseException):
    """SIGTERM, raised once; what the code does then still runs."""


class At(StrEnum):
    """What happens to a process at one call of a port."""

    KILL_BEFORE = "killed before the call"
    KILL_AFTER = "killed after the call"
    TERM_BEFORE = "terminated before the call"
    TERM_AFTER = "terminated after the call"
    STOP = "stopped (SIGSTOP) before the call"
    FAIL_BEFORE = "the call fails"
    FAIL_AFTER = "the call succeeds, its answer is lost"


class Answer(StrEnum):
    """How a catalog answers a compare-and-swap that might win."""

    OK = "ok"
    CONFLICT = "409 without a commit"
    CONFLICT_LANDED = "409 for a request that landed at its first sending"
    LOST = "commits, then the connection breaks"
    LATE = "the connection breaks, commits later"
    UNAVAILABLE = "503 without a commit"
    GATEWAY_LANDED = "502 or 504, committed"
    TIMEOUT_LATE = "the request times out, commits after others may have"
    OK_LIE = "says ok without a commit"
    GONE_BEFORE = "JVM gone before the swap"
    GONE_AFTER = "JVM gone after the swap"
    UNREADABLE = "commits, the table cannot be read back"
    BAD_REQUEST = "400 without a commit"


ON_THE_WAY = frozenset(
    {
        "start_attempt",
        "write",
        "record_intent",
        "load",
        "holds",
        "record_try",
        "swap",
        "read back",
        "settle_attempt",
        "finish_attempt",
        "append",
        "adopt",
        "create",
        "move",
        "delete",
    }
)
"""Calls on the way of an attempt, which are few among those that look: they fail more often."""
_MORE_OFTEN = 4

LANDS = frozenset(
    {
        Answer.OK,
        Answer.CONFLICT_LANDED,
        Answer.LOST,
        Answer.GATEWAY_LANDED,
        Answer.GONE_AFTER,
        Answer.UNREADABLE,
    }
)
LANDS_LATER = frozenset({Answer.LATE, Answer.TIMEOUT_LATE})
CONFLICTS = frozenset({Answer.CONFLICT, Answer.CONFLICT_LANDED})
NO_READING_BACK = frozenset({Answer.GONE_BEFORE, Answer.GONE_AFTER, Answer.UNREADABLE})
SILENT = frozenset({Answer.OK, Answer.OK_LIE})


@dataclass
class Faults:
    """Which faults a world has and how often: each call of a port draws once."""

    choose: random.Random
    rate: float = 0.0
    at: Collection[At] = ()
    swap_rate: float = 0.0
    answers: Collection[Answer] = ()
    script: list[tuple[str, At]] = field(default_factory=list)
    answer_script: list[Answer] = field(default_factory=list)
    spares: int = 0

    @classmethod
    def drawn(cls, choose: random.Random) -> Faults:
        """Some of the faults, so that each gets worlds in which the others do not hide it."""
        at = choose.sample(list(At), choose.randint(0, 4))
        answers = choose.sample(list(Answer), choose.randint(0, 6))
        rate = choose.choice([0.002, 0.008, 0.02])
        return cls(choose, rate, at, choose.choice([0.1, 0.3, 0.6]), answers)

    def stop(self) -> None:
        """No faults from now on."""
        self.rate = self.swap_rate = 0.0
        self.script.clear()
        self.answer_script.clear()

    def of_call(self, name: str) -> At | None:
        """The fault of this call, scripted ones first: `script` names calls in the order they come,
        of which the first `spares` times pass."""
        if self.script and self.script[0][0] == name:
            if self.spares:
                self.spares -= 1
                return None
            return self.script.pop(0)[1]
        rate = self.rate * (_MORE_OFTEN if name in ON_THE_WAY else 1)
        if self.at and self.choose.random() < rate:
            return self.choose.choice(list(self.at))
        return None

    def of_swap(self) -> Answer:
        if self.answer_script:
            return self.answer_script.pop(0)
        if self.answers and self.choose.random() < self.swap_rate:
            return self.choose.choice(list(self.answers))
        return Answer.OK
