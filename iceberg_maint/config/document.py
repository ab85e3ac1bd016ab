"""The shape of the configuration file: YAML read safely, checked by pydantic; errors name the path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from iceberg_maint.config.policy_keys import unknown_key_error
from iceberg_maint.config.value_names import type_name, yaml_repr
from iceberg_maint.errors import ConfigurationError

Reference = str | int | float | bool | dict[str, Any]
"""A text, number or flag, or a reference to the environment: `{env: NAME}`."""


_AT_LEAST_ONE = "a whole number of at least 1"
_ABOVE_ZERO = "a number above 0"


def _ruled(default: Any, rule: str) -> Any:
    """A setting with this default. `rule` says in words what its values must be; the section's module checks the range."""
    return Field(default, description=rule)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CatalogSection(_Section):
    """`catalogs.NAME`."""

    type: str
    uri: Reference | None = None
    warehouse: Reference | None = None
    properties: dict[str, Reference] = Field(default_factory=dict)
    approved_locations: list[str] | None = None
    calls_per_second: float | None = _ruled(None, "a number above 0 and at most 10,000")
    looks_at_once: int = _ruled(8, "a whole number from 1 to 64")
    look_seconds: float = _ruled(600.0, "a number from 1 to 604,800")
    pass_seconds: float = _ruled(3600.0, "a number from 1 to 604,800")
    policy: dict[str, Any] | None = None


class SparkSection(_Section):
    """`spark`."""

    master: Reference = "local[2]"
    conf: dict[str, Reference] = Field(default_factory=dict)
    jars: list[str | dict[str, Any]] = Field(default_factory=list)
    class_archive: Reference | None = None


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
    queue_size: int = _ruled(1000, "a whole number from 1 to 100,000")
    timeout_seconds: float = _ruled(5.0, "a number from 0.1 to 60")
    flush_seconds: float = _ruled(3.0, "a number from 0 to 60")
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
    table: str | None = None
    table_schedule: str = "17 * * * *"


class ReportSection(_Section):
    """`report`."""

    currency: str = "USD"
    run_hour_price: float | None = _ruled(None, "a number of at least 0")
    stored_gib_month_price: float | None = _ruled(None, "a number of at least 0")
    folder: str | None = None
    keep_reports: int | None = _ruled(400, f"{_AT_LEAST_ONE}, or null for all")
    schedule: str = "0 7 * * 1"


class FleetBudgetSection(_Section):
    """`fleet_budget`."""

    period: str = _ruled("hour", "hour or day")
    max_bytes: int | None = _ruled(None, _AT_LEAST_ONE)
    max_cpu_hours: float | None = _ruled(None, _ABOVE_ZERO)
    cpus_per_run: float = _ruled(1.0, _ABOVE_ZERO)
    max_commits: int | None = _ruled(None, _AT_LEAST_ONE)
    max_cost: float | None = _ruled(None, _ABOVE_ZERO)
    max_wait_seconds: int = _ruled(604_800, _AT_LEAST_ONE)
    pay_back_seconds: int = _ruled(2_592_000, _AT_LEAST_ONE)
    blackout_hours: list[str] = Field(default_factory=list)


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

    timeout_seconds: float = _ruled(5.0, "a number from 0.1 to 30")
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
    defaults: dict[str, Any] | None = None
    tables: dict[str, dict[str, Any] | None] = Field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a duplicate key, where YAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[object] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int, float, bool)):
                if key in keys:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} is written twice", key_node.start_mark
                    )
                keys.add(key)
        result: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return result


