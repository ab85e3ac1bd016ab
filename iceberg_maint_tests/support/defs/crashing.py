"""The real definitions, except that a worker dies or waits once where a file in $CRASH_DIR says so.

The file is named `<table> <point>`. The seams are wrapped here, in the test: the product
holds no failpoint.
"""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from iceberg_maint.config import load_config
from iceberg_maint.defs.automation import maintenance_sensor, sensors
from iceberg_maint.defs.code_location import CodeLocation, load_table_list
from iceberg_maint.defs.load_definitions import build_definitions
from iceberg_maint.wiring import adapters
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.defs import quick_dagster

BETWEEN_BATCHES = "between_batches"
INSIDE_BATCH = "inside_batch"
WAIT = "wait"
_FOLDER = Path(os.environ["CRASH_DIR"])


def _reached(table: str, point: str) -> bool:
    """Whether the table is to be struck here; only once."""
    file = _FOLDER / f"{table} {point}"
    if not file.exists():
        return False
    file.unlink()
    return True


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Work:
    def __init__(self, work: Any) -> None:
        self._work, self._started = work, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def start_attempt(self, lease: Any, *arguments: Any) -> Any:
        self._started += 1
        if self._started == 2 and _reached(lease.table, BETWEEN_BATCHES):
            _kill()
        return self._work.start_attempt(lease, *arguments)


class _Engine:
    def __init__(self, engine: Any) -> None:
        self._engine, self._written = engine, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def write(self, batch: Any, policy: Any) -> Any:
        if _reached(batch.table, WAIT):
            (_FOLDER / "waiting").touch()
            time.sleep(600)
        written = self._engine.write(batch, policy)
        self._written += 1
        if self._written == 2 and _reached(batch.table, INSIDE_BATCH):
            _kill()
        return written


# Every test waits for a tick.
maintenance_sensor.AUTOMATION_INTERVAL_SECONDS = 5
sensors.CHANGES_INTERVAL_SECONDS = 8
quick_dagster.fork_workers()

_config = load_config(None, os.environ)
_context = adapters.build(_config)
_list = _config.home / "tables.json"
defs = build_definitions(
    changed(
        _context,
        ledger=replace(_context.ledger, work=_Work(_context.ledger.work)),
        engine=lambda: _Engine(_context.engine()),
    ),
    CodeLocation(
        load_table_list(_list, _context.catalogs),
        _list,
        webserver_url=os.environ["ICEBERG_MAINT_DAGSTER_URL"],
    ),
)
