"""Runs the tasks of a small batch in the driver's process.

A Spark job costs about a tenth of a second of CPU: stages, serialized functions, Python workers. The tasks of a batch of
tiny files cost a fifth of that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from iceberg_maint.engines.spark.jvm.bridge import Bridge, CancelledError

MOST_BYTES = 1024 * 1024
"""Input bytes of a batch whose tasks run here."""
MOST_VALUES = 1_000_000
"""Values of its rows, those in lists and maps aside: few bytes may hold many equal ones."""
MOST_DECODED_BYTES = 64 * 1024 * 1024
"""Decoded bytes of a task that runs here. Its input's size and rows do not bound them: texts and lists may be long."""
_POLL_SECONDS = 0.2


def is_small(input_bytes: int, values: int) -> bool:
    """Whether the tasks of a batch of this size may run in the driver's process."""
    return input_bytes <= MOST_BYTES and values <= MOST_VALUES


def run_in_driver(bridge: Bridge, worker: Callable[..., str], tasks: Sequence[str]) -> list[str] | None:
    """Returns the results of the tasks in order. None: a task raised an error; run all of them by Spark, whose errors
    the callers know.

    The tasks run on a thread of their own, because a read of a file system that does not answer cannot be interrupted. Raises
    CancelledError when the session's jobs are cancelled. A task that is left behind then ends later, and no
    metadata name what it writes.
    """
    results: list[str] = []
    ended = threading.Event()
    before = bridge.cancellations

    def run() -> None:
        try:
            for task in tasks:
                if bridge.cancellations != before:
                    return
                results.append(worker(task, 0))
        except Exception:  # noqa: BLE001 - Spark runs the tasks again and raises its own error
            results.clear()
        finally:
            ended.set()

    threading.Thread(target=run, name="iceberg-maint-task", daemon=True).start()
    while not ended.wait(_POLL_SECONDS):
        if bridge.cancellations != before:
            break
    if bridge.cancellations != before:
        raise CancelledError("the tasks of the batch were cancelled")
    return results if len(results) == len(tasks) else None