def read_document(path: Path) -> Document:
    """Reads the file and checks its shape.

    Raises ConfigurationError ICM-100 if the file is missing, is not YAML, has an unknown key or a value
    of the wrong type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        reason = why.strerror if isinstance(why, OSError) else "is not UTF-8 text"
        raise ConfigurationError(
            "ICM-100",
            f"configuration file {path} cannot be read: {reason}.",
            "check the path of --config and the permissions of the file.",
        ) from why
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """Parses the document in `text`; messages call it `name`."""
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - _Loader is a SafeLoader
    except yaml.YAMLError as why:
        mark = getattr(why, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(why, "problem", None) or "malformed"
        raise ConfigurationError(
            "ICM-100", f"{name}{where} is not valid YAML: {problem}.", "correct the YAML at this place."
        ) from None
    if not isinstance(data, dict):
        raise ConfigurationError(
            "ICM-100",
            f"{name} is empty or not a mapping. It must have at least the key 'catalogs'.",
            "see docs/reference/configuration.md.",
        )
    try:
        return Document.model_validate(data)
    except ValidationError as errors:
        raise _first_error(errors) from None


def _first_error(errors: ValidationError) -> ConfigurationError:
    # An unknown key explains a missing one, so it is reported first.
    error = min(errors.errors(), key=lambda e: e["type"] != "extra_forbidden")
    parts = [str(p) for p in error["loc"] if p not in _UNION_BRANCHES]
    # pydantic names the kind of a receiver behind its name.
    written = parts[:3] + parts[4:] if parts[:2] == ["alerts", "receivers"] else parts
    where = ".".join(f"'{p}'" if "." in p else p for p in written)
    if error["type"] == "extra_forbidden":
        return unknown_key_error(where, parts[-1], _keys_at(parts[:-1]))
    if error["type"] == "missing":
        return ConfigurationError("ICM-100", f"{where} is missing.", "see docs/reference/configuration.md.")
    if error["type"] in _KIND_ERRORS:
        return _kind_error(where, error["input"])
    is_reference = any(part in _UNION_BRANCHES for part in error["loc"])
    rule = "text, or {env: NAME}" if is_reference else _rule(parts, error["type"])
    shown = type_name(error["input"]) if is_reference else _shown(error["input"], error["type"])
    return ConfigurationError("ICM-100", f"{where} is {shown}. It must be {rule}.", f"set {where} to {rule}.")


_KIND_ERRORS = ("union_tag_not_found", "union_tag_invalid", "model_attributes_type")
_KIND = re.compile(r"[a-z]{1,16}")


def _kind_error(where: str, value: object) -> ConfigurationError:
    """A receiver of alerts without one of the kinds."""
    kinds = f"{', '.join([*ALERT_RECEIVERS][:-1])} or {[*ALERT_RECEIVERS][-1]}"
    if not isinstance(value, dict):
        shown = (
            f"{where} is {_shown(value, 'model_type')}. It must be a mapping with the key 'kind': {kinds}."
        )
        return ConfigurationError("ICM-100", shown, f"set {where} to a mapping with the key 'kind'.")
    if "kind" not in value:
        return ConfigurationError("ICM-100", f"{where}.kind is missing.", f"set {where}.kind to {kinds}.")
    kind = value["kind"]
    shown = repr(kind) if isinstance(kind, str) and _KIND.fullmatch(kind) else type_name(kind)
    return ConfigurationError(
        "ICM-100", f"{where}.kind is {shown}. It must be {kinds}.", f"set {where}.kind to {kinds}."
    )


def _rule(parts: list[str], kind: str) -> str:
    """What the values of a setting must be: its own rule, else its type."""
    field = _model_at(parts[:-1]).model_fields.get(parts[-1])
    own = None if field is None else field.description
    return own or _RULES.get(kind, "text")


def _shown(value: object, kind: str) -> str:
    """The value as the message has it. Text may be a secret in the wrong place: it is shown only if a number or flag was
    expected, and if it is a short number with a unit or the word of a flag. Else the message has its type."""
    is_scalar = isinstance(value, (bool, int, float)) or (
        kind in _SCALARS and (value is None or (isinstance(value, str) and _HARMLESS.fullmatch(value)))
    )
    return yaml_repr(value) if is_scalar else type_name(value)


_SCALARS = ("int_type", "float_type", "bool_type", "int_from_float")
_UNITS = r"%|ns|us|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?|w|weeks?|bytes?|[kKMGT]?i?B|[kKMGT]"
_HARMLESS = re.compile(
    rf"[-+]?[0-9][0-9.,_]{{0,9}} ?({_UNITS})?(/[smhd])?|true|false|yes|no|on|off|null|none|", re.IGNORECASE
)
_RULES = {
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "list_type": "a list",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
_UNION_BRANCHES: set[Any] = {"str", "int", "float", "bool", "dict[str,any]", "dict[str,Any]"}


def _keys_at(parents: list[str]) -> list[str]:
    return list(_model_at(parents).model_fields)


def _model_at(parents: list[str]) -> type[BaseModel]:
    """The section of the document at this path."""
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
    keys |= {f"alerts.{k}": "receiver" for k in AlertsSection.model_fields}
    for section in ALERT_RECEIVERS.values():
        keys |= {f"alerts.receivers.NAME.{k}": "receiver" for k in section.model_fields}
    for name, section in RECEIVERS.items():
        keys |= {f"telemetry.{name}.{k}": "receiver" for k in section.model_fields}
    return keys
