"""The shape of the configuration file: its sections, as pydantic checks them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

Reference = str | int | float | bool | dict[str, Any]
"""A text, number or flag, or a reference to the environment: `{env: NAME}`."""


_AT_LEAST_ONE = "a whole number of at least 1"
_ABOVE_ZERO = "a number above 0"


def _ruled(default: Any, rule: str) -> Any:
    """A setting with this default. `rule` says in words what its values must be; the section's module checks the range."""
    return Field(default, description=rule)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class CatalogSection(_Section):
    """`catalogs.NAME`."""

    type: str
    uri: Reference | None = None
    warehouse: Reference | None = None
    properties: dict[str, Reference] = Field(default_factory=dict)
    approved_locations: list[str] | None = None
    calls_per_second: float | None = _ruled(None, "a number above 0 and at most 10,000")
    read_concurrency: int = _ruled(8, "a whole number from 1 to 64")
    read_timeout_seconds: float = _ruled(600.0, "a number from 1 to 604,800")
    cycle_timeout_seconds: float = _ruled(3600.0, "a number from 1 to 604,800")
    policy: dict[str, Any] | None = None


START_ALWAYS: Final = "always"
START_WHEN_NEEDED: Final = "when_needed"


class SparkSection(_Section):
    """`spark`."""

    master: Reference = "local[2]"
    conf: dict[str, Reference] = Field(default_factory=dict)
    jars: list[str | dict[str, Any]] = Field(default_factory=list)
    start: Literal["always", "when_needed"] = START_WHEN_NEEDED


class PrometheusSection(_Section):
    """`telemetry.prometheus`."""

    listen: str = "127.0.0.1:9464"
    allow_remote: bool = False
    pushgateway: Reference | None = None


class OtlpSection(_Section):
    """`telemetry.otlp`."""

    endpoint: Reference = "http://127.0.0.1:4318/v1/metrics"
    headers: dict[str, Reference] = Field(default_factory=dict)


class DogstatsdSection(_Section):
    """`telemetry.dogstatsd`."""

    host: Reference = "127.0.0.1"
    port: int = _ruled(8125, "a whole number from 0 to 65535")


class CloudwatchSection(_Section):
    """`telemetry.cloudwatch`."""

    namespace: str = "iceberg_maint"
    region: Reference | None = None
    endpoint: Reference | None = None


class OpenlineageSection(_Section):
    """`telemetry.openlineage`."""

    url: Reference
    api_key: Reference | None = None
    namespace: str = "iceberg_maint"


class TelemetrySection(_Section):
    """`telemetry`."""

    max_tables: int = _ruled(1000, "a whole number from 0 to 100,000")
    prometheus: PrometheusSection | None = None
    otlp: OtlpSection | None = None
    dogstatsd: DogstatsdSection | None = None
    cloudwatch: CloudwatchSection | None = None
    openlineage: OpenlineageSection | None = None


class AuditSection(_Section):
    """`audit`."""

    location: Reference
    properties: dict[str, Reference] = Field(default_factory=dict)
    required: bool = False
    keep_days: int | None = _ruled(None, _AT_LEAST_ONE)


class ReportSection(_Section):
    """`report`."""

    currency: str = "USD"
    run_hour_price: float | None = _ruled(None, "a number of at least 0")
    stored_gib_month_price: float | None = _ruled(None, "a number of at least 0")
    folder: str | None = None
    schedule: str = "0 7 * * 1"


class FleetBudgetSection(_Section):
    """`fleet_budget`."""

    period: str = _ruled("hour", "hour or day")
    max_bytes: int | None = _ruled(None, _AT_LEAST_ONE)
    max_cpu_hours: float | None = _ruled(None, _ABOVE_ZERO)
    max_commits: int | None = _ruled(None, _AT_LEAST_ONE)
    max_wait_seconds: int = _ruled(604_800, _AT_LEAST_ONE)
    blackout_hours: list[str] = Field(default_factory=list)


class EngineSection(_Section):
    """`engines.NAME`."""

    uri: Reference
    user: Reference = "iceberg_maint"
    password: Reference | None = None
    catalogs: dict[str, str] = Field(default_factory=dict)
    timeout_seconds: float = _ruled(3600.0, "a number from 1 to 604,800")


class SlackSection(_Section):
    """`alerts.receivers.NAME` of kind slack."""

    kind: Literal["slack"]
    url: Reference
    owners: list[str] = Field(default_factory=list)


class WebhookSection(_Section):
    """`alerts.receivers.NAME` of kind webhook."""

    kind: Literal["webhook"]
    url: Reference
    headers: dict[str, Reference] = Field(default_factory=dict)
    owners: list[str] = Field(default_factory=list)


