"""Kills Dagster's daemon, code server, run workers and their JVMs at moments drawn by a seed, and asks what is left.

    python -m iceberg_maint_tests.qualification.daemon_kills [--kills 20] [--seed 1] [--folder PATH] [--storage postgres]

Real tables are written to and maintained by the real definitions under automation, with Dagster's
SQLite storage, or with Dagster's storage and the ledger on PostgreSQL, two runs at once and failed steps retried, as in an
instance that existed before. At the end no batch is in a table twice, no row and no commit of a writer is lost, no
lease, pool slot or attempt is left behind, and every table is healed.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
import yaml

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.qualification.daemon_kills.daemon import Daemon, Victim
from iceberg_maint_tests.qualification.daemon_kills.lake import TABLES, Lake
from iceberg_maint_tests.qualification.daemon_kills.moments import Moment, since_now
from iceberg_maint_tests.support import jvm
from iceberg_maint_tests.support.servers.postgres import postgres_server

NAMES = IcebergTranslator()

VICTIMS = (
    *[Victim.DAEMON] * 7,
    *[Victim.WORKER] * 5,
    *[Victim.CODE_SERVER] * 4,
    *[Victim.ALL] * 3,
    Victim.JVM,
)
_MOMENT_SECONDS = 60
"""A moment that does not come is not waited for longer."""
_HEALED_SECONDS = 600
_LEFT_BEHIND_SECONDS = 300


class World:
    """A lake, a Dagster instance and its daemon in one folder. `more` is YAML for the lake's configuration. With the
    address of a PostgreSQL server, the instance is one that existed before."""

    def __init__(self, folder: Path, more: str = "", postgres: str | None = None) -> None:
        home = folder / "home"
        for path in (folder / "wh", home):
            path.mkdir(parents=True)
        self.lake = Lake(folder, more)
        self.ledger_url = postgres or f"sqlite:///{folder}/ledger.db"
        config = self.lake.config.read_text("utf-8")
        self.lake.config.write_text(config.replace(f"sqlite:///{folder}/ledger.db", self.ledger_url), "utf-8")
        settings = yaml.safe_load((PROJECT / "dagster.yaml").read_text("utf-8"))
        # What is noticed in half a minute in production is noticed at once: a run is to take minutes.
        settings["run_monitoring"] |= {"poll_interval_seconds": 2, "free_slots_after_run_end_seconds": 5}
        settings["run_queue"] = {"dequeue_interval_seconds": 1}
        if postgres is not None:
            settings["storage"] = {"postgres": {"postgres_url": postgres}}
            settings["run_retries"] = {"enabled": True, "max_retries": 3}  # Dagster also retries failed steps
            runs = settings["concurrency"]["runs"]
            runs["max_concurrent_runs"] = runs["tag_concurrency_limits"][0]["limit"] = 2
        (home / "dagster.yaml").write_text(yaml.safe_dump(settings), "utf-8")
        # First, because Dagster's processes must not make its database at the same time.
        self.instance = dg.DagsterInstance.from_config(str(home))
        environ = {"ICEBERG_MAINT_CONFIG": str(self.lake.config), **jvm.environment()}
        self.daemon = Daemon(home, environ)
        self.killed: Counter[Victim] = Counter()
        self.moments: Counter[Moment] = Counter()

    def wait(self, done: Callable[[], bool], seconds: float, every_seconds: float = 2.0) -> bool:
        """Whether it came true in time; the daemon is looked after meanwhile."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                return False
            self.daemon.supervise()
            time.sleep(every_seconds)
        return True

    def kill_once(self, victim: Victim, moment: Moment, pause_seconds: float, grow: list[str]) -> str:
        """Kills at the moment, or a minute later; what was killed (all where there was no such process) and when."""
        come = since_now(moment, self.ledger_url, self.instance)
        for name in grow:
            for _ in range(3):
                self.lake.append(name)
        if not self.wait(come, _MOMENT_SECONDS, every_seconds=0.1):
            moment = Moment.ANY
        time.sleep(pause_seconds)
        if not self.daemon.kill(victim):
            victim = Victim.ALL
            self.daemon.kill(victim)
        self.killed[victim] += 1
        self.moments[moment] += 1
        return f"{victim} killed: {moment}"

    def left_behind(self) -> list[str]:
        """Leases, pool slots, runs and attempts that nobody has any more."""
        found = []
        ledger = sql_ledger(self.ledger_url)
        storage = self.instance.event_log_storage
        for name in TABLES:
            table = TableId.parse(f"lake.{name}")
            uuid = str(self.lake.table(name).metadata.table_uuid)
            found += [f"{name}: attempt {a.attempt_id} is open" for a in ledger.work.open_attempts(uuid)]
            pool = storage.get_concurrency_info(NAMES.get_pool(table))
            if pool.active_slot_count or pool.pending_step_count:
                found.append(f"{name}: its pool has {pool.active_slot_count} slots taken")
        found += [
            f"run {r.run_id} is {r.status.value}"
            for r in self.instance.get_runs()
            if not r.is_finished and r.asset_selection
        ]
        return found

    def leases(self) -> list[str]:
        """Tables whose lease somebody holds."""
        ledger = sql_ledger(self.ledger_url)
        return [name for name in TABLES if _owner(ledger, str(self.lake.table(name).metadata.table_uuid))]


