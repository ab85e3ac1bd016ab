"""The answers of a REST catalog, each with the words that the run and the next run must end with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iceberg_maint_tests.qualification.surroundings.guarded_rest import (
    Answer,
    Fault,
    GuardedRest,
    Request,
    refusal,
)

DONE = "IMPROVED small_files, 1"
NOTHING_LEFT = "NO_OP healthy, 0"


def once(answer: Answer, applies: Callable[[Request], bool], times: int = 1) -> Fault:
    """A fault of the first requests that it applies to."""
    left = [times]

    def fault(request: Request) -> Answer | None:
        if not applies(request) or left[0] == 0:
            return None
        left[0] -= 1
        return answer

    return fault


def _commit(request: Request) -> bool:
    return request.is_commit


def _load_by(agent: str) -> Callable[[Request], bool]:
    return lambda request: request.is_load and request.agent == agent


def _error(code: int, kind: str = "ServiceFailureException") -> Answer:
    return refusal(code, kind, headers={"Retry-After": "1"} if code in (429, 503) else None)


Prepare = Callable[[GuardedRest], None]


def _before(answer: Answer, applies: Callable[[Request], bool] = _commit, times: int = 1) -> Prepare:
    return lambda rest: setattr(rest, "fault", once(answer, applies, times))


def _after(answer: Answer) -> Prepare:
    return lambda rest: setattr(rest, "after", once(answer, _commit))


def _short_life(rest: GuardedRest) -> None:
    rest.life_seconds = 2.0


def _slow_commits(rest: GuardedRest) -> None:
    """Tokens that expire while a commit waits for its turn."""
    _short_life(rest)

    def fault(request: Request) -> Answer | None:
        if request.is_load and request.agent == "java":
            time.sleep(1.5)
        return None

    rest.fault = fault


def _revoked(rest: GuardedRest) -> None:
    def fault(request: Request) -> Answer | None:
        if not request.is_commit:
            return None
        rest.tokens.good.clear()
        return rest.unauthorised

    rest.fault = fault


def _restart(rest: GuardedRest) -> None:
    """The server is away for a second when PyIceberg looks at what Spark has committed."""
    seen = {"commit": False, "away": False}

    def fault(request: Request) -> Answer | None:
        seen["commit"] |= request.is_commit
        if seen["commit"] and request.agent == "python" and not seen["away"]:
            seen["away"] = True
            rest.away_for(1.0)
            time.sleep(0.7)  # until the server has closed its port
        return None

    rest.fault = fault


def _away(rest: GuardedRest) -> None:
    rest.stop()


@dataclass(frozen=True, slots=True)
class Case:
    """`first` and `then` are the expected words of the run and of the one after it."""

    catalog: str
    prepare: Prepare
    first: str
    then: str = NOTHING_LEFT


def _nothing(_rest: GuardedRest) -> None:
    pass


CASES: Mapping[str, Case] = {
    "static token": Case("bearer", _nothing, DONE),
    "client credentials": Case("oauth", _nothing, DONE),
    "tokens of two seconds": Case("oauth", _short_life, DONE),
    "tokens expire in mid run": Case("oauth", _slow_commits, DONE),
    "expired token": Case("expired", _nothing, "ICM-160, 0", "ICM-160, 0"),
    "wrong secret": Case("wrong", _nothing, "ICM-160, 0", "ICM-160, 0"),
    "no credentials": Case("anonymous", _nothing, "ICM-160, 0", "ICM-160, 0"),
    "token denied at the commit": Case(
        "bearer", _before(refusal(401, "NotAuthorizedException"), _commit), "FAILED environment, 0", DONE
    ),
    "commit forbidden": Case(
        "bearer", _before(refusal(403, "ForbiddenException"), _commit), "FAILED environment, 0", DONE
    ),
    "409 at the commit": Case("bearer", _before(refusal(409, "CommitFailedException")), DONE),
    **{
        f"{code} at the commit, not applied": Case(
            "bearer", _before(refusal(code, "ServiceFailureException")), "UNKNOWN unknown_commit, 0", DONE
        )
        for code in (500, 502, 503, 504)
    },
    **{
        f"{code} and Retry-After at the commit, not applied": Case("bearer", _before(_error(code)), DONE)
        for code in (429, 503)
    },
    **{
        f"{code} at the commit, applied": Case("bearer", _after(_error(code)), DONE)
        for code in (500, 502, 503, 504, 429)
    },
    **{
        f"{code} at a load of {client}": Case("bearer", _before(_error(code), _load_by(agent)), DONE)
        for code in (429, 500, 503)
        for client, agent in (("PyIceberg", "python"), ("Spark", "java"))
    },
    "503 at every load of PyIceberg": Case(
        "bearer", _before(_error(503), _load_by("python"), 1000), "ICM-161, 0", DONE
    ),
    "server restarts after the commit": Case("bearer", _restart, DONE),
    "server is away": Case("bearer", _away, "ICM-104, 0", DONE),
    "tokens revoked at the commit": Case("oauth", _revoked, "FAILED environment, 0", "FAILED environment, 0"),
}
