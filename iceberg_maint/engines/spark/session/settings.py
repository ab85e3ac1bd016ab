"""Settings of a Spark session as values: pinned settings, defaults, and the settings of a catalog.

This module neither starts nor imports Spark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from iceberg_maint.engines.spark.session.session_checks import check_driver, check_launch
from iceberg_maint.errors import ConfigurationError, RefusedError

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"

REDACTED_KEYS = "(?i)secret|password|passwd|pwd|token|credential|authorization|(access|account)[._-]?key|sas|jdbc.*url|conn"
"""Spark's default does not redact credentials, authorization headers and `*.pwd`."""

PINNED: Mapping[str, str] = {
    # A retried stage must read and write the same rows every time. Its plan must not change
    # (apache/iceberg#15006: two deletion vectors for one file), and no second copy of a task may run.
    "spark.sql.adaptive.enabled": "false",
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": EXTENSIONS,
    # Rewrites and verification read deletes from the files, not from the memory of an earlier task. Iceberg's own
    # rewrites turn this cache off too.
    "spark.sql.iceberg.executor-cache.delete-files.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.redaction.regex": REDACTED_KEYS,
    "spark.sql.redaction.options.regex": REDACTED_KEYS,
}
"""Settings for safety and quiet logs. They replace the user's settings. A user's setting that contradicts one is
refused."""

_LOGGING = Path(__file__).with_name("log4j2.json")

_JIT = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Half of the CPU of a driver that lives for minutes was the second compiler's. It now takes a method ten times later:
after 50,000 calls, which a loop over rows makes within a second."""

DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "iceberg_maint",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "2g",
    # A rewrite of damaged pages would make their values the table's. Parquet's default is to verify none.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Log errors only. Spark's default also logs every start.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {_JIT}",
}

READ_AT_START = (
    "spark.master",
    "spark.jars",
    "spark.files",
    "spark.archives",
    "spark.submit.",
    "spark.driver.",
    "spark.local.dir",
)
"""Settings that Spark's launcher reads, by their beginning. The JVM would miss them if it got them later: a
session without `spark.jars` among the arguments does not have Iceberg's classes."""

LOOPBACK: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""Addresses of a local master. The executors of a cluster must reach the driver."""

REFUSED_PREFIXES = ("spark.jars.packages", "spark.jars.repositories", "spark.jars.ivy", "spark.testing")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The input of a session.

    `jars` are paths of local files, the locked jars first. `catalogs` are the complete settings of each catalog, as
    `catalog_conf` returns them. `conf` are additional settings of the user. `local_dir` is the folder for scratch files
    of a local master: on the machines of a cluster it need not exist. `class_folder` is that of the archives
    of Java's classes; without it, none is used.
    """

    master: str
    jars: tuple[str, ...]
    catalogs: Mapping[str, Mapping[str, str]]
    conf: Mapping[str, str] = field(default_factory=dict)
    local_dir: str | None = None
    class_folder: Path | None = None


def spark_conf(settings: SparkSettings) -> dict[str, str]:
    """All settings of the session, pinned ones included.

    Raises RefusedError ICM-105 if a setting of the user contradicts a pinned one, ICM-127 if a
    Spark with a local master would listen to other machines, ICM-164 for Spark Connect and deploy mode `cluster`.
    Raises ConfigurationError ICM-100 for a master or a size of memory with which Spark does not start.
    """
    check_driver(settings.master, settings.conf)
    check_launch(settings.master, settings.conf)
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
    conf = {**DEFAULTS, **settings.conf, **PINNED, "spark.master": settings.master}
    if settings.master.startswith("local"):
        conf = {**LOOPBACK, **conf}
        for key in LOOPBACK:
            _check_loopback(key, conf[key])
        if settings.local_dir is not None:
            conf["spark.local.dir"] = settings.local_dir
    if settings.jars:
        conf["spark.jars"] = ",".join(settings.jars)
    for catalog in settings.catalogs.values():
        conf.update(catalog)
    return conf


