"""The drawn mutants: what is drawn, and the list of those that are equivalent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint_tests.qualification.mutants.drawn import sites
from iceberg_maint_tests.qualification.mutants.drawn.__main__ import report
from iceberg_maint_tests.qualification.mutants.drawn.equivalent import EQUIVALENT, reason_of
from iceberg_maint_tests.qualification.mutants.drawn.population import population, present_site
from iceberg_maint_tests.qualification.mutants.drawn.reach import Reach
from iceberg_maint_tests.qualification.mutants.drawn.run import Verdict, as_judged, is_of
from iceberg_maint_tests.qualification.mutants.drawn.spark import spark_tests_of

pytestmark = pytest.mark.seconds

SOURCE = '''"""Docstring of 1 and not 2."""
__all__ = ["a"]
LIMIT: Literal[3] = 4

@cache(5)
def a(b, c=6):
    """7 < 8"""
    assert b < 9
    log.warning("x", 10 < b)
    if not b or b <= c:
        raise ValueError(f"{b + 11}")
    total = "a" + b
    total += [12]
    return zip(b - c, strict=True), b is not None, c not in b
'''


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a file in a package that holds SOURCE."""
    (tmp_path / "module.py").write_text(SOURCE)
    monkeypatch.setattr(sites, "PRODUCT", tmp_path)
    return "module.py"


def test_sites_are_what_runs_and_not_messages_annotations_or_asserts(written: str) -> None:
    assert [(site.line, site.function, *site.lines()) for site in sites.sites_of(written)] == [
        (3, "", "LIMIT: Literal[3] = 4", "LIMIT: Literal[3] = 5"),
        (6, "", "def a(b, c=6):", "def a(b, c=7):"),
        (10, "a", "if not b or b <= c:", "if  b or b <= c:"),
        (10, "a", "if not b or b <= c:", "if not b and b <= c:"),
        (10, "a", "if not b or b <= c:", "if not b or b < c:"),
        (13, "a", "total += [12]", "total += [13]"),
        *(
            (14, "a", "return zip(b - c, strict=True), b is not None, c not in b", after)
            for after in (
                "return zip(b + c, strict=True), b is not None, c not in b",
                "return zip(b - c, strict=True), b is None, c not in b",
                "return zip(b - c, strict=True), b is not None, c in b",
            )
        ),
    ]


def test_function_of_a_site_begins_at_its_decorator(written: str) -> None:
    assert {site.first for site in sites.sites_of(written)} == {0, 5}


@pytest.mark.variant
def test_draw_of_a_seed_is_the_same_and_has_its_share_of_spark() -> None:
    first = sites.drawn(30, 7)
    assert first == sites.drawn(30, 7) != sites.drawn(30, 8)
    assert sites.by_room(first)[sites.SPARK] == 4
    assert len({site.key for site in first}) == 30


def verdict_of(site: sites.Site, killed_by: str = "module") -> Verdict:
    return Verdict(site.key, site.function, *site.lines(), killed_by, "test", 1, 1.0)


def test_verdict_follows_its_line_to_another_place(written: str) -> None:
    before = [verdict_of(site) for site in sites.sites_of(written)]
    path = sites.PRODUCT / written
    path.write_text("import os\n" + path.read_text())
    assert [present_site(each) for each in before] == sites.sites_of(written)


def test_verdict_of_a_line_that_differs_has_no_place(written: str) -> None:
    [verdict] = [verdict_of(site) for site in sites.sites_of(written) if site.line == 13]
    path = sites.PRODUCT / written
    path.write_text(path.read_text().replace("[12]", "[12, 0]"))
    assert present_site(verdict) is None
    path.unlink()
    assert present_site(verdict) is None


@pytest.mark.variant
def test_population_keeps_mutants_with_verdicts_and_fills_up_with_drawn_ones() -> None:
    second = sites.drawn(30, 8)
    first = [site for site in sites.drawn(30, 7)[:26] if site not in second]
    judged = [verdict_of(site) for site in first[:3]]
    gone = replace(verdict_of(first[4]), before="a line that is gone")
    found, verdicts = population(second, [*judged, gone])
    assert found == [*first[:3], *second[:23], *second[26:]]
    assert list(verdicts) == [site.key for site in first[:3]]
    assert sites.by_room(found)[sites.SPARK] == 4


@pytest.mark.variant
def test_every_change_can_be_compiled() -> None:
    for site in sites.drawn(300, 1):
        compile(site.changed(), site.file, "exec")


def test_equivalent_changes_can_still_be_drawn() -> None:
    files = {each.file for each in EQUIVALENT}
    drawable = {(s.file, s.function, *s.lines()) for file in files for s in sites.sites_of(file)}
    entries = [(each.file, each.function, each.before, each.after) for each in EQUIVALENT]
    assert [entry for entry in entries if entry not in drawable] == []
    assert all(each.reason for each in EQUIVALENT)


def test_report_demands_an_answer_for_each_mutant_that_is_not_equivalent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = next(s for s in sites.sites_of("catalog/s3_store.py") if reason_of(s))
    killed, alive, missing = [s for s in sites.sites_of("catalog/s3_store.py") if not reason_of(s)][:3]
    verdicts = {
        s.key: Verdict(s.key, s.function, *s.lines(), by, "", 1, 0.1)
        for s, by in ((killed, "all"), (alive, ""))
    }
    assert report([listed, killed], verdicts) == 0
    assert report([listed, killed, alive, missing], verdicts) == 2
    assert "killed or not: {'all': 1, 'lives': 1}; equivalent: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ("core/commits/test_gate.py", True),
        ("core/commits/test_gate_model.py", True),
        ("report/test_grid.py", False),
    ],
)
def test_tests_of_a_module_mirror_or_import_it(tests: str, expected: bool) -> None:
    site = sites.sites_of("core/commits/gate_rules.py")[0]
    assert is_of(f"iceberg_maint_tests/{tests}", site) is expected


def test_function_that_no_test_calls_is_judged_by_an_import(written: str) -> None:
    site = sites.sites_of(written)[-1]
    called = Reach(1.0, {written: [site.first]})
    assert as_judged(site, {"test_a.py": {"test": called}}) == site
    assert as_judged(site, {"test_a.py": {"test": Reach(1.0, {written: [1]})}}).function == ""


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("scan/staging.py", ["scan/test_renames.py", "scan/test_staging.py"]),
        ("health/entries.py", ["health/test_measure.py"]),
    ],
)
def test_module_of_spark_is_judged_by_its_own_tests_or_those_of_its_folder(
    module: str, expected: list[str]
) -> None:
    site = sites.sites_of(f"engines/spark/{module}")[0]
    assert spark_tests_of(site) == [f"iceberg_maint_tests/spark/{name}" for name in expected]


def test_module_of_spark_without_tests_in_its_folder_is_judged_by_those_above() -> None:
    above = spark_tests_of(sites.sites_of("engines/spark/rewrite/columnar/statistics.py")[0])
    assert {str(Path(name).parent) for name in above} == {"iceberg_maint_tests/spark/rewrite"}
