"""A Spark session with Iceberg's and Spark's own defaults, as a stock user of either starts it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
CACHE = PROJECT / ".cache"
STOCK_OPTIONS = {"delete-file-threshold": "1", "remove-dangling-deletes": "true"}
"""Options with which stock's `rewrite_data_files` applies every delete file, and drops those that no data file needs."""


def stock_session(catalog: Path, warehouse: Path, heap: str, scratch: Path) -> Any:
    """A session with nothing set but what the catalog, the heap and silence need."""
    from pyspark.sql import SparkSession

    from iceberg_maint.engines.spark.session.jars import ivy_fetch, load_lock, resolve_jars
    from iceberg_maint.engines.spark.session.java import find_java, quiet_home
    from iceberg_maint.engines.spark.session.settings import EXTENSIONS, catalog_conf

    java = find_java(os.environ, shim_dir=CACHE / "java")
    os.environ["JAVA_HOME"] = str(quiet_home(java, CACHE / "java"))
    jars = resolve_jars(load_lock().jars, CACHE / "jars", ivy_fetch(java))
    logging = (PROJECT / "iceberg_maint" / "engines" / "spark" / "session" / "log4j2.json").as_uri()
    conf = {
        **catalog_conf("lake", "jdbc", f"sqlite:///{catalog}", f"file://{warehouse}", {}),
        "spark.master": "local[2]",
        "spark.driver.memory": heap,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(scratch),
        "spark.sql.extensions": EXTENSIONS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
