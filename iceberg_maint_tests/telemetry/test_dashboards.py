"""Dashboards and rules: the files are those of the code, and every query names series and labels that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from docs.dashboards import DASHBOARDS, RULES, dashboard, files, rules
from docs.monitors import monitor_files
from iceberg_maint.integrations.telemetry.catalogue import CATALOGUE
from iceberg_maint.integrations.telemetry.series import Kind, label_value
from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.security.hostile import PAYLOADS

FOLDER = PROJECT / "deploy" / "observability"
RULES_TEST = PROJECT / "iceberg_maint_tests" / "telemetry" / "rules_test.yaml"
SERIES = {s.prometheus_name: s for s in CATALOGUE} | {
    f"{s.prometheus_name}_{part}": s
    for s in CATALOGUE
    if s.kind is Kind.HISTOGRAM
    for part in ("bucket", "sum", "count")
}
QUERIES = [p.query for _, panels in DASHBOARDS.values() for p in panels] + [r.query for r in RULES]


def test_files_are_what_the_code_says() -> None:
    stored = {str(p.relative_to(FOLDER)): p.read_text("utf-8") for p in FOLDER.rglob("*") if p.is_file()}
    assert stored == files() | monitor_files(), "run 'make reference'"


@pytest.mark.parametrize("query", QUERIES)
def test_query_names_series_and_labels_of_the_catalogue(query: str) -> None:
    names = re.findall(r"\biceberg_[a-z0-9_]+", query)
    assert names
    assert [n for n in names if n not in SERIES] == []
    for name, selector in re.findall(r"\b(iceberg_[a-z0-9_]+)\{([^}]*)\}", query):
        assert set(re.findall(r"([a-z_]+)=~?\"", selector)) - set(SERIES[name].labels) == set()
    by = {x.strip() for group in re.findall(r"by \(([^)]*)\)", query) for x in group.split(",")}
    assert by - {"le"} <= set.intersection(*(set(SERIES[n].labels) for n in names))
    counters = {n for n in names if SERIES[n].kind is Kind.COUNTER}
    # A counter says something by its increase only.
    assert [n for n in counters if f"increase({n}" not in query] == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboard_is_one_that_grafana_imports(name: str) -> None:
    document = json.loads(dashboard(name))
    assert document["uid"] == f"iceberg-maint-{name}"
    assert {v["name"] for v in document["templating"]["list"]} == {"source", "catalog", "table"}
    panels = document["panels"]
    assert len({p["id"] for p in panels}) == len({p["title"] for p in panels}) == len(panels)
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}
    assert len(places) == len(panels)
    assert [t["expr"] for p in panels for t in p["targets"]] == [p.query for p in DASHBOARDS[name][1]]


def test_rules_are_yaml_with_a_summary_and_an_action() -> None:
    (group,) = yaml.safe_load(rules())["groups"]
    assert [r["alert"] for r in group["rules"]] == [r.name for r in RULES]
    assert [r for r in group["rules"] if set(r["annotations"]) != {"summary", "action"}] == []
    assert {r["labels"]["severity"] for r in group["rules"]} == {"warning", "critical"}


def test_alerts_that_the_rules_test_expects_have_the_texts_of_the_rules() -> None:
    texts = {r["alert"]: r["annotations"] for r in yaml.safe_load(rules())["groups"][0]["rules"]}
    trials = [
        t for test in yaml.safe_load(RULES_TEST.read_text("utf-8"))["tests"] for t in test["alert_rule_test"]
    ]
    assert {t["alertname"] for t in trials} == set(texts)
    for name, alert in ((t["alertname"], alert) for t in trials for alert in t["exp_alerts"]):
        for key, text in texts[name].items():
            filled = re.sub(
                r"\{\{ \$labels\.(\w+) }}", lambda label, a=alert: a["exp_labels"][label[1]], text
            )
            pattern = re.escape(filled).replace(re.escape("{{ $value }}"), r"\d+")
            assert re.fullmatch(pattern, alert["exp_annotations"][key]), (name, filled)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_rules_fire_and_end_as_promtool_evaluates_them() -> None:
    subprocess.run(["promtool", "test", "rules", RULES_TEST], check=True)


@pytest.mark.parametrize("text", PAYLOADS)
def test_command_of_a_rule_has_the_table_as_one_argument(text: str) -> None:
    name = label_value(text)
    (group,) = yaml.safe_load(rules())["groups"]
    for rule in group["rules"]:
        command = re.sub(r"\{\{ \$labels\.\w+ \}\}", lambda _: name, rule["annotations"]["action"])
        arguments = [a for a in shlex.split(command) if name in a]
        assert "'" in command or not arguments
        assert set(arguments) <= {f"{name}.{name}.{name}", f"{name}.{name}.{name},"}
