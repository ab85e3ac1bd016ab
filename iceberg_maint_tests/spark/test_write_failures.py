"""Errors of Spark as errors with a code."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from iceberg_maint.engines.spark import write_failures
from iceberg_maint.engines.spark.deletes.keys import NULL_KEYS
from iceberg_maint.engines.spark.write_failures import unreadable_file, write_failure


def test_null_keys_that_metadata_denies_are_a_refusal_that_names_a_delete_file() -> None:
    batch: Any = SimpleNamespace(table="lake.db.t", equality_deletes=[SimpleNamespace(path="d.parquet")])
    error = write_failure(
        batch, RuntimeError(f"[USER_RAISED_EXCEPTION] {NULL_KEYS} SQLSTATE: P0001"), str, str, str
    )
    assert str(error) == (
        "ICM-119 lake.db.t: an equality delete has NULL keys, and its metadata says it has none: d.parquet, so not every "
        "reader applies it. Fix: remove the delete file from the table, and have the engine that wrote it delete its rows again."
    )


@pytest.mark.parametrize("count", range(1, 8))
def test_unreadable_file_is_found_wherever_it_is_among_the_files_of_a_batch(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"{number}.parquet" for number in range(count)]
    read: list[str] = []

    def is_read(_bridge: Any, _table: Any, files: Sequence[Any]) -> bool:
        assert files
        read.extend(file.location() for file in files)
        return wrong not in read[-len(files) :]

    tasks = SimpleNamespace(stream=lambda: SimpleNamespace(map=lambda _: None))
    functions = SimpleNamespace(
        task_file=None, to_list=lambda _: [SimpleNamespace(location=lambda path=p: path) for p in paths]
    )
    bridge: Any = SimpleNamespace(once=lambda _: functions, iterate=iter)
    table: Any = SimpleNamespace(java=None)
    batch: Any = None
    monkeypatch.setattr(write_failures, "plan_tasks", lambda *_: [SimpleNamespace(tasks=tasks)])
    monkeypatch.setattr(write_failures, "_is_read", is_read)
    for wrong in paths:
        read.clear()
        assert unreadable_file(bridge, table, batch) == wrong
        assert len(read) <= count + 1
    wrong = ""
    read.clear()
    assert unreadable_file(bridge, table, batch) == ""
    assert sorted(set(read)) == paths
