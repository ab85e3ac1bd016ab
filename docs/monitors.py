"""Monitors of Datadog and alarms of CloudWatch for the alerts of `dashboards.RULES`, made from the catalogue.

`make reference` writes them to `deploy/observability/`. Datadog stores tag values in lower case. An alarm of CloudWatch
on a query (Metrics Insights) looks at most three hours back, and it cannot compare a metric with the time of day.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from docs.dashboards import RULES, Rule
from iceberg_maint.integrations.telemetry import catalogue
from iceberg_maint.integrations.telemetry.series import Kind, Series

NAMESPACE = "iceberg_maint"
"""The default of `telemetry.cloudwatch.namespace`."""
_TABLE = ("catalog", "namespace", "table")


@dataclass(frozen=True, slots=True)
class Watch:
    """What one alert watches: the sum of a series by labels, where one label has a value.

    The alert fires when every value of `minutes` is at least `threshold`; the sum over `minutes` for a counter.
    With `no_data` it fires when no value arrived in `minutes`.
    """

    series: Series
    minutes: int
    threshold: int = 1
    where: tuple[str, str] | None = None
    by: tuple[str, ...] = _TABLE
    no_data: bool = False


WATCHES: dict[str, Watch] = {
    "IcebergMaintenanceFailsRepeatedly": Watch(catalogue.OPERATIONS, 360, 3, ("outcome", "FAILED")),
    "IcebergPartitionsQuarantined": Watch(catalogue.QUARANTINED, 5),
    "IcebergCommitUnknown": Watch(catalogue.UNKNOWN_COMMITS, 15),
    "IcebergOrphansWaitForApproval": Watch(catalogue.TRASH_FILES, 5, where=("state", "approval")),
    "IcebergTableNotObserved": Watch(catalogue.OBSERVED, 420, no_data=True),
    "IcebergMaintenanceMakesNoProgress": Watch(catalogue.DUE_PARTITIONS, 360),
    "IcebergTelemetryDropped": Watch(catalogue.TELEMETRY_DROPPED, 60, by=("exporter",)),
}
"""The watch of each rule, by its name."""


def datadog_query(watch: Watch) -> str:
    """The query of a metric monitor."""
    within = "*" if watch.where is None else f"{watch.where[0]}:{watch.where[1].lower()}"
    series = f"sum:{watch.series.name}{{{within}}} by {{{','.join(watch.by)}}}"
    if watch.series.kind is Kind.COUNTER:
        return f"sum(last_{_span(watch.minutes)}):{series}.as_count() >= {watch.threshold}"
    return f"min(last_{_span(watch.minutes)}):{series} >= {watch.threshold}"


def _span(minutes: int) -> str:
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


def datadog_monitor(rule: Rule) -> dict[str, Any]:
    """The document of a monitor for Datadog's API."""
    watch = WATCHES[rule.name]
    names = ".".join(f"{{{{{label}.name}}}}" for label in watch.by)
    summary = rule.summary.partition(": ")[2] or rule.summary
    options: dict[str, Any] = {
        "thresholds": {"critical": watch.threshold},
        "notify_no_data": watch.no_data,
        "include_tags": True,
        "require_full_window": False,
    }
    if watch.no_data:
        options["no_data_timeframe"] = watch.minutes
    return {
        "name": rule.name,
        "type": "metric alert",
        "query": datadog_query(watch),
        "message": f"{names}: {_plain(summary)}. Next: {rule.action}",
        "tags": ["iceberg", "maintenance", f"severity:{rule.severity}"],
        "priority": 1 if rule.severity == "critical" else 3,
        "options": options,
    }


def _plain(summary: str) -> str:
    return summary.replace("{{ $value }} ", "").replace("{{ $labels.exporter }}", "a receiver")


def cloudwatch_query(watch: Watch) -> str:
    """The query of an alarm (Metrics Insights)."""
    statistic = "SUM" if watch.series.kind is Kind.COUNTER else "COUNT" if watch.no_data else "MAX"
    labels = _quoted(watch.series.labels)
    where = "" if watch.where is None else f" WHERE \"{watch.where[0]}\" = '{watch.where[1]}'"
    group = "" if watch.no_data else f" GROUP BY {_quoted(watch.by)}"
    return f'SELECT {statistic}("{watch.series.name}") FROM SCHEMA("{NAMESPACE}", {labels}){where}{group}'


def _quoted(labels: tuple[str, ...]) -> str:
    return ", ".join(f'"{label}"' for label in labels)


def cloudwatch_alarm(rule: Rule) -> dict[str, Any]:
    """The arguments of `PutMetricAlarm`. A longer look than three hours becomes one of three hours; an alert without
    data is one of the whole fleet."""
    watch = WATCHES[rule.name]
    periods, seconds = (3, 3600) if watch.minutes > 60 else (1, watch.minutes * 60)
    return {
        "AlarmName": rule.name,
        "AlarmDescription": f"{_plain(rule.summary.partition(': ')[2] or rule.summary)}. Next: {rule.action}",
        "EvaluationPeriods": periods,
        "DatapointsToAlarm": periods,
        "Threshold": 1.0,
        "ComparisonOperator": "LessThanThreshold" if watch.no_data else "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "breaching" if watch.no_data else "notBreaching",
        "Metrics": [
            {"Id": "q1", "Expression": cloudwatch_query(watch), "Period": seconds, "ReturnData": True}
        ],
    }


def monitor_files() -> dict[str, str]:
    """The files below `deploy/observability/`, by their paths there."""
    return {
        "datadog/monitors.json": _json([datadog_monitor(rule) for rule in RULES]),
        "cloudwatch/alarms.json": _json([cloudwatch_alarm(rule) for rule in RULES]),
    }


def _json(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"
