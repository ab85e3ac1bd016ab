"""Dagster's programs with short intervals and workers that start quickly: a test is to take seconds.

    python -m iceberg_maint_tests.support.defs.quick_dagster dev|daemon OPTIONS

is `dagster dev OPTIONS` or `dagster-daemon OPTIONS`. Most of these intervals are no setting of Dagster.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from multiprocessing import context, forkserver
from typing import Any

_MODULE = "iceberg_maint_tests.support.defs.quick_dagster"
_LOOK_SECONDS = 2
_LIBRARIES = (
    "dagster._grpc.server",
    "iceberg_maint.defs.load_definitions",
    "iceberg_maint.wiring.adapters",
    "pyspark.sql",
)


def command(program: str) -> list[str]:
    """The command line of `dev` or `daemon`, without its options."""
    return [sys.executable, "-m", _MODULE, program]


def fork_workers() -> None:
    """Lets a code server fork its run workers from a process that has imported the libraries.

    Dagster spawns each worker, which imports them again for some seconds. A worker has its own process as before.
    """
    if multiprocessing.parent_process() is None:
        multiprocessing.set_forkserver_preload(list(_LIBRARIES))
        forkserver.ensure_running()
        context.SpawnContext.Process = context.ForkServerProcess


def _run_dev() -> None:
    """`dagster dev`, which starts its daemon by this module."""
    from dagster._cli import dev

    start = dev.open_ipc_subprocess
    daemon = [sys.executable, "-m", "dagster._daemon"]

    def start_quick(parts: Sequence[str], **settings: Any) -> Any:
        if list(parts[:3]) == daemon:
            return start([*command("daemon"), *parts[3:]], **settings)
        return start(parts, **settings)

    dev.open_ipc_subprocess = start_quick
    dev.dev_command()


def _run_daemon() -> None:
    """`dagster-daemon`. Its loops read these names at each turn."""
    os.environ["DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS"] = str(_LOOK_SECONDS)
    from dagster._daemon import controller, sensor
    from dagster._daemon.cli import main

    # A name that Dagster no longer has would change nothing.
    assert (controller.DEFAULT_DAEMON_INTERVAL_SECONDS, sensor.MIN_INTERVAL_LOOP_TIME) == (30, 5)
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = _LOOK_SECONDS
    sensor.MIN_INTERVAL_LOOP_TIME = _LOOK_SECONDS
    main()


if __name__ == "__main__":
    {"dev": _run_dev, "daemon": _run_daemon}[sys.argv.pop(1)]()
