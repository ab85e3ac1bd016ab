"""The connection of one catalog: checked, and converted to PyIceberg's properties."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from iceberg_maint.config.document import CatalogSection
from iceberg_maint.config.locations import (
    check_database,
    check_endpoint,
    check_service,
    check_store,
    check_warehouse,
)
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.core.model.location import is_prefix
from iceberg_maint.errors import ConfigurationError, RefusedError
from iceberg_maint.machine.bounded_calls import CallLimits

TYPES = ("jdbc", "rest", "hive", "glue")
# These settings would silently replace the configured catalog.
_RESERVED = ("type", "uri", "warehouse", "catalog-impl", "py-catalog-impl")
_HIVE_LOCK = "engine.hive.lock-enabled"
LARGEST_CALL_BUDGET = 10_000
MAX_READ_CONCURRENCY = 64
MAX_READ_TIMEOUT_SECONDS = 604_800


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """The connection of one catalog, references resolved. `uri` is in SQLAlchemy form for jdbc.

    `approved_locations` are the prefixes under which its tables may have files, None for every location.
    `calls_per_second` is its budget of calls, None for no budget. `cycle_limits` are the limits of a cycle over its tables.
    """

    name: str
    type: str
    uri: str | None = field(repr=False)
    warehouse: str | None
    properties: Mapping[str, str] = field(repr=False)
    approved_locations: tuple[str, ...] | None = None
    calls_per_second: float | None = None
    cycle_limits: CallLimits = field(default_factory=CallLimits)

    def pyiceberg_properties(self) -> dict[str, str]:
        """Returns the properties for PyIceberg's `load_catalog`."""
        connection = {
            "type": "sql" if self.type == "jdbc" else self.type,
            "uri": self.uri,
            "warehouse": self.warehouse,
        }
        return {**self.properties, **{k: v for k, v in connection.items() if v is not None}}


def catalog_config(name: str, section: CatalogSection, resolver: Resolver, mounts: str) -> CatalogConfig:
    """Returns the checked connection of one catalog.

    Raises RefusedError ICM-106 for a Hadoop catalog, ICM-107 for Hive without locks, ICM-105 for a
    caching catalog, ICM-116 for SQLite on a network file system; ConfigurationError otherwise.
    """
    path = f"catalogs.{name}"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name == "spark_catalog":
        raise ConfigurationError(
            "ICM-100",
            f"{path} is not a valid catalog name. It must consist of letters, digits and underscores, and must not be spark_catalog.",
            "rename the catalog, and use the same name everywhere.",
        )
    if section.type == "hadoop":
        raise RefusedError(
            "ICM-106",
            f"{path}.type is hadoop. Commits of several processes to a hadoop catalog are not atomic and may be lost.",
            "use jdbc, rest, hive or glue.",
        )
    if section.type not in TYPES:
        raise ConfigurationError(
            "ICM-100",
            f"{path}.type is '{section.type}'. It must be one of {', '.join(TYPES)}.",
            f"set {path}.type to the type of your catalog.",
        )
    properties = {k: resolver.text(v, f"{path}.properties.{k}") for k, v in section.properties.items()}
    _check_properties(path, section.type, properties)
    uri = None if section.uri is None else resolver.text(section.uri, f"{path}.uri")
    warehouse = None if section.warehouse is None else resolver.text(section.warehouse, f"{path}.warehouse")
    if uri is None and section.type != "glue":
        raise ConfigurationError(
            "ICM-100", f"{path}.uri is missing. A {section.type} catalog needs it.", f"set {path}.uri."
        )
    if warehouse is None and section.type == "jdbc":
        raise ConfigurationError(
            "ICM-100", f"{path}.warehouse is missing. A jdbc catalog needs it.", f"set {path}.warehouse."
        )
    if section.type == "jdbc" and uri is not None:
        uri = check_database(uri, f"{path}.uri", mounts)
    elif uri is not None:
        check_service(uri, section.type, f"{path}.uri")
    if section.type != "rest" and warehouse is not None:
        # The warehouse of a REST catalog may be a bare name.
        warehouse = check_warehouse(warehouse, f"{path}.warehouse")
        check_store(warehouse, properties.get("io-impl", ""), path)
    approved = _approved_locations(f"{path}.approved_locations", section.approved_locations)
    budget = _call_budget(f"{path}.calls_per_second", section.calls_per_second)
    cycle_limits = _cycle_limits(path, section)
    return CatalogConfig(name, section.type, uri, warehouse, properties, approved, budget, cycle_limits)


