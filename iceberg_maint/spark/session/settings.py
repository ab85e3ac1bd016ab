"""Settings of a Spark session as values: what is pinned, and what a catalog needs.

Nothing here starts Spark or imports it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from iceberg_maint.errors import ConfigurationError, RefusedError

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"

REDACTED_KEYS = (
    "(?i)secret|password|passwd|pwd|token|credential|authorization|access[._-]?key|sas|jdbc.*url|conn"
)
"""Spark's own default leaves credentials, authorization headers and `*.pwd` readable."""

PINNED: Mapping[str, str] = {
    # A rewritten stage must read and write the same rows every time: no plan may change under it
    # (apache/iceberg#15006: two deletion vectors for one file), no second copy of a task may run.
    "spark.sql.adaptive.enabled": "false",
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": EXTENSIONS,
    # What is rewritten or verified is read from the files, not from what an earlier task left in
    # memory; Iceberg's own rewrites leave this cache off as well.
    "spark.sql.iceberg.executor-cache.delete-files.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.redaction.regex": REDACTED_KEYS,
    "spark.sql.redaction.options.regex": REDACTED_KEYS,
}
"""Safety and silence: these win over what a user sets; a contradiction is refused."""

_LOGGING = Path(__file__).with_name("log4j2.json")

DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "iceberg_maint",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "2g",
    # Errors only. Spark's own default talks on every start, and on errors too.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
}

REFUSED_PREFIXES = ("spark.jars.packages", "spark.jars.repositories", "spark.jars.ivy", "spark.testing")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Everything a session is built from.

    `jars` are paths of local files, the locked ones first; `catalogs` are the full settings
    `catalog_conf` made for each catalog; `conf` is what the user asks for beyond that.
    """

    master: str
    jars: tuple[str, ...]
    catalogs: Mapping[str, Mapping[str, str]]
    conf: Mapping[str, str] = field(default_factory=dict)
    local_dir: str | None = None


def spark_conf(settings: SparkSettings) -> dict[str, str]:
    """All settings of the session, pinned ones included.

    Raises RefusedError ICM-105 when a setting of the user's contradicts a pinned one, ICM-127 when a
    Spark that needs no other machine would listen to others.
    """
    for key, value in settings.conf.items():
        if key in PINNED and value.strip().lower() != PINNED[key].lower():
            raise RefusedError(
                "ICM-105", f"spark.conf: {key} = {value}; it must be {PINNED[key]}.", "remove the setting."
            )
        if key == "spark.jars":
            raise RefusedError(
                "ICM-105",
                "spark.conf: spark.jars is not allowed: jars are checked before Spark sees them.",
                "list the files as `jars` of `spark`, beside `conf`.",
            )
        if key.startswith(REFUSED_PREFIXES):
            raise RefusedError(
                "ICM-105",
                f"spark.conf: {key} is not allowed: jars come from the verified cache, and testing "
                "switches turn checks of Iceberg's off.",
                "remove the setting.",
            )
    if settings.master.startswith("local"):
        for key in ("spark.driver.bindAddress", "spark.driver.host"):
            _check_loopback(key, settings.conf.get(key, DEFAULTS[key]))
    conf = {**DEFAULTS, **settings.conf, **PINNED, "spark.master": settings.master}
    if settings.jars:
        conf["spark.jars"] = ",".join(settings.jars)
    if settings.local_dir is not None:
        conf["spark.local.dir"] = settings.local_dir
    for catalog in settings.catalogs.values():
        conf.update(catalog)
    return conf


def arguments_of(conf: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """The settings that may stand in the arguments of the JVM, which every user of the machine can
    read: not those of catalogs and file systems, none whose key names a secret or whose value holds
    one. The rest reaches the JVM once it runs."""
    return {
        key: value
        for key, value in conf.items()
        if not key.startswith(("spark.sql.catalog.", "spark.hadoop."))
        and not (re.search(REDACTED_KEYS, key) and key not in PINNED)
        and not any(secret in value for secret in secrets)
    }


def _check_loopback(key: str, address: str) -> None:
    try:
        inside = ip_address(address).is_loopback
    except ValueError:
        inside = address == "localhost"
    if not inside:
        raise RefusedError(
            "ICM-127",
            f"spark.conf: {key} = {address}; a Spark with a local master must listen on this machine only.",
            "remove the setting.",
        )


def catalog_conf(
    name: str, kind: str, uri: str | None, warehouse: str | None, properties: Mapping[str, str]
) -> dict[str, str]:
    """Spark's settings of one Iceberg catalog.

    `kind` is jdbc, rest, hive or glue; `uri` for jdbc is in SQLAlchemy's form, the JDBC form is
    derived. Raises ConfigurationError ICM-100 for another kind or a URI it cannot translate,
    RefusedError ICM-105 for a caching catalog, ICM-106 for a Hadoop catalog.
    """
    if kind == "hadoop":
        raise RefusedError(
            "ICM-106",
            f"catalogs.{name}.type is hadoop: its commits are not atomic across processes.",
            "use jdbc, rest, hive or glue.",
        )
    if kind not in ("jdbc", "rest", "hive", "glue"):
        raise ConfigurationError(
            "ICM-100", f"catalogs.{name}.type is {kind!r}.", "use jdbc, rest, hive or glue."
        )
    if properties.get("cache-enabled", "false").lower() != "false":
        raise RefusedError(
            "ICM-105",
            f"catalogs.{name}.properties: cache-enabled must be false, a cached table is a stale table.",
            "remove the setting.",
        )
    own = dict(properties)
    own["type"] = kind
    own["cache-enabled"] = "false"
    if warehouse is not None:
        own["warehouse"] = warehouse
    if kind == "jdbc":
        own.update(_jdbc(name, uri))
        own.setdefault("jdbc.schema-version", "V1")
    elif uri is not None:
        own["uri"] = uri
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: CATALOG_CLASS, **{f"{prefix}.{key}": value for key, value in own.items()}}


def _jdbc(name: str, uri: str | None) -> dict[str, str]:
    if uri is None:
        raise ConfigurationError("ICM-100", f"catalogs.{name}.uri is missing.", "name the database.")
    parts = urlsplit(uri)
    dialect = parts.scheme.split("+")[0]
    if dialect == "sqlite":
        path = uri.split("://", 1)[1].split("?", 1)[0].removeprefix("/")
        return {"uri": f"jdbc:sqlite:{path}?journal_mode=WAL&busy_timeout=30000"}
    if dialect in ("postgresql", "postgres"):
        host = parts.hostname or "localhost"
        # A socket folder comes as ?host=/run/…; JDBC cannot use one.
        port = f":{parts.port}" if parts.port else ""
        query = f"?{parts.query}" if parse_qsl(parts.query) else ""
        found = {"uri": f"jdbc:postgresql://{host}{port}{parts.path}{query}"}
        if parts.username:
            found["jdbc.user"] = unquote(parts.username)
        if parts.password:
            found["jdbc.password"] = unquote(parts.password)
        return found
    raise ConfigurationError(
        "ICM-100", f"catalogs.{name}.uri: {parts.scheme!r} is not known.", "use sqlite or postgresql."
    )
