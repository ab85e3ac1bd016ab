"""Tasks that find deleted rows: which batches have them, their constants, and their share of a Spark task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iceberg_maint.columnar.task import DeletedPositionsTask, EqualityDelete, InputFile
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RowWriter
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy, RewriteStrategy
from iceberg_maint.engines.spark.rewrite.columnar import key_positions
from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import NotColumnarError
from iceberg_maint.engines.spark.rewrite.columnar.key_positions import (
    _Tasks,
    _work_bytes,
    find_deleted_positions,
)
from iceberg_maint_tests.support.batches import with_work
from iceberg_maint_tests.support.ledger.values import CONVERT, make_batch


def test_work_is_eight_bytes_for_each_row_and_key() -> None:
    task = DeletedPositionsTask(
        inputs=(InputFile("a", 1000, 5, 1), InputFile("b", 1000, 7, 1)),
        deletes=(EqualityDelete("c", 1000, 3, 2, (1,)),),
        schema="{}",
    )
    assert _work_bytes(task) == 120


AUTO, COLUMNAR, NATIVE = RewriteStrategy.AUTO, RewriteStrategy.COLUMNAR, RewriteStrategy.NATIVE
CONVERSION = make_batch("day=1", operation=CONVERT)
COLUMNAR_REWRITE = with_work(make_batch("day=1"), writer=RowWriter(columnar=True))


@pytest.mark.parametrize(
    ("strategy", "batch", "why"),
    [
        (NATIVE, CONVERSION, "the strategy is native"),
        (AUTO, CONVERSION, "the strategy is auto"),
        (COLUMNAR, CONVERSION, "no workers"),
        (AUTO, COLUMNAR_REWRITE, "no workers"),
    ],
)
def test_workers_find_deleted_rows_by_the_strategy_or_for_a_columnar_batch(
    strategy: RewriteStrategy, batch: Batch, why: str
) -> None:
    bridge: Any = SimpleNamespace(once=lambda _: SimpleNamespace(problem=lambda: "no workers"))
    table: Any = None
    policy = Policy(rewrite_data_files=RewriteDataFilesPolicy(strategy=strategy))
    with pytest.raises(NotColumnarError, match=f"^{why}$"):
        find_deleted_positions(bridge, table, batch, [], {}, policy)


@pytest.mark.parametrize(
    ("transform", "source_id", "expected"),
    [("identity", 1, {1: "a"}), ("identity", 2, {}), ("bucket[4]", 1, {})],
)
def test_constants_of_tasks_are_read_if_a_key_is_an_identity_partition_value(
    transform: str, source_id: int, expected: dict[int, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = PartitionSpec(0, (PartitionField(1000, source_id, "p", transform, "string"),))
    java = SimpleNamespace(specs=lambda: {0: None})
    tasks: Any = SimpleNamespace(_bridge=None, _specs={0: spec}, _keys={1}, _table=SimpleNamespace(java=java))
    group_tasks: Any = SimpleNamespace(
        group=SimpleNamespace(spec_id=0),
        tasks=SimpleNamespace(get=lambda _: SimpleNamespace(file=lambda: None)),
    )
    read: list[str] = []

    def content(*_: object) -> dict[str, Any]:
        read.append("content")
        return {"partition": ["a"]}

    monkeypatch.setattr(key_positions, "json_spec", lambda *_: None)
    monkeypatch.setattr(key_positions, "content_of_file", content)
    assert _Tasks._constants(tasks, group_tasks) == expected
    assert read == (["content"] if expected else [])