def _cycle_limits(path: str, section: CatalogSection) -> CallLimits:
    at_once = section.read_concurrency
    if not 1 <= at_once <= MAX_READ_CONCURRENCY:
        raise ConfigurationError(
            "ICM-100",
            f"{path}.read_concurrency is {at_once}. It must be at least 1 and at most {MAX_READ_CONCURRENCY}.",
            f"set {path}.read_concurrency to the tables that a cycle may ask the catalog for at once.",
        )
    for key, value in (
        ("read_timeout_seconds", section.read_timeout_seconds),
        ("cycle_timeout_seconds", section.cycle_timeout_seconds),
    ):
        if not (math.isfinite(value) and 1 <= value <= MAX_READ_TIMEOUT_SECONDS):
            raise ConfigurationError(
                "ICM-100",
                f"{path}.{key} is {value:g}. It must be at least 1 and at most {MAX_READ_TIMEOUT_SECONDS:,}.",
                f"set {path}.{key} to the seconds that a cycle may wait.",
            )
    if section.cycle_timeout_seconds < section.read_timeout_seconds:
        raise ConfigurationError(
            "ICM-100",
            f"{path}.cycle_timeout_seconds is {section.cycle_timeout_seconds:g}. It must be at least read_timeout_seconds, which is "
            f"{section.read_timeout_seconds:g}.",
            f"raise {path}.cycle_timeout_seconds, or lower {path}.read_timeout_seconds.",
        )
    return CallLimits(at_once, section.read_timeout_seconds, section.cycle_timeout_seconds)


def _call_budget(where: str, value: float | None) -> float | None:
    if value is None or (math.isfinite(value) and 0 < value <= LARGEST_CALL_BUDGET):
        return value
    raise ConfigurationError(
        "ICM-100",
        f"{where} is {value:g}. It must be a number above 0 and at most {LARGEST_CALL_BUDGET:,}.",
        f"set {where} to the calls that the catalog may get in a second, or remove it for no budget.",
    )


def _approved_locations(where: str, values: list[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if not values:
        raise ConfigurationError(
            "ICM-100",
            f"{where} is empty, so no location would be approved.",
            "list at least one prefix, or remove the setting to approve every location.",
        )
    for value in values:
        if not is_prefix(value):
            raise ConfigurationError(
                "ICM-100",
                f"{where} has '{value}'. It must be an absolute URI or path without '.' and '..' segments.",
                "write it as scheme://bucket/prefix or file:///path.",
            )
    return tuple(values)


def check_spark_conf(conf: Mapping[str, str], secrets: Collection[str]) -> None:
    """Refuses catalog settings in `spark.conf` that bypass `catalogs`: ICM-105 for a caching catalog,
    ICM-107 for Hive without locks, and ICM-118 for a secret in the arguments of a JVM. Other forbidden
    settings are checked where the session is built."""
    for key, value in conf.items():
        where = f"spark.conf.{key}"
        # Whole words only: a short secret occurs in other words by chance.
        if key.endswith("JavaOptions") and any(
            re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", value) for secret in secrets
        ):
            raise ConfigurationError(
                "ICM-118",
                f"{where} holds a secret. Every user of the machine can read the arguments of a process.",
                "write the secret into a file that Java reads.",
            )
        if re.fullmatch(r"spark\.sql\.catalog\.\w+\.cache-enabled", key):
            _check_cache(where, value)
        if key.endswith(_HIVE_LOCK) and value.lower() == "false":
            raise _hive_without_lock(where)


def check_hive_table(table: str, properties: Mapping[str, str]) -> None:
    """Refuses a table of a Hive catalog whose own property turns the lock off: ICM-107. The property
    overrides the catalog's (org.apache.iceberg.hive.HiveTableOperations)."""
    if properties.get(_HIVE_LOCK, "").lower() == "false":
        raise _hive_without_lock(f"{table}: table property {_HIVE_LOCK}")


def _check_properties(path: str, kind: str, properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        where = f"{path}.properties.{key}"
        if key in _RESERVED:
            fix = (
                f"set {path}.{key}."
                if key in CatalogSection.model_fields
                else f"remove {where}; {path}.type selects the catalog."
            )
            raise ConfigurationError("ICM-100", f"{where} cannot be set here.", fix)
        if key == "cache-enabled":
            _check_cache(where, value)
        if key == "s3.endpoint":
            check_endpoint(value, where)
        if kind == "hive" and key.endswith(_HIVE_LOCK) and value.lower() == "false":
            raise _hive_without_lock(where)


def _check_cache(where: str, value: str) -> None:
    if value.lower() != "false":
        raise RefusedError(
            "ICM-105",
            f"{where} is {value}. It must be false: with a cached catalog live files appear as orphans.",
            "remove the setting.",
        )


def _hive_without_lock(where: str) -> RefusedError:
    return RefusedError(
        "ICM-107",
        f"{where} is false. Without locks, Hive commits can overwrite each other.",
        "remove the setting.",
    )
