"""Errors of Spark as errors with a code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from iceberg_maint.engines.spark.deletes.keys import NULL_KEYS
from iceberg_maint.engines.spark.write_failures import write_failure


def test_null_keys_that_metadata_denies_are_a_refusal_that_names_a_delete_file() -> None:
    batch: Any = SimpleNamespace(table="lake.db.t", equality_deletes=[SimpleNamespace(path="d.parquet")])
    error = write_failure(
        batch, RuntimeError(f"[USER_RAISED_EXCEPTION] {NULL_KEYS} SQLSTATE: P0001"), str, str, str
    )
    assert str(error) == (
        "ICM-119 lake.db.t: an equality delete has NULL keys, and its metadata says it has none: d.parquet, so not every "
        "reader applies it. Fix: remove the delete file from the table, and have the engine that wrote it delete its rows again."
    )
