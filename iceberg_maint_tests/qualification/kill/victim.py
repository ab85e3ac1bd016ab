"""A process that is killed, or whose JVM is, or that is stopped and goes on, with several runs at one point.

    python -m iceberg_maint_tests.qualification.kill.victim FOLDER POINT FATE KIND...

FOLDER is that of the lake. Each run is on a table and a ledger of its own; all wait at the point until
the last one is there. FATE is PYTHON, JVM or STOP: then the process says so and goes on at a line on its
standard input. What it says are JSON lines.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from iceberg_maint.loop import guards
from iceberg_maint.loop.context import Context
from iceberg_maint_tests.qualification.kill.lake import Lake
from iceberg_maint_tests.qualification.kill.points import POINTS, ZOMBIE_POINTS, Kind, Mode, Point, Seam
from iceberg_maint_tests.qualification.kill.runs import Gathering, failing_run
from iceberg_maint_tests.support.damaged_memo import keep_all_manifests

STOP = "STOP"
SHORT_TTL_SECONDS = 4
_WAIT_SECONDS = 240
_BEFORE_SPARK = frozenset({Seam.LOCKED, Seam.PLANNED, Seam.LISTED, Seam.MARKED, Seam.HALF_MOVED, Seam.MOVED})


def main(folder: str, code: str, fate: str, *names: str) -> None:
    keep_all_manifests()
    lake = Lake(Path(folder))
    point = next(p for p in (*POINTS, *ZOMBIE_POINTS) if p.code == code)
    kinds = [Kind(name) for name in names]
    if fate == STOP:
        guards.LEASE_TTL_SECONDS = SHORT_TTL_SECONDS
    jvm = None
    if fate != Mode.PYTHON.name or point.seam not in _BEFORE_SPARK:
        jvm = _start_spark(lake.context(kinds[0]))
    _say(jvm=jvm.pid if jvm else None)
    gathering = Gathering(len(kinds))
    came: dict[str, str] = {}
    threads = [
        threading.Thread(target=_run, args=(lake, kind, point, gathering, came), daemon=True)
        for kind in kinds
    ]
    for thread in threads:
        thread.start()
    gathering.wait(_WAIT_SECONDS)
    if fate == Mode.PYTHON.name:
        os.kill(os.getpid(), signal.SIGKILL)
    if fate == Mode.JVM.name:
        os.kill(jvm.pid, signal.SIGKILL)
        jvm.wait()
    else:
        _say(stopped=True)
        sys.stdin.readline()
    gathering.go.set()
    for thread in threads:
        thread.join(_WAIT_SECONDS)
    _say(came=came)
    os._exit(0 if len(came) == len(kinds) else 1)


def _run(lake: Lake, kind: Kind, point: Point, gathering: Gathering, came: dict[str, str]) -> None:
    try:
        came[kind] = failing_run(lake, kind, point, lambda _context: gathering.arrive(), f"killed-{kind}")
    except BaseException as why:
        gathering.missed(f"{kind}: {why!r}")
        raise


def _start_spark(context: Context) -> Any:
    """The process of the JVM."""
    context.engine.spark.session()
    from pyspark import SparkContext

    return SparkContext._gateway.proc


def _say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
