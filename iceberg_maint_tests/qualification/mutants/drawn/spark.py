"""Runs drawn mutants of the Spark side against the tests on real Spark, all on one JVM."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from iceberg_maint_tests.qualification.mutants.drawn.run import Verdict, folder_of_tests, is_of, write_verdict
from iceberg_maint_tests.qualification.mutants.drawn.sites import SPARK, Site
from iceberg_maint_tests.qualification.mutants.mutant import PROJECT
from iceberg_maint_tests.qualification.mutants.run import run_tests

TESTS = PROJECT / "iceberg_maint_tests" / "spark"


def run_on_spark(sites: Sequence[Site], verdicts: Mapping[str, Verdict], file: Path) -> None:
    """Adds a verdict for each mutant of Spark's side that the tests without a JVM did not kill."""
    for site in sites:
        if site.file.startswith(f"{SPARK}/") and site.key in verdicts and not verdicts[site.key].killed_by:
            each = _verdict(site)
            write_verdict(file, each)
            print(f"{each.killed_by or 'LIVES':6} {each.seconds:5.1f} s  {each.key}  {each.test}", flush=True)


def _verdict(site: Site) -> Verdict:
    begin, before, after = time.monotonic(), *site.lines()
    tests, failed = spark_tests_of(site), ""
    try:
        result = run_tests(tests, {site.module: site.changed()}, all_of_them=False)
        failed, ran = next(iter(result.failed), ""), len(result.passed)
    except ValueError as error:
        failed, ran = str(error).split("\n", 1)[0], 0
    took = round(time.monotonic() - begin, 1)
    return Verdict(site.key, site.function, before, after, "spark" if failed else "", failed, ran, took)


def spark_tests_of(site: Site) -> list[str]:
    """Test modules on Spark that mirror the site's module or import it; without any, those of the nearest folder."""
    names = sorted(p.relative_to(PROJECT).as_posix() for p in TESTS.rglob("test_*.py"))
    own = [name for name in names if is_of(name, site)]
    near = folder_of_tests(site)
    while not (beside := [name for name in names if Path(name).parent == near]):
        near = near.parent
    return own or beside
