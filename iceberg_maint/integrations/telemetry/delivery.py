"""Delivery: samples go through a bounded queue to each receiver, which its own thread serves."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.integrations.telemetry.catalogue import TELEMETRY_DROPPED
from iceberg_maint.integrations.telemetry.samples import TableLabels, operation_samples, table_samples
from iceberg_maint.integrations.telemetry.series import Sample
from iceberg_maint.ports.observers import Intent, Observation

_log = logging.getLogger(__name__)


Item = TypeVar("Item")
Sent_contra = TypeVar("Sent_contra", contravariant=True)


class Exporter(Protocol[Sent_contra]):
    """Sends samples or events to one receiver, in the thread that delivers."""

    @property
    def is_cumulative(self) -> bool:
        """Whether the next samples also carry the numbers of a failed try."""

    def send(self, items: Sequence[Sent_contra], /) -> None:
        """Sends the items within the timeout of the exporter. Raises any exception if the receiver did not
        take them."""


class Channel(Generic[Item]):
    """The queue and the thread of one receiver. `drops` is what reports a number of dropped items. The thread starts with the first samples, and makes the
    exporter. `name` is the value of the label `exporter`.

    A full queue drops the new samples. A failure drops the samples of that try, so that no number is sent
    twice, unless the exporter is cumulative. Drops are counted and sent with the next samples. The log has the
    first failure after a success.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Exporter[Item]],
        most: int,
        masked: Callable[[str], str] = str,
        drops: Callable[[int], tuple[Item, ...]] = lambda _count: (),
    ) -> None:
        self._name = name
        self._make = make
        self._drops = drops
        self._exporter: Exporter[Item] | None = None
        self._masked = masked
        self._queue: queue.Queue[tuple[Item, ...]] = queue.Queue(most)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._dropped = 0
        self._logged: set[str] = set()

    def offer(self, samples: tuple[Item, ...]) -> None:
        """Queues the samples, or drops them if the queue is full. Returns at once."""
        if not samples:
            return
        with self._lock:
            if self._thread is None:
                name = f"iceberg-maint-telemetry-{self._name}"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
        try:
            self._queue.put_nowait(samples)
        except queue.Full:
            self._drop(len(samples))
            self._log_once(
                IcebergMaintError(
                    "ICM-140",
                    f"telemetry: the queue of {self._name} is full; samples are dropped.",
                    "check whether the receiver is slow or down.",
                )
            )

    def wait(self, deadline: float) -> None:
        """Waits until every queued sample was tried, or the deadline by the monotonic clock."""
        while self._queue.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)

    def _work(self) -> None:
        while True:
            samples = self._queue.get()
            try:
                self._send(samples)
            finally:
                self._queue.task_done()

    def _send(self, samples: tuple[Item, ...]) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        extra = self._drops(dropped) if dropped else ()
        try:
            if self._exporter is None:
                self._exporter = self._make()
            self._exporter.send((*samples, *extra))
        except Exception as why:  # noqa: BLE001 - no failure of a receiver may end the thread
            if self._exporter is None or not self._exporter.is_cumulative:
                self._drop(dropped + len(samples))
            cause = " ".join(self._masked(f"{type(why).__name__}: {why}").split())[:300]
            self._log_once(
                IcebergMaintError(
                    "ICM-140",
                    f"telemetry: {self._name} did not take the samples: {cause}.",
                    f"check the section of {self._name} in telemetry, and the receiver. Maintenance is not affected.",
                )
            )
        else:
            self._logged.clear()

    def _drop(self, samples: int) -> None:
        with self._lock:
            self._dropped += samples

    def _log_once(self, error: IcebergMaintError) -> None:
        if error.code not in self._logged:
            self._logged.add(error.code)
            _log.warning("%s", error)


def sample_channel(
    name: str, make: Callable[[], Exporter[Sample]], most: int, masked: Callable[[str], str] = str
) -> Channel[Sample]:
    """A channel of samples. What it drops is a sample itself."""

    def drops(count: int) -> tuple[Sample, ...]:
        return (Sample(TELEMETRY_DROPPED, (name,), count),)

    return Channel(name, make, most, masked, drops)


class Delivery:
    """The telemetry of this process: computes the samples and offers them to every receiver."""

    def __init__(
        self,
        channels: Sequence[Channel[Sample]],
        tables: TableLabels,
        flush_seconds: float,
        lineage: Channel[Intent | Record] | None = None,
    ) -> None:
        self._channels = channels
        self._lineage = lineage
        self._tables = tables
        self._flush_seconds = flush_seconds

    def operation_started(self, intent: Intent) -> None:
        """Offers the start of the operation to the receiver of lineage."""
        if self._lineage is not None:
            self._lineage.offer((intent,))

    def operation_ended(self, record: Record, observe: Callable[[], Observation | None]) -> None:
        """Offers the samples of the operation, those of the table after it, and the end of the operation."""
        if self._lineage is not None:
            self._lineage.offer((record,))

        def samples() -> tuple[Sample, ...]:
            observation = observe()
            health = () if observation is None else table_samples(observation, self._tables)
            return (*operation_samples(record, self._tables), *health)

        self._offer(samples)

    def table_observed(self, observation: Observation) -> None:
        """Offers the samples of the table."""
        self._offer(lambda: table_samples(observation, self._tables))

    def _offer(self, compute: Callable[[], tuple[Sample, ...]]) -> None:
        if not self._channels:
            return
        try:
            samples = compute()
        except Exception:  # noqa: BLE001 - a wrong number must not fail maintenance
            _log.exception("telemetry: the samples could not be computed; maintenance is not affected")
            return
        for channel in self._channels:
            channel.offer(samples)

    def close(self) -> None:
        """Waits until the samples were sent, all receivers together at most `flush_seconds`."""
        deadline = time.monotonic() + self._flush_seconds
        for channel in self._channels:
            channel.wait(deadline)
        if self._lineage is not None:
            self._lineage.wait(deadline)
