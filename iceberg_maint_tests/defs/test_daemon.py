"""The real thing: `dagster dev` on real tables heals them by itself, and through crashes, backfills and Terminate."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import BATCH_PROPERTY
from iceberg_maint.defs.names import FORCE_TAG, IN_TICK_TAG
from iceberg_maint.defs.runs.examined import EXAMINED
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.support.defs import quick_dagster
from iceberg_maint_tests.support.e2e.lake import catalog_of, iceberg_maint, make_lake
from iceberg_maint_tests.support.servers.postgres import free_port

NAMES = IcebergTranslator()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.in_order,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:Using variable_values:DeprecationWarning"),  # dagster's client of gql
    pytest.mark.together("daemons"),
    pytest.mark.long(300),
]

DAYS = ("d1", "d2", "d3")
TABLES = """\
  # Only one run is under way at a time: none for what these tests do not ask about.
  remove_orphan_files: {enabled: false}
tables:
  lake.db.calm: {rewrite_data_files: {min_input_files: 100}}
  lake.db.late: {rewrite_data_files: {min_input_files: 100}}
  lake.db.stopped: {rewrite_data_files: {min_input_files: 100}}
"""
BACKFILL = """
mutation Backfill($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""


def _make_table(catalog: SqlCatalog, name: str, commits: int = 6) -> Table:
    """Three partitions with one small file of each commit."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    table = catalog.create_table(f"db.{name}", schema, partition_spec=spec)
    _append(table, commits)
    return table


def _append(table: Table, commits: int) -> None:
    """One small file in each partition per commit."""
    for number in range(commits):
        table.append(
            pa.table(
                {
                    "id": pa.array(range(number * 30, number * 30 + 30)),
                    "day": [d for d in DAYS for _ in range(10)],
                }
            )
        )


def rows(table: Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in table.scan().to_arrow().to_pylist())


@dataclass
class Daemon:
    """A running `dagster dev` and ways to look at it."""

    folder: Path
    environ: dict[str, str]
    process: subprocess.Popen[bytes]
    port: int
    instance: dg.DagsterInstance
    catalog: SqlCatalog
    ledger: Ledger

    def wait(self, what: str, done: Callable[[], Any], seconds: float = 240) -> Any:
        """Asks twice a second; fails with the daemon's last lines."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            if found := done():
                return found
            time.sleep(0.5)
        log = (self.folder / "daemon.log").read_text("utf-8", "replace")
        runs = [(r.run_id[:8], r.job_name, r.status.value, dict(r.tags)) for r in self.instance.get_runs()]
        raise AssertionError(f"not within {seconds} s: {what}\n{runs}\n{log[-8000:]}")

    def table(self, name: str) -> Table:
        return self.catalog.load_table(f"db.{name}")

    def materialized(self, name: str) -> set[str]:
        """The partitions that runs materialized; observations materialize healthy ones as examined."""
        key = NAMES.get_asset_key(TableId.parse(f"lake.db.{name}"))
        events = self.instance.fetch_materializations(key, limit=500).records
        found = [r.asset_materialization for r in events]
        return {m.partition for m in found if m and m.partition and m.description != EXAMINED}

    def maintenance_runs(self, name: str) -> list[dg.DagsterRun]:
        """Oldest first."""
        key = NAMES.get_asset_key(TableId.parse(f"lake.db.{name}"))
        return [r for r in reversed(self.instance.get_runs()) if key in (r.asset_selection or ())]

    def batch_commits(self, name: str) -> Counter[str]:
        """How often each batch is in the table's history."""
        snapshots = self.table(name).metadata.snapshots
        summaries = [s.summary.additional_properties for s in snapshots if s.summary]
        return Counter(s[BATCH_PROPERTY] for s in summaries if BATCH_PROPERTY in s)

    def expire_dead_leases(self, name: str) -> None:
        """Saves the time until a dead worker's lease runs out by itself."""
        for run in self.maintenance_runs(name):
            if run.status is dg.DagsterRunStatus.FAILURE:
                with self.ledger_file() as ledger:
                    ledger.execute("UPDATE icm_lease SET expires_ms = 0 WHERE owner = ?", [run.run_id])

    @contextlib.contextmanager
    def ledger_file(self) -> Iterator[sqlite3.Connection]:
        with (
            contextlib.closing(sqlite3.connect(self.folder / "ledger.db", timeout=30)) as connection,
            connection,
        ):
            yield connection

    def evaluations(self, name: str, check: str) -> dict[str | None, dg.AssetCheckEvaluation]:
        """The latest evaluation of a check of a table, by partition."""
        key = NAMES.get_check_key(TableId.parse(f"lake.db.{name}"), check)
        records = self.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
        found: dict[str | None, dg.AssetCheckEvaluation] = {}
        for record in records:  # newest first
            if isinstance(record.evaluation, dg.AssetCheckEvaluation):
                found.setdefault(record.partition, record.evaluation)
        return found

    def client(self) -> Any:
        from dagster_graphql import DagsterGraphQLClient

        return DagsterGraphQLClient("127.0.0.1", port_number=self.port)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, jars: list[Path]) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("daemon")
    for name in ("wh", "home", "crash"):
        (folder / name).mkdir()
    config = make_lake(folder, cores=1, more=TABLES)
    catalog = catalog_of(folder)
    for name in ("calm", "stopped"):
        _make_table(catalog, name)
    for name in ("sick", "ended"):
        _make_table(catalog, name, commits=1)
    # The command line has measured all tables before Dagster sees them.
    assert iceberg_maint(["tables"], config).returncode == 0
    settings = yaml.safe_load((PROJECT / "dagster.yaml").read_text("utf-8"))
    settings["run_monitoring"]["poll_interval_seconds"] = 2
    settings["run_queue"] = {"dequeue_interval_seconds": 1}
    (folder / "home" / "dagster.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    # First, because Dagster's processes must not make its database at the same time.
    instance = dg.DagsterInstance.from_config(str(folder / "home"))
    ledger = sql_ledger(f"sqlite:///{folder}/ledger.db")
    # Last: until Dagster takes it, anybody may.
    port = free_port()
    environ = {
        **os.environ,
        "DAGSTER_HOME": str(folder / "home"),
        "ICEBERG_MAINT_CONFIG": str(config),
        "CRASH_DIR": str(folder / "crash"),
        "ICEBERG_MAINT_DAGSTER_URL": f"http://127.0.0.1:{port}",
        "PYTHONPATH": str(PROJECT),
    }
    command = [*quick_dagster.command("dev"), "-m", "iceberg_maint_tests.support.defs.crashing"]
    with (folder / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            env=environ, cwd=folder, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield Daemon(folder, environ, process, port, instance, catalog, ledger)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # asked kindly it takes half a minute
        process.wait()
        instance.dispose()
        catalog.close()


def test_backfill_of_two_separate_partitions_touches_exactly_these_and_ends_green(daemon: Daemon) -> None:
    # For the last test: a table that is made while the daemon runs.
    daemon.wait("code location loaded", (daemon.folder / ".iceberg_maint" / "tables.json").exists)
    _make_table(daemon.catalog, "late")
    daemon.wait("calm observed", lambda: daemon.instance.get_dynamic_partitions("iceberg/lake.db.calm"))
    answer = daemon.client()._execute(
        BACKFILL,
        {
            "params": {
                "assetSelection": [{"path": ["lake", "db", "calm"]}],
                "partitionNames": ["day=d1", "day=d3"],
            }
        },
    )["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    backfill_id = answer["backfillId"]

    def finished() -> Any:
        backfill = daemon.instance.get_backfill(backfill_id)
        return backfill if backfill is not None and backfill.status.value.startswith("COMPLETED") else None

    assert daemon.wait("backfill finished", finished).status.value == "COMPLETED_SUCCESS"
    assert daemon.materialized("calm") == {"day=d1", "day=d3"}
    assert daemon.batch_commits("calm") == Counter()


def killed(runs: list[dg.DagsterRun]) -> set[str]:
    return {r.run_id for r in runs if r.status is dg.DagsterRunStatus.FAILURE}


def _backfill_ended(daemon: Daemon, run: dg.DagsterRun) -> bool:
    """Dagster retries no run of an ended backfill; the automation ends it if it is quicker than the retry."""
    backfill = daemon.instance.get_backfill(run.tags.get("dagster/backfill", ""))
    return backfill is not None and backfill.status.value.startswith("COMPLETED")


@pytest.mark.variant  # `make qualify SUITE=daemon-kills` kills more
def test_killed_workers_are_retried_and_no_batch_is_done_twice(daemon: Daemon) -> None:
    daemon.wait("sick observed", lambda: daemon.instance.get_dynamic_partitions("iceberg/lake.db.sick"))
    for point in ("between_batches", "inside_batch"):
        (daemon.folder / "crash" / f"lake.db.sick {point}").touch()
    _append(daemon.table("sick"), 5)
    before = rows(daemon.table("sick"))

    def healed() -> list[dg.DagsterRun] | None:
        daemon.expire_dead_leases("sick")
        runs = daemon.maintenance_runs("sick")
        done = daemon.materialized("sick") == {f"day={d}" for d in DAYS}
        parents = {r.parent_run_id for r in runs}
        settled = all(
            r.run_id in parents or _backfill_ended(daemon, r) for r in runs if r.run_id in killed(runs)
        )
        return runs if done and settled and all(r.is_finished for r in runs) else None

    runs = daemon.wait("healed by automation, through two crashes", healed, seconds=500)
    assert not list((daemon.folder / "crash").glob("lake.db.sick*"))
    # Between a worker's death and its retry the automation may have asked once more by itself.
    assert len(killed(runs)) == 2
    assert {r.status.value for r in runs if r.run_id not in killed(runs)} == {"SUCCESS"}
    assert list(daemon.batch_commits("sick").values()) == [1, 1, 1]
    table = daemon.table("sick")
    assert rows(table) == before
    assert len(table.inspect.files()) == len(DAYS)


@pytest.mark.variant
@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--partition", "day=d2", {"day=d2"}),
        ("--partition-range", "day=d2...day=d3", {"day=d2", "day=d3"}),
    ],
)
def test_command_line_of_dagster_touches_exactly_what_it_names(
    daemon: Daemon, option: str, value: str, expected: set[str]
) -> None:
    daemon.wait("calm observed", lambda: daemon.instance.get_dynamic_partitions("iceberg/lake.db.calm"))
    known = {run.run_id for run in daemon.instance.get_runs()}
    subprocess.run(
        [
            str(Path(sys.executable).parent / "dagster"), "asset", "materialize",
            "-m", "iceberg_maint.definitions", "--select", 'key:"lake/db/calm"', option, value,
        ],
        env=daemon.environ, cwd=daemon.folder, check=True, capture_output=True,
    )  # fmt: skip
    key = NAMES.get_asset_key(TableId.parse("lake.db.calm"))
    # The daemon launches runs at the same time. They have the origin of its code location, and those in a tick a tag.
    new = [r for r in daemon.instance.get_runs() if r.run_id not in known and r.remote_job_origin is None]
    [run] = [r for r in new if IN_TICK_TAG not in r.tags]
    events = daemon.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert {e.dagster_event.partition for e in events} == expected
    assert {e.dagster_event.asset_key for e in events} == {key}


@pytest.mark.variant  # the run is a person's; the next test terminates one of the automation
def test_terminate_is_final_and_hands_the_work_back(daemon: Daemon) -> None:
    table = TableId.parse("lake.db.stopped")
    before = rows(daemon.table("stopped"))
    daemon.wait("stopped observed", lambda: daemon.ledger.health.get(table))
    (daemon.folder / "crash" / f"{table} wait").touch()
    run_id = daemon.client().submit_job_execution(
        "__ASSET_JOB",
        repository_location_name="iceberg_maint_tests.support.defs.crashing",
        repository_name="__repository__",
        tags={"dagster/partition": "day=d1", FORCE_TAG: "true"},
        asset_selection=[list(table.parts)],
    )
    daemon.wait("worker waiting", (daemon.folder / "crash" / "waiting").exists)
    daemon.client().terminate_run(run_id)

    def ended() -> Any:
        at = daemon.instance.get_run_by_id(run_id)
        return at if at is not None and at.is_finished else None

    assert daemon.wait("run ended", ended).status is dg.DagsterRunStatus.CANCELED
    assert daemon.instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY) == []
    uuid = str(daemon.table("stopped").metadata.table_uuid)
    history = daemon.ledger.health.history(uuid, str(table), Operation.REWRITE_DATA_FILES)
    assert history.lease_owner is None
    assert history.of("day=d1") == PartitionHistory()
    assert daemon.ledger.work.open_attempts(uuid) == ()
    assert len(daemon.ledger.work.open_batches(uuid, Operation.REWRITE_DATA_FILES)) == 1
    assert rows(daemon.table("stopped")) == before


