"""Draws mutants by a seed and demands of each that a test fails for it, or that it is in the list of equivalent ones.

python -m iceberg_maint_tests.qualification.mutants.drawn [--mutants 300] [--seed 1] [--only TEXT] [--report] [--spark]

A first run records which tests call which functions (build/mutants/reach.jsonl). Verdicts are in build/mutants/. A
second run continues: killed mutants are not run again, survivors are. If the source has changed since, mutants whose
line is gone are replaced by others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from iceberg_maint_tests.qualification.mutants.drawn import reach
from iceberg_maint_tests.qualification.mutants.drawn.equivalent import reason_of
from iceberg_maint_tests.qualification.mutants.drawn.population import population
from iceberg_maint_tests.qualification.mutants.drawn.run import Verdict, read_verdicts, run
from iceberg_maint_tests.qualification.mutants.drawn.sites import Site, by_room, drawn
from iceberg_maint_tests.qualification.mutants.drawn.spark import run_on_spark
from iceberg_maint_tests.qualification.mutants.mutant import PROJECT
from iceberg_maint_tests.qualification.mutants.run import prepare

FOLDER = PROJECT / "build" / "mutants"
REACH = FOLDER / "reach.jsonl"
FOLDERS = (
    "core",
    "catalog",
    "ledger",
    "removal",
    "spark",
    "columnar",
    "audit",
    "loop",
    "report",
    "refusals",
    "config",
    "security",
)
"""Folders of tests that judge a mutant, where they need neither a JVM nor PostgreSQL and are not slow."""


def record() -> None:
    """Records the test modules that are new or have changed, in a process of its own."""
    current = reach.read(REACH)
    paths = sorted(p for f in FOLDERS for p in (PROJECT / "iceberg_maint_tests" / f).rglob("test_*.py"))
    names = [n for n in (p.relative_to(PROJECT).as_posix() for p in paths) if n not in current]
    if names:
        print(f"recording {len(names)} test modules", flush=True)
        program = [
            sys.executable,
            "-m",
            reach.__name__,
            str(REACH),
            "-m",
            "not spark and not postgres and not slow",
        ]
        subprocess.run([*program, *names], cwd=PROJECT, check=False, stdout=subprocess.DEVNULL)


def report(sites: Sequence[Site], verdicts: Mapping[str, Verdict]) -> int:
    """Prints counts and each survivor; returns how many survive without a reason, or were not judged."""
    equivalent = [s for s in sites if reason_of(s) and not (s.key in verdicts and verdicts[s.key].killed_by)]
    judged = [(s, verdicts[s.key]) for s in sites if s.key in verdicts and s not in equivalent]
    missing = len(sites) - len(judged) - len(equivalent)
    print(f"drawn: {len(sites)} {dict(by_room(sites))}; not judged: {missing}")
    counts = Counter(verdict.killed_by or "lives" for _, verdict in judged)
    print(f"killed or not: {dict(counts)}; equivalent: {len(equivalent)}")
    alive = [(site, verdict) for site, verdict in judged if not verdict.killed_by]
    for site, verdict in alive:
        print(f"LIVES {site.key} in {site.function}\n  - {verdict.before}\n  + {verdict.after}")
    return len(alive) + missing


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the path of a file")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--spark", action="store_true", help="run the survivors of spark/ on real Spark, too")
    options = parser.parse_args(arguments)
    file = FOLDER / f"seed-{options.seed}.jsonl"
    draw = drawn(options.mutants, options.seed)
    everything, verdicts = population(draw, read_verdicts(file).values())
    sites = [s for s in everything if options.only in s.file]
    prepare(examples="share")
    if not options.report:
        record()
        rest = [s for s in sites if not (s.key in verdicts and verdicts[s.key].killed_by)]
        run([s for s in rest if not reason_of(s)], reach.read(REACH), file)
        verdicts = population(draw, read_verdicts(file).values())[1]
    if options.spark:
        run_on_spark(sites, verdicts, file)
        verdicts = population(draw, read_verdicts(file).values())[1]
    return min(report(sites, verdicts), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