def _owner(ledger: Ledger, table_uuid: str) -> str | None:
    return ledger.health.history(table_uuid, "", Operation.REWRITE_DATA_FILES).lease_owner


def run(kills: int, seed: int, folder: Path, postgres: str | None = None) -> list[str]:
    """What is wrong in the end."""
    draw = random.Random(seed)
    began = time.monotonic()
    world = World(folder, postgres=postgres)
    world.daemon.start()
    victims = [VICTIMS[n * len(VICTIMS) // kills] for n in range(kills)]  # few kills are of all kinds
    draw.shuffle(victims)
    try:
        for number, victim in enumerate(victims, 1):
            moment = draw.choice(list(Moment))
            pause_seconds = draw.uniform(0, 20 if moment is Moment.ANY else 1)
            grow = draw.sample(TABLES, 2)
            done = world.kill_once(victim, moment, pause_seconds, grow)
            print(f"{time.monotonic() - began:6.0f} s  {number:2}  {done}", flush=True)
        faults = _in_the_end(world)
        runs = Counter(r.status.value for r in world.instance.get_runs() if r.asset_selection)
    finally:
        world.daemon.kill(Victim.ALL)
        world.instance.dispose()
        world.lake.catalog.close()
    told = {str(k): n for k, n in (world.killed + world.moments).items()}
    print(f"killed: {told}; daemons started: {world.daemon.starts}; runs: {dict(runs)}", flush=True)
    return faults


def _in_the_end(world: World) -> list[str]:
    lake = world.lake
    healed = world.wait(lambda: all(map(lake.is_healed, TABLES)), _HEALED_SECONDS)
    faults = [] if healed else [f"{name} is not healed" for name in TABLES if not lake.is_healed(name)]
    left: list[str] = []

    def nothing_is_left() -> bool:
        left[:] = world.left_behind() + [f"{name}: its lease is held" for name in world.leases()]
        return not left

    if not world.wait(nothing_is_left, _LEFT_BEHIND_SECONDS):
        faults += left
    for name in TABLES:
        faults += lake.faults(name)
    batches = [lake.batches(name) for name in TABLES]
    print(f"appends: {sum(map(len, lake.appends.values()))}; batches: {sum(map(len, batches))}", flush=True)
    return faults


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--storage", choices=("sqlite", "postgres"), default="sqlite")
    options.add_argument("--folder", type=Path, help="a new folder, kept; without it a temporary one")
    given = options.parse_args()
    # Whoever ends this by a time limit is left no daemon.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before its end"))
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        postgres = stack.enter_context(postgres_server()).url if given.storage == "postgres" else None
        faults = run(given.kills, given.seed, given.folder or Path(temporary), postgres)
    print("\n".join(faults) or f"{given.kills} kills (seed {given.seed}): no fault")
    return min(len(faults), 1)


if __name__ == "__main__":
    sys.exit(main())
