"""Runs what is left of the kill suite, or reports it.

python -m iceberg_maint_tests.qualification.kill [--folder DIR] [--store s3] [--most N] [--only WORD…] [--each-point] [--fresh]
    [--report]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from iceberg_maint_tests.qualification.kill.points import Case, cases
from iceberg_maint_tests.qualification.kill.suite import (
    MOST_ATTEMPTS,
    Results,
    Suite,
    commit_of_checkout,
    is_good,
    rounds,
)

FOLDERS = {"local": Path(".cache/kill"), "s3": Path(".cache/kill-s3")}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m iceberg_maint_tests.qualification.kill", description=__doc__
    )
    parser.add_argument("--folder", type=Path, help="where lake and results are")
    parser.add_argument("--store", choices=list(FOLDERS), default="local", help="where the tables are")
    parser.add_argument("--most", type=int, default=None, help="cases to run at most")
    parser.add_argument("--only", nargs="*", default=[], help="cases with all these words in their names")
    parser.add_argument(
        "--each-point", action="store_true", help="one case of each point, in turn in each way"
    )
    parser.add_argument("--fresh", action="store_true", help="forget all results first")
    parser.add_argument("--report", action="store_true", help="tell of the results, run nothing")
    options = parser.parse_args()
    folder = (options.folder or FOLDERS[options.store]).absolute()
    if options.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    results = Results(folder / "results.jsonl", commit_of_checkout())
    untried = []
    if not options.report:
        untried = _run(results, folder / "lake", options)
    return _report(results, untried)


def _run(results: Results, folder: Path, options: argparse.Namespace) -> list[str]:
    """Names of the cases that were to be run and could not be tried."""
    left = [c for c in results.open_cases() if set(options.only) <= set(c.name.split())][: options.most]
    left = one_of_each_point(left) if options.each_point else left
    if not left:
        return []
    done = 0
    with Suite.alone(folder, options.store) as suite:
        for point, mode, kinds in rounds(left):
            try:
                for row in suite.round(point, mode, kinds):
                    results.add(row)
                    done += 1
                    state = "good" if is_good(row) else "NOT GOOD"
                    print(f"{done}/{len(left)} {row['case']}: {state}, {row['seconds']} s", flush=True)
            except Exception:  # noqa: BLE001 - a case that could not be tried has no row; the next ones are tried
                print(f"{point.code} {mode.name} {kinds}: {traceback.format_exc()}", flush=True)
    return [case.name for case in left if case.name not in results.done()]


def one_of_each_point(of: Sequence[Case]) -> list[Case]:
    """One case of each point. The first point has its first case, the second point its second, and so on."""
    by_point: dict[str, list[Case]] = {}
    for case in of:
        by_point.setdefault(case.point.code, []).append(case)
    return [each[number % len(each)] for number, each in enumerate(by_point.values())]


def _report(results: Results, untried: list[str]) -> int:
    """Counts of the newest row of every case, whatever commit it is of; 1 where one is not good or was not tried."""
    newest = {row["case"]: row for row in results.rows}
    known = [case for case in cases() if case.name in newest]
    rows = [newest[case.name] for case in known]
    bad = [row for row in rows if not is_good(row)]
    print(f"{len(rows)} of {len(list(cases()))} cases, {len(rows) - len(bad)} good")
    for name, value_of in (("mode", lambda c: c.mode.name), ("kind", lambda c: c.kind.value)):
        counts = Counter(value_of(case) for case in known)
        print(f"by {name}: " + ", ".join(f"{value} {count}" for value, count in sorted(counts.items())))
    attempts = Counter(row["attempts"] for row in rows)
    print("runs to take it up: " + ", ".join(f"{n}: {count}" for n, count in sorted(attempts.items())))
    print(f"{sum(row['seconds'] for row in rows) / 60:.0f} minutes, at most {MOST_ATTEMPTS} runs allowed")
    print("commits: " + ", ".join(sorted({row["commit"][:12] for row in rows})))
    for row in bad:
        print(
            f"NOT GOOD {row['case']}: {row['attempts']} runs, {row['differences']}, {row['outcomes']}, {row['came']}"
        )
    for name in untried:
        print(f"NOT TRIED {name}")
    return 1 if bad or untried else 0


if __name__ == "__main__":
    sys.exit(main())
