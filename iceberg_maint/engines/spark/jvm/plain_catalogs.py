"""The Iceberg catalogs of a JVM without a Spark context, built as Iceberg's `SparkCatalog` builds them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any


class PlainCatalogs:
    """The Iceberg catalogs of a JVM without a Spark context, built as Iceberg's `SparkCatalog` builds them."""

    def __init__(self, jvm: Any, conf: Mapping[str, str], spark_version: str) -> None:
        self._jvm, self._conf = jvm, conf
        self._lock = threading.Lock()
        self._catalogs: dict[str, Any] = {}
        spark = jvm.org.apache.spark
        spark_conf = spark.SparkConf(False)
        for key, value in self._conf.items():
            if key.startswith("spark.") and not key.startswith("spark.sql.catalog."):
                spark_conf.set(key, value)
        self._hadoop = spark.deploy.SparkHadoopUtil.get().newConfiguration(spark_conf)
        for key, value in self._conf.items():
            if not key.startswith("spark."):
                self._hadoop.set(key, value)
        context = jvm.org.apache.iceberg.EnvironmentContext
        context.put("engine-name", "spark")
        context.put("engine-version", spark_version)
        context.put("app-name", self._conf["spark.app.name"])

    def of(self, name: str) -> Any:
        """The catalog of this name."""
        with self._lock:
            if name not in self._catalogs:
                prefix = f"spark.sql.catalog.{name}."
                jvm = self._jvm
                properties = jvm.java.util.TreeMap(jvm.java.lang.String.CASE_INSENSITIVE_ORDER)
                for key, value in self._conf.items():
                    if key.startswith(prefix):
                        properties.put(key.removeprefix(prefix), value)
                build = self._jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog
                self._catalogs[name] = build(name, properties, self._hadoop)
            return self._catalogs[name]