class EmailSection(_Section):
    """`alerts.receivers.NAME` of kind email."""

    kind: Literal["email"]
    host: Reference
    port: int = _ruled(587, "a whole number from 0 to 65535")
    sender: Reference
    to: list[str]
    user: Reference | None = None
    password: Reference | None = None
    tls: bool = True
    owners: list[str] = Field(default_factory=list)


class AlertmanagerSection(_Section):
    """`alerts.receivers.NAME` of kind alertmanager."""

    kind: Literal["alertmanager"]
    url: Reference
    headers: dict[str, Reference] = Field(default_factory=dict)
    owners: list[str] = Field(default_factory=list)


ReceiverSection = Annotated[
    SlackSection | WebhookSection | EmailSection | AlertmanagerSection, Field(discriminator="kind")
]


class AlertsSection(_Section):
    """`alerts`."""

    receivers: dict[str, ReceiverSection] = Field(default_factory=dict)


ALERT_RECEIVERS: dict[str, type[BaseModel]] = {
    "slack": SlackSection,
    "webhook": WebhookSection,
    "email": EmailSection,
    "alertmanager": AlertmanagerSection,
}
"""The sections of the receivers of alerts, by kind."""

RECEIVERS: dict[str, type[BaseModel]] = {
    "prometheus": PrometheusSection,
    "otlp": OtlpSection,
    "dogstatsd": DogstatsdSection,
    "cloudwatch": CloudwatchSection,
    "openlineage": OpenlineageSection,
}
"""The sections of the receivers of telemetry, by key."""


class DagsterSection(_Section):
    """`dagster`."""

    keep_days: int | None = _ruled(30, f"{_AT_LEAST_ONE}, or null to keep every run")


class Document(_Section):
    """The whole configuration file."""

    ledger: Reference | None = None
    catalogs: dict[str, CatalogSection]
    spark: SparkSection = SparkSection()
    telemetry: TelemetrySection | None = None
    audit: AuditSection | None = None
    alerts: AlertsSection | None = None
    report: ReportSection = ReportSection()
    dagster: DagsterSection = DagsterSection()
    fleet_budget: FleetBudgetSection | None = None
    engines: dict[str, EngineSection] = Field(default_factory=dict)
    defaults: dict[str, Any] | None = None
    tables: dict[str, dict[str, Any] | None] = Field(default_factory=dict)


def section_at(parents: list[str]) -> type[BaseModel]:
    """Returns the section of the document at this path."""
    model: type[BaseModel] = Document
    if parents[:1] == ["catalogs"]:
        model = CatalogSection
    elif parents[:1] == ["spark"]:
        model = SparkSection
    elif parents[:1] == ["audit"]:
        model = AuditSection
    elif parents[:1] == ["report"]:
        model = ReportSection
    elif parents[:1] == ["dagster"]:
        model = DagsterSection
    elif parents[:1] == ["engines"]:
        model = EngineSection
    elif parents[:1] == ["fleet_budget"]:
        model = FleetBudgetSection
    elif parents[:1] == ["alerts"]:
        # pydantic names the kind of a receiver in the path of an error.
        kind = parents[3] if len(parents) > 3 else ""
        model = ALERT_RECEIVERS.get(kind, AlertsSection)
    elif parents[:1] == ["telemetry"]:
        model = RECEIVERS.get(parents[1], TelemetrySection) if len(parents) > 1 else TelemetrySection
    return model


def document_keys() -> dict[str, Literal["top", "catalog", "spark", "telemetry", "receiver"]]:
    """Returns every key of the file except the policy's, with its place."""
    keys: dict[str, Literal["top", "catalog", "spark", "telemetry", "receiver"]]
    keys = dict.fromkeys(Document.model_fields, "top")
    keys |= {f"catalogs.NAME.{k}": "catalog" for k in CatalogSection.model_fields}
    keys |= {f"spark.{k}": "spark" for k in SparkSection.model_fields}
    keys |= {f"telemetry.{k}": "telemetry" for k in TelemetrySection.model_fields}
    keys |= {f"audit.{k}": "receiver" for k in AuditSection.model_fields}
    keys |= {f"report.{k}": "receiver" for k in ReportSection.model_fields}
    keys |= {f"dagster.{k}": "receiver" for k in DagsterSection.model_fields}
    keys |= {f"fleet_budget.{k}": "receiver" for k in FleetBudgetSection.model_fields}
    keys |= {f"engines.NAME.{k}": "receiver" for k in EngineSection.model_fields}
    keys |= {f"alerts.{k}": "receiver" for k in AlertsSection.model_fields}
    for section in ALERT_RECEIVERS.values():
        keys |= {f"alerts.receivers.NAME.{k}": "receiver" for k in section.model_fields}
    for name, section in RECEIVERS.items():
        keys |= {f"telemetry.{name}.{k}": "receiver" for k in section.model_fields}
    return keys
