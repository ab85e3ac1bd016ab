"""Monitors of Datadog and alarms of CloudWatch: one per rule, of series and labels that exist, and accepted by AWS' own
client."""

from __future__ import annotations

import json
import re

import boto3
import pytest
from moto import mock_aws

from docs.dashboards import RULES, Rule
from docs.monitors import (
    WATCHES,
    cloudwatch_alarm,
    cloudwatch_query,
    datadog_monitor,
    datadog_query,
    monitor_files,
)

pytestmark = pytest.mark.seconds

DATADOG = re.compile(
    r"(sum|min)\(last_(\d+[mh])\):sum:([a-z_.]+)\{(\*|[a-z]+:[a-z]+)\} by \{([a-z,]+)\}(\.as_count\(\))? >= \d+"
)


def test_every_rule_has_a_watch_of_labels_that_its_series_has() -> None:
    assert set(WATCHES) == {r.name for r in RULES}
    for watch in WATCHES.values():
        labels = {*watch.by, *([watch.where[0]] if watch.where else [])}
        assert labels <= set(watch.series.labels)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_datadog_monitor_has_a_metric_query_and_the_next_command(rule: Rule) -> None:
    monitor = datadog_monitor(rule)
    assert DATADOG.fullmatch(monitor["query"]), monitor["query"]
    assert monitor["options"]["thresholds"]["critical"] == int(monitor["query"].rpartition(" ")[2])
    assert monitor["message"].endswith(f"Next: {rule.action}")
    assert "$" not in monitor["message"]


def test_datadog_queries_of_a_counter_and_of_a_gauge() -> None:
    assert datadog_query(WATCHES["IcebergMaintenanceFailsRepeatedly"]) == (
        "sum(last_6h):sum:iceberg_maint.operations{outcome:failed} by {catalog,namespace,table}.as_count() >= 3"
    )
    assert datadog_query(WATCHES["IcebergCommitUnknown"]) == (
        "min(last_15m):sum:iceberg_maint.commit.unknown{*} by {catalog,namespace,table} >= 1"
    )


def test_cloudwatch_query_selects_by_labels_and_groups_by_table() -> None:
    assert cloudwatch_query(WATCHES["IcebergOrphansWaitForApproval"]) == (
        'SELECT MAX("iceberg_maint.trash.files") FROM SCHEMA("iceberg_maint", "catalog", "namespace", "table", "state") '
        'WHERE "state" = \'approval\' GROUP BY "catalog", "namespace", "table"'
    )


@mock_aws
def test_cloudwatch_takes_every_alarm_of_the_file() -> None:
    client = boto3.client("cloudwatch", region_name="eu-central-1")
    alarms = json.loads(monitor_files()["cloudwatch/alarms.json"])
    for alarm in alarms:
        client.put_metric_alarm(**alarm)
        (metric,) = alarm["Metrics"]
        assert metric["Period"] * alarm["EvaluationPeriods"] <= 3 * 3600
    stored = client.describe_alarms()["MetricAlarms"]
    assert sorted(a["AlarmName"] for a in stored) == sorted(r.name for r in RULES)


def test_alarm_of_missing_observations_fires_without_data() -> None:
    rule = next(r for r in RULES if r.name == "IcebergTableNotObserved")
    assert cloudwatch_alarm(rule)["TreatMissingData"] == "breaching"
    assert datadog_monitor(rule)["options"]["no_data_timeframe"] == 420
