"""A receiver that is down, slow or full delays nothing, fails nothing, and is counted and logged once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from iceberg_maint.integrations.telemetry.catalogue import TELEMETRY_DROPPED
from iceberg_maint.integrations.telemetry.delivery import Delivery, sample_channel
from iceberg_maint.integrations.telemetry.samples import TableLabels
from iceberg_maint.integrations.telemetry.series import Sample
from iceberg_maint_tests.support.telemetry.values import observation, record


@dataclass
class FakeExporter:
    """Keeps what it gets. `errors` are raised first; `gate` blocks each try until it is set."""

    errors: list[Exception] = field(default_factory=list)
    gate: threading.Event | None = None
    is_cumulative: bool = False
    sent: list[Sequence[Sample]] = field(default_factory=list)

    def send(self, samples: Sequence[Sample]) -> None:
        if self.gate is not None:
            self.gate.wait(10)
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(samples)


def delivery_to(exporter: FakeExporter, most: int = 100, flush_seconds: float = 5.0) -> Delivery:
    return Delivery([sample_channel("fake", lambda: exporter, most)], TableLabels(10), flush_seconds)


def dropped(exporter: FakeExporter) -> list[float]:
    return [s.value for samples in exporter.sent for s in samples if s.series is TELEMETRY_DROPPED]


def test_numbers_of_an_operation_and_of_its_table_arrive_in_one_piece() -> None:
    exporter = FakeExporter()
    delivery = delivery_to(exporter)
    delivery.operation_ended(record(), observation)
    delivery.close()
    assert len(exporter.sent) == 1
    names = {s.series.name for s in exporter.sent[0]}
    assert {"iceberg_maint.operations", "iceberg_maint.table.data_files"} < names


def test_slow_receiver_delays_no_caller_and_the_end_only_for_the_limit() -> None:
    exporter = FakeExporter(gate=threading.Event())
    delivery = delivery_to(exporter, flush_seconds=0.1)
    started = time.monotonic()
    for _ in range(20):
        delivery.table_observed(observation())
    assert time.monotonic() - started < 1
    delivery.close()
    assert time.monotonic() - started < 2
    assert exporter.sent == []
    assert exporter.gate is not None
    exporter.gate.set()


def test_full_queue_drops_and_counts_and_logs_once(caplog: pytest.LogCaptureFixture) -> None:
    exporter = FakeExporter(gate=threading.Event())
    delivery = delivery_to(exporter, most=1)
    delivery.table_observed(observation())
    while delivery._channels[0]._queue.qsize():
        time.sleep(0.001)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            delivery.table_observed(observation())
    assert time.monotonic() - started < 2
    assert exporter.gate is not None
    exporter.gate.set()
    delivery.close()
    delivery.table_observed(observation())
    delivery.close()
    size = len([s for s in exporter.sent[0] if s.series is not TELEMETRY_DROPPED])
    assert sum(dropped(exporter)) == 3 * size
    assert [r.getMessage().split()[0] for r in caplog.records] == ["ICM-140"]


def test_receiver_that_is_down_is_logged_once_and_its_drops_are_sent_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = FakeExporter(errors=[OSError("refused"), OSError("refused")])
    delivery = delivery_to(exporter)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            delivery.table_observed(observation())
            delivery.close()
    size = len(exporter.sent[0]) - 1
    assert dropped(exporter) == [2 * size]
    (line,) = (r.getMessage() for r in caplog.records)
    assert line == (
        "ICM-140 telemetry: fake did not take the samples: OSError: refused. Fix: check the section of fake in "
        "telemetry, and the receiver. Maintenance is not affected."
    )


def test_cumulative_exporter_counts_no_drop_for_a_failed_try() -> None:
    exporter = FakeExporter(errors=[OSError("refused")], is_cumulative=True)
    delivery = delivery_to(exporter)
    for _ in range(2):
        delivery.table_observed(observation())
        delivery.close()
    assert dropped(exporter) == []


def test_secret_in_the_error_of_a_client_is_masked_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    exporter = FakeExporter(errors=[OSError("header hunter2 refused")])
    channel = sample_channel("fake", lambda: exporter, 10, lambda text: text.replace("hunter2", "***"))
    delivery = Delivery([channel], TableLabels(10), 5.0)
    with caplog.at_level(logging.WARNING):
        delivery.table_observed(observation())
        delivery.close()
    assert "hunter2" not in caplog.text
    assert "header *** refused" in caplog.text


def test_error_while_samples_are_computed_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    exporter = FakeExporter()
    delivery = delivery_to(exporter)

    def broken() -> None:
        raise RuntimeError("the ledger is gone")

    with caplog.at_level(logging.ERROR):
        delivery.operation_ended(record(), broken)
    delivery.close()
    assert exporter.sent == []
    assert "the ledger is gone" in caplog.text
