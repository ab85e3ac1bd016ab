"""A Spark session that starts in the background before its first use."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from iceberg_maint.runner.runtime import SessionFactory


class EarlySession:
    """A session factory. After `start` a thread creates the session, and a call waits for it. An error of the
    start is raised by the call."""

    def __init__(self, session: SessionFactory) -> None:
        self._session = session
        self._started: Future[Any] | None = None

    def start(self) -> None:
        """Begins to create the session. Does nothing the second time."""
        if self._started is None:
            self._started = Future()
            # A daemon: a run that needs no session after all ends without waiting for it.
            threading.Thread(
                target=self._create, args=(self._started,), name="start of Spark", daemon=True
            ).start()

    def __call__(self) -> Any:
        """The session, which the first call creates unless `start` did."""
        return self._session() if self._started is None else self._started.result()

    def _create(self, future: Future[Any]) -> None:
        try:
            future.set_result(self._session())
        except BaseException as why:  # noqa: BLE001 - the caller raises it
            future.set_exception(why)
