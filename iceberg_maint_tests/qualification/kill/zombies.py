"""Zombies: processes stopped past the end of their lease, that go on after another has taken it.

    python -m iceberg_maint_tests.qualification.kill.zombies [--folder DIR] [--most N] [--fresh] [--report]

Real processes and real signals: five runs of one process, each on its own table, are at their point when
SIGSTOP comes; another process does the work; SIGCONT. Ten points, five tables: fifty runs. Refused, or
committed as the same proved batch and recognised; never two effects.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from iceberg_maint_tests.qualification.kill.points import ZOMBIE_POINTS, Point
from iceberg_maint_tests.qualification.kill.runs import resume, told
from iceberg_maint_tests.qualification.kill.suite import Results, Row, Suite, Victim, commit_of_checkout
from iceberg_maint_tests.qualification.kill.victim import STOP

FOLDER = Path(".cache/kill-zombies")


def stopped(suite: Suite, point: Point) -> Iterator[Row]:
    """One process that is stopped; a row for each of its runs."""
    suite.lake.put_back()
    started = time.monotonic()
    with Victim(suite.lake, point, STOP, point.kinds) as victim:
        victim.wait_until_stopped()
        os.killpg(victim.process.pid, signal.SIGSTOP)
        # Nobody beats for its runs any more: the others wait until their leases have run out.
        others = {kind: resume(suite.lake, kind, point.asked(kind)) for kind in point.kinds}
        before = {kind: suite.lake.location(kind) for kind in point.kinds}
        os.killpg(victim.process.pid, signal.SIGCONT)
        came = victim.go_on()
    for kind in point.kinds:
        moved = suite.lake.location(kind) != before[kind]
        last = resume(suite.lake, kind, point.asked(kind))
        yield {
            "case": f"{point.code} {kind}",
            "seam": point.seam,
            "differences": suite.verifier.differences(kind, point.asked(kind)),
            "attempts": 1,
            "other": [told(o) for o in others[kind]],
            "came": came[kind],
            "zombie committed": moved,
            "after": [told(o) for o in last],
            "seconds": round((time.monotonic() - started) / len(point.kinds), 1),
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m iceberg_maint_tests.qualification.kill.zombies", description=__doc__
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where lake and results are")
    parser.add_argument("--most", type=int, default=None, help="processes to stop at most")
    parser.add_argument("--fresh", action="store_true", help="forget all results first")
    parser.add_argument("--report", action="store_true", help="tell of the results, run nothing")
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(options.folder, ignore_errors=True)
    results = Results(options.folder.absolute() / "results.jsonl", commit_of_checkout())
    if not options.report:
        _run(results, options.folder.absolute() / "lake", options.most)
    return _report(results)


def _run(results: Results, folder: Path, most: int | None) -> None:
    left = [p for p in ZOMBIE_POINTS if not {f"{p.code} {kind}" for kind in p.kinds} <= results.done()][:most]
    if not left:
        return
    with Suite.alone(folder) as suite:
        for point in left:
            for row in stopped(suite, point):
                results.add(row)
                print(f"{row['case']}: {row['differences'] or 'good'}; {row['came']}", flush=True)


def _report(results: Results) -> int:
    wanted = [f"{p.code} {kind}" for p in ZOMBIE_POINTS for kind in p.kinds]
    newest = {row["case"]: row for row in results.rows if row["case"] in wanted}
    bad = [row for row in newest.values() if row["differences"]]
    committed = Counter(row["zombie committed"] for row in newest.values())
    print(f"{len(newest)} of {len(wanted)} zombies, {len(newest) - len(bad)} good")
    print(f"{committed[True]} committed after they came back, {committed[False]} did not")
    for row in bad:
        print(f"NOT GOOD {row}")
    return 1 if bad or not newest else 0


if __name__ == "__main__":
    sys.exit(main())
