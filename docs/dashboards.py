"""Dashboards and rules: Grafana's dashboards and Prometheus' alert rules, made from the catalogue.

`make reference` writes them to `deploy/observability/`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from iceberg_maint.integrations.telemetry import catalogue
from iceberg_maint.integrations.telemetry.series import Series, Unit

_TABLES = '{catalog=~"$catalog",table=~"$table"}'
_GRAFANA_UNITS = {
    Unit.COUNT: "short",
    Unit.BYTES: "bytes",
    Unit.SECONDS: "s",
    Unit.EPOCH: "dateTimeFromNow",
    Unit.RATIO: "percentunit",
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One time plot. `legend` names the labels that it is grouped by."""

    title: str
    query: str
    legend: str
    unit: Unit = Unit.COUNT


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert. `action` is the command that shows what to do."""

    name: str
    query: str
    minutes: int
    severity: str
    summary: str
    action: str


def total(series: Series, *by: str) -> str:
    """The sum of a gauge by labels."""
    return f"sum by ({', '.join(by)}) ({series.prometheus_name}{_TABLES})"


def increase(series: Series, *by: str) -> str:
    """The increase of a counter in the interval of the plot, by labels."""
    return f"sum by ({', '.join(by)}) (increase({series.prometheus_name}{_TABLES}[$__rate_interval]))"


def _of_metric(metric: str) -> Series:
    return catalogue.HEALTH[metric]


def _gauge(title: str, series: Series, *by: str) -> Panel:
    return Panel(title, total(series, *by), _legend(by), series.unit)


def _counter(title: str, series: Series, *by: str) -> Panel:
    return Panel(title, increase(series, *by), _legend(by), series.unit)


def _legend(by: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in by)


_DURATION = catalogue.OPERATION_DURATION.prometheus_name

DASHBOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "fleet": (
        "Iceberg maintenance: fleet",
        (
            _gauge("Due partitions", catalogue.DUE_PARTITIONS, "catalog", "operation"),
            _gauge("Backlog", catalogue.BACKLOG_BYTES, "catalog"),
            _gauge("Small files", _of_metric("small_files"), "catalog"),
            _gauge("Delete files", _of_metric("delete_files"), "catalog"),
            _counter("Operations", catalogue.OPERATIONS, "outcome"),
            _gauge("Quarantined partitions", catalogue.QUARANTINED, "table"),
            Panel(
                "Time since the last observation",
                f"time() - max by (catalog, table) ({catalogue.OBSERVED.prometheus_name}{_TABLES})",
                "{{catalog}} {{table}}",
                Unit.SECONDS,
            ),
            _gauge("Commits that are unknown", catalogue.UNKNOWN_COMMITS, "table", "operation"),
        ),
    ),
    "table": (
        "Iceberg maintenance: table",
        (
            _gauge("Data files", _of_metric("data_files"), "table"),
            _gauge("Data files by size", catalogue.FILES_BY_SIZE, "below_mib"),
            _gauge("Small files", _of_metric("small_files"), "table"),
            _gauge("Equality delete files", _of_metric("equality_delete_files"), "table"),
            _gauge("Position delete files", _of_metric("position_delete_files"), "table"),
            _gauge("Deletion vectors", _of_metric("deletion_vectors"), "table"),
            _gauge("Snapshots", _of_metric("snapshots"), "table"),
            _gauge("Manifests", _of_metric("manifests"), "table"),
            _gauge("Overlap depth", _of_metric("overlap_depth"), "table"),
            _gauge("Trash", catalogue.TRASH_BYTES, "state"),
        ),
    ),
    "operations": (
        "Iceberg maintenance: operations",
        (
            _counter("Operations", catalogue.OPERATIONS, "operation", "outcome"),
            Panel(
                "Duration, 95th percentile",
                f"histogram_quantile(0.95, sum by (le, operation) (rate({_DURATION}_bucket{_TABLES}"
                "[$__rate_interval])))",
                "{{operation}}",
                Unit.SECONDS,
            ),
            _counter("Partitions", catalogue.PARTITIONS, "outcome"),
            _counter("Commit attempts", catalogue.COMMIT_ATTEMPTS, "operation"),
            _counter("Conflicts", catalogue.COMMIT_CONFLICTS, "table"),
            _counter("Proofs", catalogue.PROOFS, "level", "equal"),
            _counter("Expired snapshots", catalogue.COUNTS["expired_snapshots"], "table"),
            _counter("Manifests replaced", catalogue.COUNTS["manifests_replaced"], "table"),
        ),
    ),
    "cost": (
        "Iceberg maintenance: cost",
        (
            _counter("Bytes read by rewrites", catalogue.INPUT_BYTES, "operation"),
            _counter("Bytes written by rewrites", catalogue.OUTPUT_BYTES, "operation"),
            _counter("Files rewritten", catalogue.INPUT_FILES, "operation"),
            _counter("Bytes written and not committed", catalogue.WASTED_BYTES, "table"),
            _counter("Bytes moved to the trash", catalogue.COUNTS["trashed_bytes"], "table"),
            _counter("Bytes deleted from the trash", catalogue.COUNTS["swept_bytes"], "table"),
            Panel(
                "Time of operations",
                f"sum by (operation) (increase({_DURATION}_sum{_TABLES}[$__rate_interval]))",
                "{{operation}}",
                Unit.SECONDS,
            ),
            _gauge("Data", _of_metric("data_bytes"), "catalog"),
        ),
    ),
}
"""Title and panels of each dashboard, by its file name."""

_BY_TABLE = "sum by (catalog, namespace, table)"
_NAMED = "{{ $labels.catalog }}.{{ $labels.namespace }}.{{ $labels.table }}"
_ARGUMENT = f"'{_NAMED}'"
"""The table as an argument of a shell. No value of a label has a quote (`series.label_value`)."""

RULES: tuple[Rule, ...] = (
    Rule(
        "IcebergMaintenanceFailsRepeatedly",
        f'{_BY_TABLE} (increase({catalogue.OPERATIONS.prometheus_name}{{outcome="FAILED"}}[6h])) >= 3',
        0,
        "warning",
        f"{_NAMED}: at least three operations failed in six hours",
        "iceberg-maint history TABLE",
    ),
    Rule(
        "IcebergPartitionsQuarantined",
        f"{_BY_TABLE} ({catalogue.QUARANTINED.prometheus_name}) > 0",
        5,
        "warning",
        f"{_NAMED}: {{{{ $value }}}} partitions are in quarantine",
        "iceberg-maint why TABLE, then iceberg-maint release TABLE",
    ),
    Rule(
        "IcebergCommitUnknown",
        f"{_BY_TABLE} ({catalogue.UNKNOWN_COMMITS.prometheus_name}) > 0",
        15,
        "critical",
        f"{_NAMED}: a commit is neither confirmed nor refuted",
        "iceberg-maint reconcile TABLE",
    ),
    Rule(
        "IcebergOrphansWaitForApproval",
        f'{_BY_TABLE} ({catalogue.TRASH_FILES.prometheus_name}{{state="approval"}}) > 0',
        5,
        "warning",
        f"{_NAMED}: {{{{ $value }}}} orphan files wait for the approval of a person",
        "iceberg-maint orphans scan TABLE",
    ),
    Rule(
        "IcebergTableNotObserved",
        f"time() - max by (catalog, namespace, table) ({catalogue.OBSERVED.prometheus_name}) > 25200",
        30,
        "warning",
        f"{_NAMED}: not measured for more than seven hours",
        "iceberg-maint observe TABLE",
    ),
    Rule(
        "IcebergMaintenanceMakesNoProgress",
        f"{_BY_TABLE} ({catalogue.DUE_PARTITIONS.prometheus_name}) > 0 unless {_BY_TABLE} "
        f'(increase({catalogue.OPERATIONS.prometheus_name}{{outcome="IMPROVED"}}[6h])) > 0',
        360,
        "warning",
        f"{_NAMED}: partitions are due, and nothing improved in six hours",
        "iceberg-maint why TABLE",
    ),
    Rule(
        "IcebergTelemetryDropped",
        f"sum by (exporter) (increase({catalogue.TELEMETRY_DROPPED.prometheus_name}[1h])) > 0",
        0,
        "warning",
        "samples for {{ $labels.exporter }} were dropped",
        "read the log of the runs for ICM-140",
    ),
)
"""The alerts."""


def dashboard(name: str) -> str:
    """The JSON of a dashboard, as Grafana imports it."""
    title, panels = DASHBOARDS[name]
    document = {
        "uid": f"iceberg-maint-{name}",
        "title": title,
        "tags": ["iceberg", "maintenance"],
        "schemaVersion": 39,
        "timezone": "utc",
        "refresh": "1m",
        "time": {"from": "now-7d", "to": "now"},
        "templating": {"list": [_source(), _variable("catalog"), _variable("table")]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }
    return json.dumps(document, indent=2) + "\n"


def rules() -> str:
    """The YAML of the alert rules, as Prometheus reads it."""
    lines = [
        "# Written by `make reference` from docs/dashboards.py.",
        "groups:",
        "  - name: iceberg_maint",
        "    rules:",
    ]
    for rule in RULES:
        lines += [
            f"      - alert: {rule.name}",
            f"        expr: {json.dumps(rule.query)}",
            f"        for: {rule.minutes}m",
            f"        labels: {{severity: {rule.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps(rule.summary)}",
            f"          action: {json.dumps(rule.action.replace('TABLE', _ARGUMENT))}",
        ]
    return "\n".join(lines) + "\n"


def files() -> dict[str, str]:
    """Every file below `deploy/observability/`, by its path there."""
    return {f"grafana/{name}.json": dashboard(name) for name in DASHBOARDS} | {
        "prometheus/rules.yaml": rules()
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(label: str) -> dict[str, Any]:
    within = '{catalog=~"$catalog"}' if label == "table" else ""
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": f"label_values({catalogue.OBSERVED.prometheus_name}{within}, {label})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": _GRAFANA_UNITS[panel.unit], "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "expr": panel.query, "legendFormat": panel.legend}],
    }
