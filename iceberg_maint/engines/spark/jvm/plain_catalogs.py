"""The Iceberg catalogs of a JVM without a Spark context, built as Iceberg's `SparkCatalog` builds them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_maint.engines.spark.jvm.bridge import Bridge


class PlainCatalogs:
    """The Iceberg catalogs of a JVM without a Spark context, built as Iceberg's `SparkCatalog` builds them."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge, self._conf = bridge, bridge.conf()
        self._lock = threading.Lock()
        self._catalogs: dict[str, Any] = {}
        spark = bridge.jvm.org.apache.spark
        spark_conf = spark.SparkConf(False)
        for key, value in self._conf.items():
            if key.startswith("spark.") and not key.startswith("spark.sql.catalog."):
                spark_conf.set(key, value)
        self._hadoop = spark.deploy.SparkHadoopUtil.get().newConfiguration(spark_conf)
        for key, value in self._conf.items():
            if not key.startswith("spark."):
                self._hadoop.set(key, value)
        context = bridge.iceberg.EnvironmentContext
        context.put("engine-name", "spark")
        context.put("engine-version", bridge.spark_version)
        context.put("app-name", self._conf["spark.app.name"])

    def of(self, name: str) -> Any:
        """The catalog of this name."""
        with self._lock:
            if name not in self._catalogs:
                prefix = f"spark.sql.catalog.{name}."
                jvm = self._bridge.jvm
                properties = jvm.java.util.TreeMap(jvm.java.lang.String.CASE_INSENSITIVE_ORDER)
                for key, value in self._conf.items():
                    if key.startswith(prefix):
                        properties.put(key.removeprefix(prefix), value)
                build = self._bridge.iceberg.CatalogUtil.buildIcebergCatalog
                self._catalogs[name] = build(name, properties, self._hadoop)
            return self._catalogs[name]
