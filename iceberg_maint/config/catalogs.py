"""One catalog's connection: checked, and as PyIceberg wants it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from iceberg_maint.config.document import CatalogSection
from iceberg_maint.config.locations import check_database, check_warehouse
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.errors import ConfigurationError, RefusedError

TYPES = ("jdbc", "rest", "hive", "glue")
# These would silently replace the catalog that was configured.
_RESERVED = ("type", "uri", "warehouse", "catalog-impl", "py-catalog-impl")
_HIVE_LOCK = "engine.hive.lock-enabled"


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """The connection of one catalog, references resolved. `uri` is in SQLAlchemy form for jdbc."""

    name: str
    type: str
    uri: str | None = field(repr=False)
    warehouse: str | None
    properties: Mapping[str, str] = field(repr=False)

    def pyiceberg_properties(self) -> dict[str, str]:
        """Properties for PyIceberg's `load_catalog`."""
        known = {
            "type": "sql" if self.type == "jdbc" else self.type,
            "uri": self.uri,
            "warehouse": self.warehouse,
        }
        return {**self.properties, **{k: v for k, v in known.items() if v is not None}}


def catalog_config(name: str, section: CatalogSection, resolver: Resolver, mounts: str) -> CatalogConfig:
    """The checked connection of one catalog.

    Raises RefusedError ICM-106 for a Hadoop catalog, ICM-107 for Hive without locks, ICM-105 for
    a caching one, ICM-116 for SQLite on a network file system; ConfigurationError otherwise.
    """
    path = f"catalogs.{name}"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name == "spark_catalog":
        raise ConfigurationError(
            "ICM-100",
            f"{path} is no catalog name: letters, digits and underscores, not spark_catalog.",
            "rename the catalog; use the same name everywhere.",
        )
    if section.type == "hadoop":
        raise RefusedError(
            "ICM-106",
            f"{path}.type is hadoop: commits of several processes are not atomic there and may be lost.",
            "use jdbc, rest, hive or glue.",
        )
    if section.type not in TYPES:
        raise ConfigurationError(
            "ICM-100",
            f"{path}.type is '{section.type}': must be one of {', '.join(TYPES)}.",
            f"set {path}.type to the type of your catalog.",
        )
    properties = {k: resolver.text(v, f"{path}.properties.{k}") for k, v in section.properties.items()}
    _check_properties(path, section.type, properties)
    uri = None if section.uri is None else resolver.text(section.uri, f"{path}.uri")
    warehouse = None if section.warehouse is None else resolver.text(section.warehouse, f"{path}.warehouse")
    if uri is None and section.type != "glue":
        raise ConfigurationError("ICM-100", f"{path}.uri is missing.", f"a {section.type} catalog needs it.")
    if warehouse is None and section.type == "jdbc":
        raise ConfigurationError("ICM-100", f"{path}.warehouse is missing.", "a jdbc catalog needs it.")
    if section.type == "jdbc" and uri is not None:
        uri = check_database(uri, f"{path}.uri", mounts)
    if section.type != "rest" and warehouse is not None:
        # A REST catalog's warehouse may be a bare name.
        warehouse = check_warehouse(warehouse, f"{path}.warehouse")
    return CatalogConfig(name, section.type, uri, warehouse, properties)


def check_spark_conf(conf: Mapping[str, str], secrets: Collection[str]) -> None:
    """Refuses settings of a catalog that came in past `catalogs`: ICM-105 for a caching one, ICM-107
    for Hive without locks; and ICM-118 for one of the `secrets` among a JVM's arguments. What else a
    session may not have is checked where it is built.
    """
    for key, value in conf.items():
        where = f"spark.conf.{key}"
        if key.endswith("JavaOptions") and any(secret in value for secret in secrets):
            raise ConfigurationError(
                "ICM-118",
                f"{where} holds a secret: every user of the machine can read the arguments of a process.",
                "put it into a file that Java reads.",
            )
        if re.fullmatch(r"spark\.sql\.catalog\.\w+\.cache-enabled", key):
            _check_cache(where, value)
        if key.endswith(_HIVE_LOCK) and value.lower() == "false":
            raise _hive_without_lock(where)


def check_hive_table(table: str, properties: Mapping[str, str]) -> None:
    """Refuses a table of a Hive catalog whose own property turns the lock off, which wins over the
    catalog's (org.apache.iceberg.hive.HiveTableOperations): ICM-107."""
    if properties.get(_HIVE_LOCK, "").lower() == "false":
        raise _hive_without_lock(f"{table}: table property {_HIVE_LOCK}")


def _check_properties(path: str, kind: str, properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        where = f"{path}.properties.{key}"
        if key in _RESERVED:
            fix = f"set {path}.{key}." if key in CatalogSection.model_fields else "use the catalog's type."
            raise ConfigurationError("ICM-100", f"{where} cannot be set here.", fix)
        if key == "cache-enabled":
            _check_cache(where, value)
        if kind == "hive" and key.endswith(_HIVE_LOCK) and value.lower() == "false":
            raise _hive_without_lock(where)


def _check_cache(where: str, value: str) -> None:
    if value.lower() != "false":
        raise RefusedError(
            "ICM-105",
            f"{where} is {value}: must be false, a cached catalog shows files as orphans that are live.",
            "remove the setting.",
        )


def _hive_without_lock(where: str) -> RefusedError:
    return RefusedError(
        "ICM-107",
        f"{where} is false: without locks Hive commits can overwrite each other.",
        "remove the setting.",
    )
