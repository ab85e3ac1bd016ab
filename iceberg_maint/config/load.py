"""Loads the immutable configuration, from a file or the embedded default."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iceberg_maint.config import policy_keys
from iceberg_maint.config.alerts import AlertsConfig, alerts_config
from iceberg_maint.config.catalogs import (
    CatalogConfig,
    catalog_config,
    check_hive_table,
    check_spark_conf,
)
from iceberg_maint.config.document import (
    START_WHEN_NEEDED,
    CatalogSection,
    Document,
    SparkSection,
)
from iceberg_maint.config.document_reader import parse_document, read_document
from iceberg_maint.config.engines import check_named_engines, engine_settings
from iceberg_maint.config.locations import JarConfig, check_database, jar_configs
from iceberg_maint.config.policy_layers import (
    COMMAND_LINE,
    DEFAULTS,
    EffectivePolicy,
    Layer,
    Pattern,
    inherit,
    pattern_layers,
    property_layer,
)
from iceberg_maint.config.secrets import Resolver, redact_error
from iceberg_maint.config.sections import (
    AuditConfig,
    ReportConfig,
    TelemetryConfig,
    audit_config,
    fleet_budget,
    report_config,
    telemetry_config,
)
from iceberg_maint.core.decisions.fleet_budget import FleetBudget
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.core.policy.engines import EngineSettings
from iceberg_maint.errors import ConfigurationError, IcebergMaintError

CONFIG_VARIABLE = "ICEBERG_MAINT_CONFIG"
"""Names the configuration file if --config is not given."""
HOME_VARIABLE = "ICEBERG_MAINT_HOME"
"""Names the folder for the program's own data."""
CACHE_VARIABLE = "ICEBERG_MAINT_CACHE"
"""Names the folder of jars and of a packaged Java."""
EMBEDDED_CATALOG = "lake"


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """The settings for starting Spark. `start` says whether Spark starts always, or when work needs it."""

    master: str
    conf: Mapping[str, str] = field(repr=False)
    jars: tuple[JarConfig, ...] = ()
    start: str = START_WHEN_NEEDED


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration, references resolved. `source` is the file, or 'embedded default'.

    `home` holds the program's own data, `cache` the jars. `secrets` are values that must never be
    printed.
    """

    source: str
    home: Path
    cache: Path
    ledger_url: str = field(repr=False)
    catalogs: Mapping[str, CatalogConfig]
    spark: SparkConfig
    defaults: Mapping[str, object]
    catalog_policies: Mapping[str, Mapping[str, object]]
    patterns: tuple[Pattern, ...]
    secrets: frozenset[str] = field(repr=False)
    telemetry: TelemetryConfig | None = None
    audit: AuditConfig | None = None
    alerts: AlertsConfig | None = None
    report: ReportConfig = field(default_factory=ReportConfig)
    dagster_keep_days: int | None = None
    fleet_budget: FleetBudget | None = None
    engines: Mapping[str, EngineSettings] = field(default_factory=dict)

    @property
    def only_catalog(self) -> str | None:
        """The catalog's name if there is only one, so that table names may omit it."""
        return next(iter(self.catalogs)) if len(self.catalogs) == 1 else None

    def patterns_without_table(self, tables: Collection[TableId]) -> tuple[Pattern, ...]:
        """Returns the patterns that match none of these tables."""
        only = self.only_catalog is not None
        return tuple(p for p in self.patterns if all(p.specificity(t, only) is None for t in tables))

    def policy_for(
        self,
        table: TableId,
        properties: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> EffectivePolicy:
        """Returns the table's effective policy, with the source of every value.

        `properties` are the table's own. `overrides` come from the command line as text by key path.
        Raises ConfigurationError ICM-100 for a wrong value, or for a tie of patterns. Raises RefusedError
        ICM-107 in mode `act` for a table whose own property lets Hive commit without a lock.
        """
        layers = [
            Layer(DEFAULTS, self.defaults),
            Layer(f"catalogs.{table.catalog}.policy", self.catalog_policies.get(table.catalog, {})),
            *pattern_layers(table, self.patterns, only_catalog=self.only_catalog is not None),
            *property_layer(table, properties or {}),
            Layer(COMMAND_LINE, parse_overrides(overrides or {})),
        ]
        effective = inherit(layers)
        catalog = self.catalogs.get(table.catalog)
        if catalog is not None and catalog.type == "hive" and effective.policy.mode is Mode.ACT:
            check_hive_table(str(table), properties or {})
        return effective


def parse_overrides(overrides: Mapping[str, str]) -> dict[str, object]:
    """Returns checked values of policy keys that are given as text on the command line."""
    return {k: policy_keys.from_text(k, v, f"--set {k}") for k, v in overrides.items()}


def load_config(path: Path | None, environ: Mapping[str, str], mounts: str | None = None) -> Config:
    """Loads the configuration of `path`, else of the file $ICEBERG_MAINT_CONFIG names, else the embedded
    default: SQLite catalog and ledger, local warehouse and Spark below `home`.

    `home` is $ICEBERG_MAINT_HOME, else `.iceberg_maint` beside the file, else in the working directory.
    `mounts` is the text of /proc/mounts; it is read if not given.
    """
    if path is None and environ.get(CONFIG_VARIABLE):
        path = Path(environ[CONFIG_VARIABLE])
    home = _home(path, environ)
    document = embedded_document(home) if path is None else read_document(path)
    source = "embedded default" if path is None else str(path)
    if mounts is None:
        mounts = _read_mounts()
    return _checked(document, source, home, cache_dir(environ), environ, mounts)


def check_text(text: str, path: Path, environ: Mapping[str, str]) -> Config:
    """Returns the configuration of a file at `path` with this text. The file need not exist."""
    document = parse_document(text, str(path))
    return _checked(document, str(path), _home(path, environ), cache_dir(environ), environ, _read_mounts())


def embedded_document(home: Path) -> Document:
    """Returns the document that is used without a configuration file."""
    return Document(
        catalogs={
            EMBEDDED_CATALOG: CatalogSection(
                type="jdbc", uri=f"sqlite:///{home / 'catalog.db'}", warehouse=(home / "warehouse").as_uri()
            )
        },
        spark=SparkSection(conf={"spark.driver.memory": "2g"}),
    )


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Returns the folder of jars: $ICEBERG_MAINT_CACHE, else `.cache` of the checkout that contains the
    package, else the user's cache folder."""
    if environ.get(CACHE_VARIABLE):
        return Path(environ[CACHE_VARIABLE]).absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache"
    user = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/tmp")) / ".cache"  # noqa: S108
    return Path(user) / "iceberg_maint"


def _home(path: Path | None, environ: Mapping[str, str]) -> Path:
    folder = Path.cwd() if path is None else path.absolute().parent
    home = Path(environ.get(HOME_VARIABLE) or folder / ".iceberg_maint").absolute()
    # An address of SQLite has no `..`. Other paths stay as they were written, with their links.
    return home.resolve() if ".." in home.parts else home


def _checked(
    document: Document, source: str, home: Path, cache: Path, environ: Mapping[str, str], mounts: str
) -> Config:
    """Returns the checked configuration. Values from the environment are masked in its errors."""
    resolver = Resolver(environ)
    try:
        return _resolved(document, source, home, cache, resolver, mounts)
    except IcebergMaintError as error:
        raise redact_error(error, resolver.secrets | resolver.values) from None


def _resolved(
    document: Document, source: str, home: Path, cache: Path, resolver: Resolver, mounts: str
) -> Config:
    if not document.catalogs:
        raise ConfigurationError("ICM-100", "catalogs is empty.", "add at least one catalog.")
    catalogs = {
        name: catalog_config(name, section, resolver, mounts) for name, section in document.catalogs.items()
    }
    ledger = f"sqlite:///{home / 'ledger.db'}" if document.ledger is None else document.ledger
    conf = {k: resolver.text(v, f"spark.conf.{k}") for k, v in document.spark.conf.items()}
    check_spark_conf(conf, resolver.secrets)
    audit = None if document.audit is None else audit_config(document.audit, resolver)
    alerts = None if document.alerts is None else alerts_config(document.alerts, resolver)
    telemetry = None if document.telemetry is None else telemetry_config(document.telemetry, resolver)
    engines = {name: engine_settings(name, section, resolver) for name, section in document.engines.items()}
    defaults = policy_keys.flatten(document.defaults, DEFAULTS)
    catalog_policies = {
        name: policy_keys.flatten(section.policy, f"catalogs.{name}.policy")
        for name, section in document.catalogs.items()
    }
    patterns = tuple(
        Pattern(text, policy_keys.flatten(values, f"tables.'{text}'"))
        for text, values in document.tables.items()
    )
    by_catalog = {f"catalogs.{name}.policy": values for name, values in catalog_policies.items()}
    by_pattern = {f"tables.'{p.text}'": p.values for p in patterns}
    check_named_engines(engines, {DEFAULTS: defaults, **by_catalog, **by_pattern})
    return Config(
        source=source,
        home=home,
        cache=cache,
        ledger_url=check_database(resolver.text(ledger, "ledger"), "ledger", mounts),
        catalogs=catalogs,
        spark=SparkConfig(
            resolver.text(document.spark.master, "spark.master"),
            conf,
            jar_configs(document.spark.jars, resolver),
            document.spark.start,
        ),
        defaults=defaults,
        catalog_policies=catalog_policies,
        patterns=patterns,
        secrets=frozenset(resolver.secrets),
        telemetry=telemetry,
        audit=audit,
        alerts=alerts,
        report=report_config(document.report),
        dagster_keep_days=_dagster_keep_days(document.dagster.keep_days),
        fleet_budget=None if document.fleet_budget is None else fleet_budget(document.fleet_budget),
        engines=engines,
    )


def _dagster_keep_days(days: int | None) -> int | None:
    if days is not None and days < 1:
        raise ConfigurationError(
            "ICM-100",
            f"dagster.keep_days is {days}. It must be at least 1.",
            "set dagster.keep_days to a number of days, or to null to keep every run.",
        )
    return days


def _read_mounts() -> str:
    mounts = Path("/proc/mounts")
    return mounts.read_text(encoding="utf-8", errors="replace") if mounts.is_file() else ""
