"""The mutants of a seed while the source changes: those that were drawn before, and others in place of those that are
gone.

A draw from changed sources gives other mutants. Verdicts would not add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from iceberg_maint_tests.qualification.mutants.drawn import sites as source
from iceberg_maint_tests.qualification.mutants.drawn.run import Verdict
from iceberg_maint_tests.qualification.mutants.drawn.sites import SPARK, Site


def population(drawn: Sequence[Site], verdicts: Iterable[Verdict]) -> tuple[list[Site], dict[str, Verdict]]:
    """As many mutants as `drawn`, of Spark's side and of the others, and the verdicts by the keys of their present
    places. First come the mutants that have verdicts, then those of `drawn` that have none."""
    known = _present(verdicts)
    sites: list[Site] = []
    for of_spark in (False, True):
        fresh = [site for site in drawn if _is_spark(site.file) is of_spark]
        before = [site for site, _ in known.values() if _is_spark(site.file) is of_spark]
        others = [site for site in fresh if site.key not in known]
        sites += [*before, *others][: len(fresh)]
    return sites, {key: verdict for key, (_, verdict) in known.items()}


def _present(verdicts: Iterable[Verdict]) -> Mapping[str, tuple[Site, Verdict]]:
    """Each mutant with its last verdict, by the key of its present place."""
    known: dict[str, tuple[Site, Verdict]] = {}
    for verdict in verdicts:
        if site := present_site(verdict):
            known[site.key] = site, replace(verdict, key=site.key)
    return known


def present_site(verdict: Verdict) -> Site | None:
    """The place where the function has the verdict's line now; of several, the one whose line number is nearest. None
    if the line is gone or differs."""
    place, _, change = verdict.key.partition("@")
    file, _, line = place.rpartition(":")
    if not (source.PRODUCT / file).exists():
        return None
    old, _, new = change.partition(" ")[2].partition(" → ")
    alike = [
        site
        for site in source.sites_of(file)
        if (site.function, site.old, site.new) == (verdict.function, old, new)
        and site.lines() == (verdict.before, verdict.after)
    ]
    return min(alike, key=lambda site: abs(site.line - int(line)), default=None)


def _is_spark(file: str) -> bool:
    return file.startswith(f"{SPARK}/")
