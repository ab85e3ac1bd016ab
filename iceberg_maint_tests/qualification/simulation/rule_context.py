"""What the watch reads of the world, and what the rules of one invariant use of the watch."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

from iceberg_maint.core.policy.data import Policy
from iceberg_maint_tests.qualification.simulation.lake import Lake
from iceberg_maint_tests.qualification.simulation.ledger_rows import LedgerRows, Seen
from iceberg_maint_tests.qualification.simulation.process import Process


class WatchedWorld(Protocol):
    """A world as far as invariants look at it."""

    seed: int
    lake: Lake
    policy: Policy
    connection: Any
    restored: int
    processes: list[Process]

    def story(self) -> str: ...


class RuleContext(Protocol):
    """The watch as far as its rules use it. `caller` is the process whose call of the ledger is checked."""

    world: WatchedWorld
    caller: Process | None
    seen: Seen
    found: Counter[str]
    ledger: LedgerRows

    def hold(self, invariant: str, true: object, fact: str) -> None: ...
