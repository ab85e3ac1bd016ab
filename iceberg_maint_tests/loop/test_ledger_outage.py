"""The PostgreSQL ledger is lost in the middle of a run and comes back; two workers are processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint_tests.support.loop.world import World
from iceberg_maint_tests.support.servers.postgres import PostgresServer, postgres_server

pytestmark = pytest.mark.postgres

WORKER = """
import sys
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
ledger = sql_ledger(sys.argv[1])
lease = ledger.leases.acquire("uuid", "lake.db.t", sys.argv[2], 60, 0)
print("ready", lease is not None, flush=True)
sys.stdin.readline()
print(ledger.registry.installation(), flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


def world_on(server: PostgresServer, database: str) -> World:
    admin = create_engine(server.url, isolation_level="AUTOCOMMIT")
    with admin.connect() as conn:
        conn.execute(text(f"CREATE DATABASE {database}"))
    admin.dispose()
    world = World()
    world.ledger = sql_ledger(server.url.rpartition("/")[0] + f"/{database}")
    return world


@pytest.mark.parametrize("step", ["write", "commit"])
def test_lost_ledger_ends_the_run_with_its_code_and_the_next_run_goes_on(
    server: PostgresServer, step: str
) -> None:
    world = world_on(server, f"lost_before_{step}")
    rows = world.rows()
    stops = iter([server.stop])

    def lose(_batch: Batch) -> None:
        for stop in stops:
            stop()

    setattr(world, f"before_{step}", lose)
    try:
        with pytest.raises(IcebergMaintError, match="ICM-128") as lost:
            world.run()
    finally:
        server.start()
    assert lost.value.exit_code == 1
    assert (world.our_commits(), world.rows()) == (0, rows)
    world.expire_leases()
    outcome = world.run()
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert [len(world.files(p)) for p in ("p=a", "p=b")] == [1, 1]
    assert (world.our_commits(), world.rows(), world.open_work()) == (2, rows, (0, 0))


def test_two_workers_in_homes_of_their_own_share_one_ledger(server: PostgresServer, tmp_path: Path) -> None:
    workers = []
    for name in ("one", "two"):
        (home := tmp_path / name).mkdir()
        workers.append(
            subprocess.Popen(
                [sys.executable, "-c", WORKER, server.url, name],
                cwd=home,
                env={**os.environ, "HOME": str(home)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    leases = [worker.stdout.readline().split()[1] for worker in workers if worker.stdout]
    installations = {worker.communicate("go\n")[0].strip() for worker in workers}
    assert sorted(leases) == ["False", "True"]
    assert len(installations) == 1
