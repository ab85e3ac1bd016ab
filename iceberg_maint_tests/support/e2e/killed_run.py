"""A run that kills itself, as a child process of the resume tests.

    python -m iceberg_maint_tests.support.e2e.killed_run CONFIG TABLE POINT RUN_ID

The points of the second batch: `between_batches` before it, `files_written`, `intent_saved` (its files are proved and on
record, and no commit was tried), `before_swap`, `after_swap`. The seams are wrapped here, in the test: the product
holds no failpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from iceberg_maint.core.outcomes.outcome import CommitResult
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.ports.engine import Written
from iceberg_maint.wiring.adapters import load
from iceberg_maint_tests.support.context import context_with


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _KillingWork:
    """The real work of the ledger, until the point is reached in the second batch (the first for swaps)."""

    def __init__(self, work: Any, point: str) -> None:
        self._work, self._point, self._attempts = work, point, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def start_attempt(self, *arguments: Any) -> Any:
        self._attempts += 1
        if self._point == "between_batches" and self._attempts == 2:
            _kill()
        return self._work.start_attempt(*arguments)

    def record_intent(self, *arguments: Any) -> None:
        if self._point == "files_written" and self._attempts == 2:
            _kill()
        self._work.record_intent(*arguments)
        if self._point == "intent_saved" and self._attempts == 2:
            _kill()

    def record_try(self, *arguments: Any) -> None:
        self._work.record_try(*arguments)
        if self._point == "before_swap" and self._attempts == 2:
            _kill()


class _KillingEngine:
    def __init__(self, engine: Any, point: str) -> None:
        self._engine, self._point, self._commits = engine, point, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def commit(self, batch: Any, written: Written, ticket: Any) -> CommitResult:
        result: CommitResult = self._engine.commit(batch, written, ticket)
        self._commits += 1
        if self._point == "after_swap" and self._commits == 2:
            _kill()
        return result


def main(config: str, table_name: str, point: str, run_id: str) -> None:
    real = load(Path(config))
    engine = _KillingEngine(real.engine(), point)
    context = context_with(
        real.catalogs,
        replace(real.ledger, work=_KillingWork(real.ledger.work, point)),  # type: ignore[arg-type]
        real.clock,
        real.policies.of_table,
        lambda: engine,
    )
    maintain(real.catalogs.find(table_name), Request(run_id), context)
    raise SystemExit(f"the run ended before it reached {point}")


if __name__ == "__main__":
    main(*sys.argv[1:])