def test_terminated_run_of_due_partitions_is_resumed_by_the_automation(daemon: Daemon) -> None:
    """The run is one of the automation's. A person terminates it in its first batch."""
    daemon.wait("ended observed", lambda: daemon.instance.get_dynamic_partitions("iceberg/lake.db.ended"))
    (daemon.folder / "crash" / "waiting").unlink(missing_ok=True)
    (daemon.folder / "crash" / "lake.db.ended wait").touch()
    _append(daemon.table("ended"), 5)
    daemon.wait("worker waiting", (daemon.folder / "crash" / "waiting").exists)
    [first] = daemon.maintenance_runs("ended")
    daemon.client().terminate_run(first.run_id)

    def ended() -> Any:
        at = daemon.instance.get_run_by_id(first.run_id)
        return at if at is not None and at.is_finished else None

    assert daemon.wait("run ended", ended).status is dg.DagsterRunStatus.CANCELED
    [failure] = daemon.instance.all_logs(first.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    error = failure.dagster_event.step_failure_data.error
    assert error.message.strip().endswith(
        "lake.db.ended: stopped in order: 0 of 3 partitions done, the rest resumes"
    )
    assert error.cause is None
    shown = {e.partition: e.passed for e in daemon.evaluations("ended", "small_files").values()}
    assert shown == dict.fromkeys((f"day={d}" for d in DAYS), False)
    [record] = daemon.ledger.records.newest("lake.db.ended", 10)
    assert (record.run_id, record.outcome.reason) == (first.run_id, Reason.TERMINATED)

    def healed() -> bool:
        return daemon.materialized("ended") == {f"day={d}" for d in DAYS}

    daemon.wait("resumed by the automation", healed)
    assert list(daemon.batch_commits("ended").values()) == [1, 1, 1]


def test_new_table_becomes_an_asset_by_itself(daemon: Daemon) -> None:
    """Only a table of the loaded definitions is observed."""
    name = "iceberg/lake.db.late"
    keys = daemon.wait("late observed", lambda: daemon.instance.get_dynamic_partitions(name))
    assert keys == [f"day={d}" for d in DAYS]
