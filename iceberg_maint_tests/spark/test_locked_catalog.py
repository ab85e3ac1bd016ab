"""A SQLite catalog in rollback-journal mode that another process locks."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.catalog import sql_listing
from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.workshop import Workshop

pytestmark = pytest.mark.spark
_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@dataclass
class Holder:
    """Another process that holds an exclusive transaction between `lock` and `free`."""

    file: Path
    process: Any = field(default=None)

    def lock(self, *_: object) -> None:
        if self.process is None:
            command = [sys.executable, "-c", _HOLD, str(self.file)]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self.process.stdout.readline() == b"locked\n"

    def free(self) -> None:
        if self.process is not None:
            self.process.communicate()
            self.process = None


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    folder = tmp_path_factory.mktemp("locks")
    for row in spark.sql("SET").collect():
        if re.match(r"spark\.sql\.catalog\.lake(\.|$)", row["key"]):
            key = row["key"].replace(".lake", ".locks", 1)
            uri = f"jdbc:sqlite:{folder}/locks.db?journal_mode=DELETE&busy_timeout=100"
            spark.conf.set(key, uri if key.endswith(".uri") else row["value"])
    spark.sql("create namespace locks.db")
    catalog = PyIcebergCatalog(
        "locks", {"type": "sql", "uri": f"sqlite:///{folder}/locks.db", "warehouse": lake_dir.as_uri()}
    )
    return Workshop(spark, catalog)


@pytest.fixture
def holder(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holder]:
    monkeypatch.setattr(sql_listing, "_BUSY_TIMEOUT_SECONDS", 0.1)
    uri = workshop.spark.conf.get("spark.sql.catalog.locks.uri")
    assert uri is not None
    holder = Holder(Path(uri.removeprefix("jdbc:sqlite:").partition("?")[0]))
    yield holder
    holder.free()


class _AtSwap(Keeper):
    """The holder locks when the commit has passed the gate."""

    def context(self, name: str, days: float) -> Any:
        context = super().context(name, days)
        engine, lock = context.engine(), self.before_commit
        commit = engine.commit

        def locked(batch: Any, written: Any, context: Any) -> Any:
            def record(base: Any, location: Any) -> None:
                context.record_try(base, location)
                lock(batch)

            return commit(batch, written, replace(context, record_try=record))

        engine._before, engine.commit = (lambda _batch: None), locked
        return context


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        (Keeper, Operation.REWRITE_DATA_FILES),
        (_AtSwap, Operation.REWRITE_DATA_FILES),
        (Keeper, Operation.EXPIRE_SNAPSHOTS),
        (_AtSwap, Operation.EXPIRE_SNAPSHOTS),
        (Keeper, Operation.REMOVE_ORPHAN_FILES),
    ],
)
def test_lock_of_another_process_is_coded_and_counts_against_nothing(
    workshop: Workshop, holder: Holder, kind: Callable[..., Keeper], operation: Operation
) -> None:
    name = workshop.new_name("db").replace("lake.", "locks.", 1)
    workshop.sql(f"create table {name} (id int) using iceberg")
    for number in range(6):
        workshop.sql(f"insert into {name} values ({number})")
    with sqlite3.connect(holder.file) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    keeper = kind(workshop, before_commit=holder.lock)
    if operation is Operation.REMOVE_ORPHAN_FILES:
        keeper.store_now_ms = holder.lock

    if kind is _AtSwap:
        with pytest.raises(IcebergMaintError, match=r"^ICM-104 .*: database is locked\. "):
            keeper.run(name, operation)
    else:
        (batch,) = keeper.run(name, operation).batches
        assert (batch.outcome, batch.reason) == (OutcomeStatus.FAILED, Reason.ENVIRONMENT)
        assert re.match(r"ICM-(104|133) .*database is locked", batch.message)
    holder.free()

    uuid = keeper.state(name).uuid
    (history,) = keeper.ledger.health.history(uuid, name, operation).partitions.values()
    # The attempt at the swap is open until the next run settles it.
    assert (history.ineffective, history.crashes, history.quarantined) == (0, int(kind is _AtSwap), False)
    after = Keeper(workshop, ledger=keeper.ledger).run(name, operation)
    no_orphans = operation is Operation.REMOVE_ORPHAN_FILES
    assert after.outcome is (OutcomeStatus.NO_OP if no_orphans else OutcomeStatus.IMPROVED)
    assert set(keeper.ledger.health.history(uuid, name, operation).partitions.values()) <= {
        PartitionHistory()
    }
    assert [r.id for r in workshop.sql(f"select id from {name} order by id").collect()] == list(range(6))
