"""The memory that a configuration declares to Spark, as the context has it."""

from __future__ import annotations

from pathlib import Path

from iceberg_maint.config import load_config
from iceberg_maint.core.planning.spark_memory import DeclaredMemory
from iceberg_maint.wiring.adapters import build

GIB = 1024**3
CONFIG = """\
ledger: sqlite:///{folder}/ledger.db
catalogs:
  lake: {{type: jdbc, uri: "sqlite:///{folder}/catalog.db", warehouse: "file://{folder}/wh"}}
spark:
  master: spark://127.0.0.1:7077
  conf: {{spark.executor.memory: 3g, spark.executor.cores: 2}}
"""


def test_context_has_the_memory_of_its_configuration_and_not_of_another_session(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(folder=tmp_path), encoding="utf-8")
    context = build(load_config(file, {}))
    # The driver's memory is the program's default.
    assert context.engine.spark.memory == DeclaredMemory(3 * GIB, 2 * GIB, 2)
    assert context.on_session(lambda: None).engine.spark.memory is None
