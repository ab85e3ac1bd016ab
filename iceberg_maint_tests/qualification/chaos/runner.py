"""One run: starts everybody, looks on, kills our maintainers now and then, and says what came of it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import psutil
from sqlalchemy import create_engine, text

from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import DATA_OPERATIONS, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.wiring.adapters import build
from iceberg_maint_tests.qualification.chaos.history import GapError, change_faults, commit_faults
from iceberg_maint_tests.qualification.chaos.lake import COLUMNS, PROPERTIES, TABLES, ChaosTable, Place
from iceberg_maint_tests.qualification.chaos.maintainer import maintained
from iceberg_maint_tests.qualification.chaos.observer import Observer
from iceberg_maint_tests.qualification.chaos.processes import KILLS, MAINTAINERS, WRITERS, Run
from iceberg_maint_tests.qualification.chaos.result import result
from iceberg_maint_tests.qualification.surroundings.parts import Parts
from iceberg_maint_tests.qualification.surroundings.stores import CACHE, folder_or_s3
from iceberg_maint_tests.support import jvm
from iceberg_maint_tests.support.servers.postgres import free_port, postgres
from iceberg_maint_tests.support.spark.writers import Writers

_POLL_SECONDS = 2.0
_CHECK_SECONDS = 8.0
"""Time between two readings of rows, one table each."""
_KILL_SECONDS = 75.0
"""Mean time between two kills."""
_QUIET_SECONDS = 30.0
"""Nobody is killed in the last seconds of a run."""
_START_SECONDS = 240.0
_STOP_SECONDS = 60.0
_DRAIN_ROUNDS = 12
_WAITS = (Reason.LEASE_HELD, Reason.BACK_OFF, Reason.RECENTLY_CHANGED)


@contextmanager
def everybody(folder: Path, seed: int, store_name: str = "local") -> Iterator[tuple[Run, Observer]]:
    """Servers, tables in a folder or on S3, and an empty crew; ends every process that was started."""
    place = Place(folder)
    folder.mkdir(parents=True, exist_ok=True)
    parts = Parts(CACHE.absolute())
    run = Run(place, seed, random.Random(f"{seed} conductor"))
    with ExitStack() as stack:
        address = stack.enter_context(postgres())
        server = address.rpartition("/")[0]
        admin = create_engine(address, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            for name in ("catalog", "ledger", "rest"):
                connection.execute(text(f"CREATE DATABASE {name}"))
        admin.dispose()
        port = free_port()
        store = stack.enter_context(folder_or_s3(store_name, folder, CACHE))
        place.prepare(server, f"http://127.0.0.1:{port}", store, parts.jars("s3") if store.is_s3 else ())
        os.environ.update({**jvm.environment(), **store.secrets})
        stack.callback(_end, run)
        backend = (
            f"{server}/rest",
            f"{store.warehouse}/rest",
            *(f"{k}={v}" for k, v in store.resolved().items()),
        )
        run.start("rest", "rest_catalog", str(place.config), str(port), *backend)
        config = load_config(place.config, os.environ)
        context = build(config)
        writers = Writers(Bridge(context.engine.spark.session()))
        _wait(lambda: _answers(port), "the REST catalog")
        for table in TABLES:
            writers.create(str(table), COLUMNS, version=table.version, properties=PROPERTIES)
        yield run, Observer(config, context, store)


def conduct(folder: Path, seconds: float, seed: int, store_name: str = "local") -> dict[str, Any]:
    """The result of one run, as one JSON row."""
    with everybody(folder, seed, store_name) as (run, observer):
        # The appender first: the others delete what it appended.
        for role in WRITERS:
            run.start(role, role, str(run.place.folder), str(seed))
        for name in MAINTAINERS:
            run.start(name, "maintainer", str(run.place.folder), str(seed), name)
        crew = (*WRITERS, *MAINTAINERS)
        _wait(lambda: all(_is_ready(run.place.journal(name)) for name in crew), "the crew")
        began = time.time()
        _go_on(run, observer, time.monotonic() + seconds)
        _stop(run, observer, WRITERS)
        ended = time.time()
        _stop(run, observer, MAINTAINERS)
        _check_history(run, observer)
        heads = _check_all(run, observer)
        rounds = _drain(observer)
        heads += _check_all(run, observer)
        _check_history(run, observer)
        run.count_cpu()
        return {"store": store_name, **result(run, observer, began, ended, rounds)}


def _go_on(run: Run, observer: Observer, until: float) -> None:
    next_check = next_kill = time.monotonic()
    next_kill += run.rng.expovariate(1 / _KILL_SECONDS)
    turn = 0
    while (now := time.monotonic()) < until:
        _poll(run, observer, TABLES[turn % len(TABLES)])
        for name, member in list(run.members.items()):
            if member.process.poll() is None:
                continue
            if name not in MAINTAINERS:
                run.faults.append(f"{name} ended with {member.process.returncode}")
                return
            run.again(name)
        if now >= next_check:
            table = TABLES[turn % len(TABLES)]
            _check(run, observer, table)
            turn, next_check = turn + 1, time.monotonic() + _CHECK_SECONDS
            run.count_cpu()
        if now >= next_kill and now < until - _QUIET_SECONDS:
            name = run.rng.choice(MAINTAINERS)
            # One that has only just started has nothing to lose.
            if (
                now - run.members[name].started > _START_SECONDS / 8
                and run.members[name].process.poll() is None
            ):
                run.kill(name, run.rng.choice(KILLS))
                next_kill = now + run.rng.expovariate(1 / _KILL_SECONDS)
        time.sleep(_POLL_SECONDS)


def _poll(run: Run, observer: Observer, aged: ChaosTable | None = None) -> None:
    """Looks at every table and makes the files of `aged` look old. One look may fail; a snapshot that no
    look has seen is a gap in the end."""
    for table in TABLES:
        try:
            observer.poll(table)
            if table is aged:
                observer.age(table)
        except Exception as why:  # noqa: BLE001 - told with the result
            run.missed.append(f"{table}: {type(why).__name__}: {str(why)[:200]}")


def _check(run: Run, observer: Observer, table: ChaosTable, snapshot_id: int | None = None) -> None:
    """Reads the rows of one snapshot, the newest unless it is named."""
    head = snapshot_id or observer.histories[table].head
    if head is None:
        return
    try:
        found = observer.check(table, run.attempts(), head)
    except GapError as gap:
        run.faults.append(f"{table}: {gap}")
        return
    except Exception as why:  # noqa: BLE001 - a reader that is hurt is a finding, and the run goes on
        run.faults.append(f"{table}: snapshot {head} cannot be read: {type(why).__name__}: {str(why)[:300]}")
        return
    run.checked += 1
    run.lost += len(found.lost)
    run.back += len(found.back)
    if not found.equal:
        run.faults.append(
            f"{table}: snapshot {head}: {len(found.lost)} rows lost {found.lost[:5]}, "
            f"{len(found.back)} that must not be there {found.back[:5]}"
        )


def _check_all(run: Run, observer: Observer) -> int:
    """Reads every retained snapshot, at most the newest 30 of each table."""
    count = 0
    for table in TABLES:
        retained = observer.load(table).metadata.snapshots
        for snapshot in sorted(retained, key=lambda s: s.timestamp_ms)[-30:]:
            _check(run, observer, table, snapshot.snapshot_id)
            count += 1
    return count


def _check_history(run: Run, observer: Observer) -> None:
    attempts = run.attempts().values()
    for table, history in observer.histories.items():
        mine = [a for a in attempts if a.table == str(table)]
        loaded = observer.load(table)
        tags = {name: ref.snapshot_id for name, ref in loaded.metadata.refs.items()}
        columns = {f.field_id: f.name for f in loaded.schema().as_struct().fields}
        try:
            found = commit_faults(history, mine) + change_faults(mine, tags, columns)
        except GapError as gap:
            found = [str(gap)]
        run.faults += [f"{table}: {fault}" for fault in found]


def _drain(observer: Observer) -> int | None:
    """Maintains every table until nothing is due; the number of rounds, None where there is no end to it."""
    for number in range(1, _DRAIN_ROUNDS + 1):
        busy = False
        for table in TABLES:
            outcomes = maintained(observer.context, TableId.parse(str(table)), f"end-{uuid4().hex[:12]}")
            busy |= any(
                o.operation in DATA_OPERATIONS and (o.batches or o.reason in _WAITS) for o in outcomes
            )
            # The next round may expire what this one has committed.
            observer.poll(table)
        if not busy:
            return number
        time.sleep(5)
    return None


def _stop(run: Run, observer: Observer, names: Sequence[str]) -> None:
    """Ends these members, and looks at every table meanwhile and afterwards: the others still commit and expire."""
    processes = [run.members[name].process for name in names]
    for process in processes:
        process.terminate()
    until = time.monotonic() + _STOP_SECONDS
    while any(p.poll() is None for p in processes) and time.monotonic() < until:
        _poll(run, observer)
        time.sleep(_POLL_SECONDS)
    for table in TABLES:
        observer.poll(table)


def _end(run: Run) -> None:
    members = [process for m in run.members.values() for process in reversed(m.processes())]
    for process in (*members, *run.orphans):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for member in run.members.values():
        member.process.wait()


def _is_ready(journal: Path) -> bool:
    return journal.exists() and journal.stat().st_size > 0


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/v1/config", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _wait(done: Any, what: str) -> None:
    until = time.monotonic() + _START_SECONDS
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not start within {_START_SECONDS:.0f} s")
        time.sleep(0.5)