def arguments_of(conf: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """The settings for the arguments of the JVM, which every user of the machine can read.

    They exclude settings of catalogs and file systems, and every setting whose key names a secret or whose value
    contains one. The JVM gets the other settings after it has started. Settings that are read at the start are
    never excluded: a short secret may occur in a path by chance.

    Raises ConfigurationError ICM-118 if a setting that is read at the start contains the password of an address.
    """
    return {key: value for key, value in conf.items() if _is_argument(key, value, secrets)}


def _is_argument(key: str, value: str, secrets: Collection[str]) -> bool:
    if key.startswith(("spark.sql.catalog.", "spark.hadoop.")):
        return False
    if re.search(REDACTED_KEYS, key) and key not in PINNED:
        return False
    if not key.startswith(READ_AT_START):
        return not any(secret in value for secret in secrets)
    if any(f":{secret}@" in value for secret in secrets):
        raise ConfigurationError(
            "ICM-118",
            f"spark.conf.{key} is an address that contains a password. Every user of the machine can read the "
            "arguments of a process.",
            "use an address without a password.",
        )
    return True


def _check_loopback(key: str, address: str) -> None:
    try:
        is_loopback = ip_address(address).is_loopback
    except ValueError:
        is_loopback = address == "localhost"
    if not is_loopback:
        raise RefusedError(
            "ICM-127",
            f"spark.conf: {key} = {address}; a Spark with a local master must listen on this machine only.",
            "remove the setting.",
        )


def catalog_conf(
    name: str, kind: str, uri: str | None, warehouse: str | None, properties: Mapping[str, str]
) -> dict[str, str]:
    """Spark's settings of one Iceberg catalog.

    `kind` is jdbc, rest, hive or glue. For jdbc, `uri` is a SQLAlchemy URI, from which this function derives the
    JDBC form. Raises ConfigurationError ICM-100 for another kind or a URI that it cannot translate,
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
    options = dict(properties)
    options["type"] = kind
    options["cache-enabled"] = "false"
    if warehouse is not None:
        options["warehouse"] = warehouse
    if kind == "jdbc":
        options.update(_jdbc(name, uri))
        options.setdefault("jdbc.schema-version", "V1")
    elif uri is not None:
        options["uri"] = uri
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: CATALOG_CLASS, **{f"{prefix}.{key}": value for key, value in options.items()}}


def is_plain(catalog: tuple[str, Mapping[str, str]]) -> bool:
    """Whether Iceberg builds a catalog (its name and settings) from its properties as Spark's catalog does, which also reads
    settings of Hadoop among them."""
    name, conf = catalog
    prefix = f"spark.sql.catalog.{name}"
    return conf.get(prefix) == CATALOG_CLASS and not any(k.startswith(f"{prefix}.hadoop.") for k in conf)


def _jdbc(name: str, uri: str | None) -> dict[str, str]:
    if uri is None:
        raise ConfigurationError("ICM-100", f"catalogs.{name}.uri is missing.", "name the database.")
    parts = urlsplit(uri)
    dialect = parts.scheme.split("+")[0]
    if dialect == "sqlite":
        path = uri.split("://", 1)[1].split("?", 1)[0].removeprefix("/")
        # The journal mode is stored in the file, which is the user's: it stays as it is.
        return {"uri": f"jdbc:sqlite:{path}?busy_timeout=30000"}
    if dialect in ("postgresql", "postgres"):
        host = parts.hostname or "localhost"
        # A URI may name a socket folder as ?host=/run/…, which JDBC does not support.
        port = f":{parts.port}" if parts.port else ""
        query = f"?{parts.query}" if parse_qsl(parts.query) else ""
        options = {"uri": f"jdbc:postgresql://{host}{port}{parts.path}{query}"}
        if parts.username:
            options["jdbc.user"] = unquote(parts.username)
        if parts.password:
            options["jdbc.password"] = unquote(parts.password)
        return options
    raise ConfigurationError(
        "ICM-100", f"catalogs.{name}.uri: {parts.scheme!r} is not known.", "use sqlite or postgresql."
    )
