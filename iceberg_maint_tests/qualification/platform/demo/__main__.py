"""Ten minutes of a project with the component, under `dagster dev`: `make demo DEMO=platform`.

A schedule loads small files into two tables by PyIceberg 0.11; dbt reads one of them; the component maintains both in
another environment. Asserts what `verdict` reads from Dagster, and that Terminate reaches the process elsewhere.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import psutil

from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.qualification.platform.demo.day import simulated_day
from iceberg_maint_tests.qualification.platform.demo.project import HostProject
from iceberg_maint_tests.qualification.platform.demo.verdict import Story, read_story
from iceberg_maint_tests.support import jvm
from iceberg_maint_tests.support.servers.programs import free_port

BOUND_SECONDS = 360
"""A partition that is due longer than this fails the demo."""
_LAUNCH = """
mutation($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}"""
_TERMINATE = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"
_STATUS = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
_ASSET = ["iceberg_maint", "lake", "shop", "orders"]
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")


def terminated(project: HostProject) -> list[str]:
    """Starts a forced run, terminates it while its process elsewhere works, and says what is left of it."""
    selector = {
        "repositoryLocationName": "shop.definitions",
        "repositoryName": "__repository__",
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": _ASSET}],
        "assetCheckSelection": [],
    }
    day = f"day={datetime.now(UTC).date()}"
    tags = {
        "iceberg_maint/force": "true",
        "dagster/asset_partition_range_start": day,
        "dagster/asset_partition_range_end": day,
    }
    metadata = {"tags": [{"key": k, "value": v} for k, v in tags.items()]}
    params = {"selector": selector, "runConfigData": {}, "mode": "default", "executionMetadata": metadata}
    launched: object = project.ask(_LAUNCH, params=params)["launchRun"]
    assert isinstance(launched, dict)
    if "run" not in launched:
        return [f"forced run: {launched}"]
    run_id = launched["run"]["runId"]
    until = time.monotonic() + 120
    while not (found := project.processes("--pipes")):
        if time.monotonic() > until:
            return [f"forced run {run_id}: no process elsewhere"]
        time.sleep(0.1)
    time.sleep(2)
    project.ask(_TERMINATE, id=run_id)
    _, alive = psutil.wait_procs(found, timeout=90)
    status = ""
    while status not in _ENDED and time.monotonic() < until + 60:
        time.sleep(1)
        answered: object = project.ask(_STATUS, id=run_id)["runOrError"]
        status = answered["status"] if isinstance(answered, dict) else ""
    left = [f"process {p.pid} outlives its terminated run" for p in alive]
    return left + ([] if status == "CANCELED" else [f"terminated run {run_id}: {status}"])


def faults(story: Story, rows: dict[str, int]) -> list[str]:
    """What the demo promises and the story does not show."""
    found = [
        f"{a.kind} of {a.table} (run {a.run[:8]}) overlaps a {b.kind} (run {b.run[:8]}) by {seconds:.1f} s"
        for a, b, seconds in story.overlaps(("data", "housekeeping"), ("load", "read"))
    ]
    longest = {p: max([*story.waits.get(p, []), story.open.get(p, 0.0)]) for p in {*story.waits, *story.open}}
    found += [f"{p}: due for {s:.0f} s" for p, s in sorted(longest.items()) if s > BOUND_SECONDS]
    found += [f"{name}: rows {given}" for name, given in rows.items() if given % 1800 and name == "orders"]
    found += [
        f"no {kind} arrived"
        for kind in ("materialization", "observation", "check_evaluation")
        if not story.arrived[kind]
    ]
    # The clicks have too few files to be due.
    if not any(p.startswith("orders") for p in story.waits):
        found.append("nothing of orders was maintained")
    return [*found, *story.failed]


def table(story: Story, rows: dict[str, int], files: dict[str, int]) -> Iterable[str]:
    """The lines of the summary."""
    yield f"{'table':8}{'loads':>7}{'reads':>7}{'maintained':>12}{'yielded':>9}{'overlaps':>10}{'due, s (longest)':>18}{'files':>7}{'rows':>8}"
    for name in ("orders", "clicks"):
        of = [u for u in story.uses if u.table == name]
        kinds = {
            kind: sum(1 for u in of if u.kind == kind)
            for kind in ("load", "read", "data", "housekeeping", "yielded")
        }
        both = [o for o in story.overlaps(("data", "housekeeping"), ("load", "read")) if o[0].table == name]
        waits = [s for p, all_ in story.waits.items() if p.startswith(name) for s in all_]
        waits += [s for p, s in story.open.items() if p.startswith(name)]
        yield (
            f"{name:8}{kinds['load']:>7}{kinds['read']:>7}{kinds['data'] + kinds['housekeeping']:>12}{kinds['yielded']:>9}"
            f"{len(both):>10}{max(waits, default=0):>18.0f}{files[name]:>7}{rows[name]:>8}"
        )
    counts = ", ".join(f"{n} {kind.replace('_', ' ')}s" for kind, n in sorted(story.arrived.items()))
    yield f"arrived: {counts}"


_COUNT = """
import json
from shop.defs.ingest import LAKE, SqlCatalog
catalog = SqlCatalog("lake", **LAKE)
scans = {n: catalog.load_table(f"shop.{n}").scan() for n in ("orders", "clicks")}
print(json.dumps({n: [len(list(s.plan_files())), s.to_arrow().num_rows] for n, s in scans.items()}))
"""


def main() -> int:
    """Runs it. Prints the table and what was promised and not kept."""
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint_tests.qualification.platform.demo")
    parser.add_argument("--data", type=Path, default=Path("data-platform"))
    parser.add_argument("--apart", type=Path, default=Path(".cache/apart"))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pictures", action="store_true", help="take those of the docs at the end")
    given = parser.parse_args()
    folder = given.data.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ.update(jvm.environment())
    project = HostProject(folder, (given.apart / "platform").absolute(), free_port())
    project.prepare()
    try:
        project.start()
        print(f"{project.url} for {given.minutes:g} minutes", flush=True)
        time.sleep(given.minutes * 60)
        story = read_story(project.home, time.time())
        counted = json.loads(project.call("-c", _COUNT).splitlines()[-1])
        files, rows = ({name: both[i] for name, both in counted.items()} for i in (0, 1))
        print("\n".join(table(story, rows, files)), flush=True)
        found = faults(story, rows)
        if given.pictures:
            found += pictures(project.url, (given.apart / "screenshots").absolute())
        found += terminated(project)
    finally:
        project.stop()
    logging.disable(logging.CRITICAL)
    day = simulated_day()
    print(day.line())
    found += day.faults()
    print("\n".join(found) or "every promise kept")
    return int(bool(found))


def pictures(url: str, apart: Path) -> list[str]:
    """Takes those of the docs. Says if it could not."""
    script = [sys.executable, str(PROJECT / "docs" / "screenshots.py"), "--url", url, "--component"]
    environ = {**os.environ, "PYTHONPATH": str(apart)}
    code = subprocess.run(script, env=environ, check=False).returncode
    return [f"pictures: exit code {code}"] if code else []


if __name__ == "__main__":
    sys.exit(main())
