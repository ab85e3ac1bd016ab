"""Kafka Connect's Iceberg sink beside maintenance: its offsets in the table's history are found after rewrites and expiry."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_maint_tests.nightly.suites import PROJECT
from iceberg_maint_tests.qualification.platform.kafka_servers import Kafka, kafka_jars
from iceberg_maint_tests.qualification.platform.lake import (
    NONE,
    Lake,
    difference,
    expected,
    once,
    open_lake,
    wait_for,
)

_TABLE = "db.clicks"
_CONTROL, _NAME = "control-iceberg", "sink"
_OFFSETS = f"kafka.connect.offsets.{_CONTROL}.connect-{_NAME}"
_VALID_THROUGH = "kafka.connect.valid-through-ts"


def differences(folder: Path, _apart: Path) -> list[str]:
    """What differs from the expected."""
    jars = kafka_jars(PROJECT / ".cache" / "jars")
    with open_lake(folder) as lake:
        schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
        lake.catalog().create_table(_TABLE, schema)
        kafka = Kafka(folder, jars)
        try:
            return _Trial(lake, kafka).differences()
        except AssertionError:
            print(kafka.log("connect-0")[-3000:])
            raise
        finally:
            kafka.stop()


class _Trial:
    """One topic, one sink, one table."""

    def __init__(self, lake: Lake, kafka: Kafka) -> None:
        self._lake, self._kafka = lake, kafka
        self._sent, self._starts = 0, 0

    def differences(self) -> list[str]:
        lake = self._lake
        configs = [lake.config("columnar"), lake.config("native")]
        with self._sink(), self._sending(), lake.maintained(_TABLE, configs) as beside:
            wait_for(lambda: beside["replace"] >= 4, "four commits of maintenance beside Kafka Connect")
        written = self._sinks_commits()
        after_crash = self._crash_and_go_on(lake.config("columnar", keep=1))
        kept, retained = self._retained
        after_loss = self._without_state()
        print(
            f"  {self._sent} rows, {written} commits of the sink beside {dict(beside)}; {retained} snapshots held"
        )
        print(f"  with writer_state_max_age_seconds: 0: {after_loss}")
        return expected(
            {
                "rows after crash and expiry": (after_crash, NONE),
                # One with the newest offsets, and perhaps an older one with the newest time.
                "commits of the sink that expiry kept": (kept in (1, 2), True),
                "rows without the held state": (after_loss != NONE, True),
            }
        )

    def _without_state(self) -> str:
        """The same where the sink's state may expire. Files that are committed again may have been released."""
        config = self._lake.config("columnar", keep=1, more=", writer_state_max_age_seconds: 0")
        try:
            return self._crash_and_go_on(config)
        except duckdb.Error as error:
            return f"unreadable: {str(error)[:200]}"

    def _crash_and_go_on(self, config: Path) -> str:
        """Maintains the table while no worker runs. Restarts the worker as if it had been killed between its last commit and
        the commit of its control group's offsets: it reads all of the control topic again. Returns the difference of the rows."""
        self._lake.maintain(_TABLE, config)
        self._retained = self._sinks_commits(), len(self._lake.summaries(_TABLE))
        self._kafka.read_again(f"connect-{_NAME}-coord", _CONTROL)
        with self._sink():
            self._send(50)
        return difference(self._lake.ids(_TABLE), once(self._sent))

    @contextmanager
    def _sink(self) -> Iterator[None]:
        """A worker. At the end of the block, when all that was sent is in the table, it is killed."""
        settings = {
            "name": _NAME,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": 1,
            "topics": "clicks",
            "iceberg.tables": _TABLE,
            "iceberg.control.topic": _CONTROL,
            "iceberg.control.commit.interval-ms": 2000,
            # A killed worker holds up the next one for these times.
            "iceberg.kafka.transaction.timeout.ms": 6000,
            "iceberg.kafka.session.timeout.ms": 6000,
            "iceberg.kafka.heartbeat.interval.ms": 2000,
            "iceberg.catalog": "lake",
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "iceberg.catalog.uri": self._lake.jdbc,
            "iceberg.catalog.jdbc.schema-version": "V1",
            "iceberg.catalog.warehouse": f"file://{self._lake.folder}/warehouse",
        }
        worker = self._kafka.connect(self._starts, settings)
        self._starts += 1
        yield
        wait_for(lambda: len(self._lake.ids(_TABLE)) >= self._sent, "all rows by Kafka Connect", 120)
        # Another commit would bring rows a second time, if there are any.
        time.sleep(5)
        worker.kill()
        worker.wait()

    @contextmanager
    def _sending(self) -> Iterator[None]:
        end = threading.Event()

        def work() -> None:
            while not end.wait(0.5):
                self._send(10)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def _send(self, count: int) -> None:
        self._kafka.produce([{"id": i, "v": str(i % 7)} for i in range(self._sent, self._sent + count)])
        self._sent += count

    def _sinks_commits(self) -> int:
        """The number of retained commits with the sink's offsets. Raises AssertionError if offsets or the time through which
        the table is complete go back."""
        found = [s for s in self._lake.summaries(_TABLE) if _OFFSETS in s]
        offsets = [json.loads(s[_OFFSETS])["0"] for s in found]
        assert offsets == sorted(offsets, reverse=True), offsets
        times = [s[_VALID_THROUGH] for s in found if _VALID_THROUGH in s]
        assert times == sorted(times, reverse=True), times
        return len(found)
