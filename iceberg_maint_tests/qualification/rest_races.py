"""Races of an expiry with a tag in a REST catalog: what becomes of the tag and of its snapshot's files.

    python -m iceberg_maint_tests.qualification.rest_races RACES SEED

Each race runs the whole loop once. Another writer tags the snapshot that expires at a drawn time. A tag may be set
before the expiry, come too late, or be removed with its snapshot; in no case may a file of it move.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.rest import RestCatalog, rest_catalog
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

_NETWORK_SECONDS = 0.1
"""The longest time that a request takes to the server."""
KEPT, LATE, LOST = "tag kept", "tag too late", "tag lost"
FAULTS = ("file released", "loss not reported")


def races(workshop: Workshop, folder: Path, count: int, seed: int) -> Counter[str]:
    """Runs so many races and counts what became of tags and files."""
    drawn, results = random.Random(seed), Counter[str]()
    with _through_rest(workshop, folder) as (server, direct):
        server.before_update = lambda _body: time.sleep(drawn.random() * _NETWORK_SECONDS)
        name, seconds = "", 1.0
        for _ in range(count):
            if not name:
                name = _new_table(workshop)
            began = time.monotonic()
            result = _race(workshop, direct, name, drawn.random() * seconds)
            seconds = time.monotonic() - began
            results.update(result)
            if LOST in result:
                name = ""  # it waits for a person
    return results


def _race(workshop: Workshop, direct: Callable[[str], Any], name: str, delay: float) -> tuple[str, ...]:
    writers = workshop.writers
    table = direct(name)
    old, new = (
        int(s.snapshotId()) for s in workshop.bridge.iterate(_two_snapshots(workshop, table).snapshots())
    )
    assert old != new
    files = _files(workshop, table, old)
    tagged: list[bool] = []

    def tag() -> None:
        time.sleep(delay)
        try:
            direct(name).manageSnapshots().createTag("audited", old).commit()
            tagged.append(True)
        except JVM_ERRORS:
            tagged.append(False)

    thread = threading.Thread(target=tag)
    thread.start()
    outcome = Keeper(workshop).run(name, Operation.EXPIRE_SNAPSHOTS, days=1)
    thread.join()
    after = direct(name)
    kept = after.refs().containsKey("audited")
    state = KEPT if kept else LOST if tagged == [True] else LATE
    faults = []
    if state is not LATE and not all(file.exists() for file in files):
        faults.append(FAULTS[0])
    if state is LOST and outcome.reason is not Reason.REFS_LOST:
        faults.append(FAULTS[1])
    if kept:
        after.manageSnapshots().removeTag("audited").commit()
        Keeper(workshop).run(name, Operation.EXPIRE_SNAPSHOTS, days=1)
    assert len(writers.rows(name)) == 1
    return (state, *faults)


def _new_table(workshop: Workshop) -> str:
    name = workshop.new_name("races")
    table = workshop.writers.create(name)
    table.newAppend().appendFile(workshop.writers.data(table, [{"id": 0, "v": "x"}])).commit()
    return name


def _two_snapshots(workshop: Workshop, table: Any) -> Any:
    """Overwrites the one row, so that the old snapshot alone has the old file."""
    every = workshop.bridge.iceberg.expressions.Expressions.alwaysTrue()
    file = workshop.writers.data(table, [{"id": 0, "v": "x"}])
    table.newOverwrite().overwriteByRowFilter(every).addFile(file).commit()
    return table


def _files(workshop: Workshop, table: Any, snapshot_id: int) -> list[Path]:
    """The manifest list, the manifests and the live data files of a snapshot."""
    snapshot = table.snapshot(snapshot_id)
    paths = [str(snapshot.manifestListLocation())]
    paths += [str(m.path()) for m in workshop.bridge.iterate(snapshot.allManifests(table.io()))]
    paths += [str(file.location()) for file in workshop.writers.files(table, snapshot_id)]
    return [Path(path.removeprefix("file:")) for path in paths]


@contextmanager
def _through_rest(workshop: Workshop, folder: Path) -> Iterator[tuple[RestCatalog, Callable[[str], Any]]]:
    """The engine commits by REST; gives the server, and what loads a table without it."""
    direct = workshop.bridge.load_table
    with (
        rest_catalog(workshop.bridge, folder) as (server, load),
        patch.object(Bridge, "load_table", lambda _bridge, name: load(name)),
        patch.object(workshop.catalog, "checks_commit_base", False),
    ):
        yield server, direct


def main(count: str, seed: str) -> int:
    """Prints the counts. Returns 1 if a file was released or a loss not reported."""
    from iceberg_maint.wiring.adapters import load
    from iceberg_maint_tests.support.e2e.lake import make_lake

    with tempfile.TemporaryDirectory(prefix="rest-races-") as folder:
        spark = load(make_lake(Path(folder))).engine.spark.session()
        spark.sparkContext.setLogLevel("OFF")
        results = races(workshop_of(spark, Path(folder)), Path(folder), int(count), int(seed))
    print(dict(results))
    return int(any(results[fault] for fault in FAULTS))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
