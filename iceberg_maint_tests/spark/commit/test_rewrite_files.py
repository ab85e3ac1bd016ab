"""One commit per batch on real tables: what is legal passes, and every end has its class."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.commits.change import MetadataReader
from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    FENCE_PROPERTY,
    PROOF_PROPERTY,
    RUN_PROPERTY,
    TOKEN_PROPERTY,
)
from iceberg_maint.core.outcomes.outcome import CommitStatus, Rejection
from iceberg_maint.engines.spark.commit.gate import Gate
from iceberg_maint.engines.spark.commit.retry import Backoff
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.errors import FenceLostError
from iceberg_maint_tests.support.spark.rewrites import READER, Output, Rewrite, prepare
from iceberg_maint_tests.support.spark.writers import Writers

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]

A, B, C, D = ({"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}, {"id": 4, "v": "d"})
_names = itertools.count()


@pytest.fixture(scope="module")
def writers(spark: SparkSession) -> Writers:
    return Writers(Bridge(spark))


def rewrite_of_all(writers: Writers, *, version: int = 2) -> tuple[str, Any, Rewrite]:
    """Files (1, 2) and (3), to be written as one."""
    name = f"lake.commit.t{next(_names)}"
    table = writers.create(name, version=version)
    writers.append(table, [A, B])
    writers.append(table, [C])
    table.refresh()
    return name, table, prepare(writers, name, Output(writers.files(table), [A, B, C]))


def ids(writers: Writers, name: str) -> list[int]:
    return [row[0] for row in writers.rows(name)]


def snapshots(writers: Writers, name: str) -> int:
    return sum(1 for _ in writers.bridge.iterate(writers.load(name).snapshots()))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_commit_of_a_quiet_table_is_committed(writers: Writers, version: int) -> None:
    name, _, rewrite = rewrite_of_all(writers, version=version)
    tried: list[tuple[int, str]] = []
    result = rewrite.commit(context=rewrite.context(record_try=lambda *given: tried.append(given)))

    head = writers.load(name).currentSnapshot()
    assert (result.status, result.tries) == (CommitStatus.COMMITTED, 1)
    assert (result.snapshot_id, result.base_snapshot_id) == (head.snapshotId(), rewrite.batch.snapshot_id)
    assert [base for base, _ in tried] == [rewrite.batch.snapshot_id]
    assert tried[0][1].endswith(".metadata.json")
    assert ids(writers, name) == [1, 2, 3]
    assert [f.location() for f in writers.files(writers.load(name))] == [rewrite.written.files[0].path]
    summary = head.summary()
    assert head.operation() == "replace"
    assert summary.get(TOKEN_PROPERTY) == "token-1"
    assert summary.get(FENCE_PROPERTY) == "7"
    assert summary.get(RUN_PROPERTY) == "run-1"
    assert summary.get(BATCH_PROPERTY) == rewrite.batch.batch_id
    assert '"equal":true' in summary.get(PROOF_PROPERTY)


def test_commit_with_all_rows_deleted_adds_no_file(writers: Writers) -> None:
    name = f"lake.commit.t{next(_names)}"
    table = writers.create(name)
    first = writers.append(table, [A])
    writers.append(table, [B])
    writers.delete_at(table, {first.location(): [0]})
    table.refresh()
    rewrite = prepare(writers, name, Output(writers.files(table)[:1], []))
    assert rewrite.commit().status is CommitStatus.COMMITTED
    assert ids(writers, name) == [2]
    assert [f.recordCount() for f in writers.files(writers.load(name))] == [1]


@pytest.mark.parametrize("version", [2, 3])
def test_commit_takes_deletes_of_the_sources_with_it(writers: Writers, version: int) -> None:
    name = f"lake.commit.t{next(_names)}"
    settings = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"}
    table = writers.create(name, version=version, properties=settings)
    writers.append(table, [A, B])
    writers.append(table, [C, D])
    writers.sql(f"delete from {name} where id in (2, 4)")
    table = writers.load(name)
    assert table.currentSnapshot().summary().get("total-delete-files") == "2"
    first = next(f for f in writers.files(table) if f.dataSequenceNumber() == 1)
    rewrite = prepare(writers, name, Output([first], [A]))

    assert rewrite.commit().status is CommitStatus.COMMITTED
    assert ids(writers, name) == [1, 3]
    assert writers.load(name).currentSnapshot().summary().get("total-delete-files") == "1"


@pytest.mark.variant
def test_commit_keeps_position_deletes_of_the_partition(writers: Writers) -> None:
    name = f"lake.commit.t{next(_names)}"
    table = writers.create(name)
    first = writers.append(table, [A, B])
    second = writers.append(table, [C, D])
    writers.delete_at(table, {first.location(): [1], second.location(): [1]})
    table.refresh()
    source = next(f for f in writers.files(table) if f.dataSequenceNumber() == 1)
    assert prepare(writers, name, Output([source], [A])).commit().status is CommitStatus.COMMITTED
    assert ids(writers, name) == [1, 3]


def test_commit_after_foreign_append_and_delete_elsewhere_passes(writers: Writers) -> None:
    name, table, _ = rewrite_of_all(writers)
    first, second = writers.files(table)
    rewrite = prepare(writers, name, Output([first], [A, B]))
    writers.append(table, [D])
    writers.delete_at(table, {second.location(): [0]})
    assert rewrite.commit().status is CommitStatus.COMMITTED
    assert ids(writers, name) == [1, 2, 4]


def test_commit_lost_swap_is_tried_again_on_a_fresh_table(writers: Writers) -> None:
    name, table, rewrite = rewrite_of_all(writers)
    bases: list[int] = []

    def foreign_first(base: int, location: str) -> None:
        bases.append(base)
        if len(bases) == 1:
            writers.append(writers.load(name), [D])

    waits: list[float] = []
    backoff = Backoff(2.0, 60.0, jitter=lambda: 0.5, sleep=waits.append)
    result = rewrite.commit(context=rewrite.context(record_try=foreign_first), backoff=backoff)
    table.refresh()
    assert (result.status, result.tries) == (CommitStatus.COMMITTED, 2)
    assert waits == [1.0]
    assert result.base_snapshot_id == bases[1] == table.currentSnapshot().parentId() != bases[0]
    assert ids(writers, name) == [1, 2, 3, 4]


def test_commit_after_a_lost_swap_reads_one_manifest_list_between_base_and_swap(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fast writer won every try while the gate read what it had read before."""
    name, _, rewrite = rewrite_of_all(writers)
    reads: list[str] = []
    windows: list[int] = []
    began: list[int] = []
    monkeypatch.setattr(Gate, "begin", lambda _gate: began.append(len(reads)))

    def record_try(_base: int, _location: str) -> None:
        windows.append(len(reads) - began[-1])
        if len(windows) == 1:
            writers.append(writers.load(name), [D])

    def noted(location: str, *more: Any) -> Any:
        reads.append(location)
        return READER.manifest(location, *more) if more else READER.manifest_list(location)

    reader = MetadataReader(noted, noted, READER.live_entries)
    result = rewrite.commit(context=rewrite.context(record_try=record_try), reader=reader)
    assert (result.status, result.tries) == (CommitStatus.COMMITTED, 2)
    assert windows[1] == 1 < windows[0]
    assert len(set(reads)) == len(reads)
    assert ids(writers, name) == [1, 2, 3, 4]


def test_commit_that_loses_every_swap_is_a_conflict(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    waits: list[float] = []
    backoff = Backoff(1.0, 3.0, jitter=lambda: 1.0, sleep=waits.append)
    result = rewrite.commit(
        context=rewrite.context(
            max_tries=4, record_try=lambda *_: writers.append(writers.load(name), [D]) and None
        ),
        backoff=backoff,
    )
    assert (result.status, result.rejection, result.tries) == (
        CommitStatus.REJECTED,
        Rejection.CONFLICT,
        4,
    )
    assert waits == [1.0, 2.0, 3.0]
    assert ids(writers, name) == [1, 2, 3, 4, 4, 4, 4]


def test_commit_of_files_that_others_rewrote_is_stale(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    other = prepare(writers, name, Output(rewrite.sources, [A, B, C]))
    assert other.commit(context=other.context(token="other")).status is CommitStatus.COMMITTED
    result = rewrite.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert ids(writers, name) == [1, 2, 3]


@pytest.mark.variant
def test_commit_of_next_batch_of_the_same_plan_passes(writers: Writers) -> None:
    name = f"lake.commit.t{next(_names)}"
    table = writers.create(name, version=3, properties={"write.delete.mode": "merge-on-read"})
    for row in (A, B, C, D):
        writers.append(table, [row, {"id": row["id"] + 10, "v": "x"}])
    writers.sql(f"delete from {name} where id > 10")
    table = writers.load(name)
    files = writers.files(table)
    one = prepare(writers, name, Output(files[:2], [A, B]))
    two = prepare(writers, name, Output(files[2:], [C, D]))
    assert one.commit(context=one.context(token="one")).status is CommitStatus.COMMITTED
    assert two.commit(context=two.context(token="two")).status is CommitStatus.COMMITTED
    assert ids(writers, name) == [1, 2, 3, 4]
    assert writers.load(name).currentSnapshot().summary().get("total-delete-files") == "0"


@pytest.mark.parametrize(
    "statement",
    ["alter table {} add column w int", "alter table {} rename column v to w"],
)
def test_commit_after_schema_evolution_is_stale(writers: Writers, statement: str) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    writers.sql(statement.format(name))
    result = rewrite.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert "schema" in result.message
    assert ids(writers, name) == [1, 2, 3]


@pytest.mark.variant
def test_commit_into_own_spec_after_spec_evolution_passes(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    writers.sql(f"alter table {name} add partition field bucket(4, id)")
    assert rewrite.commit().status is CommitStatus.COMMITTED
    assert ids(writers, name) == [1, 2, 3]


@pytest.mark.variant
def test_commit_after_format_upgrade_is_stale(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers, version=1)
    writers.sql(f"alter table {name} set tblproperties ('format-version'='2')")
    result = rewrite.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert "format_version" in result.message
    assert ids(writers, name) == [1, 2, 3]


@pytest.mark.variant
def test_commit_to_upgraded_table_of_v1_files_passes(writers: Writers) -> None:
    name, table, _ = rewrite_of_all(writers, version=1)
    writers.sql(f"alter table {name} set tblproperties ('format-version'='2')")
    table = writers.load(name)
    rewrite = prepare(writers, name, Output(writers.files(table), [A, B, C]))
    writers.delete_where(table, [{"id": 2}])
    writers.append(table, [D])
    result = rewrite.commit()
    assert result.rejection is Rejection.STALE
    again = prepare(writers, name, Output(writers.files(writers.load(name))[:1], [A]))
    assert again.batch.snapshot_sequence_number > 0
    assert ids(writers, name) == [1, 3, 4]


def test_commit_to_recreated_table_is_stale(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    writers.sql(f"drop table {name}")
    table = writers.create(name)
    writers.append(table, [D])
    result = rewrite.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert ids(writers, name) == [4]


def test_commit_to_dropped_table_is_stale(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    writers.sql(f"drop table {name}")
    result = rewrite.commit()
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)


def test_commit_without_the_lease_raises_before_the_swap(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    tried: list[int] = []
    context = rewrite.context(lease_is_held=lambda: False, record_try=lambda base, _: tried.append(base))
    with pytest.raises(FenceLostError):
        rewrite.commit(context=context)
    assert tried == []
    assert snapshots(writers, name) == 2


def test_commit_that_loses_the_lease_at_the_record_raises(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)

    def lost(base: int, location: str) -> None:
        raise FenceLostError("somebody else holds the lease")

    with pytest.raises(FenceLostError):
        rewrite.commit(context=rewrite.context(record_try=lost))
    assert snapshots(writers, name) == 2


def test_commit_that_cannot_be_recorded_is_not_tried(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)

    def broken(base: int, location: str) -> None:
        raise OSError("disk full")

    result = rewrite.commit(context=rewrite.context(record_try=broken))
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.ERROR)
    assert "disk full" in result.message
    assert snapshots(writers, name) == 2


def test_commit_interrupted_at_the_swap_raises_the_interrupt(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)

    def interrupted(base: int, location: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rewrite.commit(context=rewrite.context(record_try=interrupted))
    assert snapshots(writers, name) == 2
    assert rewrite.commit().status is CommitStatus.COMMITTED


class Liar:
    """A catalog whose answer at the swap is `lie`, whatever it did."""

    def __init__(self, operations: Any, lie: Callable[[Any, Any, Any], None]) -> None:
        self._operations = operations
        self._lie = lie

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def commit(self, base: Any, metadata: Any) -> None:
        self._lie(self._operations, base, metadata)

    class Java:
        implements = ("org.apache.iceberg.TableOperations",)


def with_liar(
    writers: Writers, rewrite: Rewrite, lie: Callable[[Any, Any, Any], None], *, readable: bool = True
) -> Any:
    """Commits through a lying catalog; with `readable` false the table cannot be loaded afterwards."""
    loads: list[str] = []

    def load(name: str) -> Any:
        loads.append(name)
        table = writers.load(name)
        if len(loads) > 1 and not readable:
            raise ConnectionRefusedError("catalog is away")
        if len(loads) > 1:
            return table
        return writers.iceberg.BaseTable(Liar(table.operations(), lie), name)

    with writers.bridge.callbacks():
        return rewrite.commit(load_table=load)


def swap_then_throw(operations: Any, base: Any, metadata: Any) -> None:
    operations.commit(base, metadata)
    raise TimeoutError("the answer got lost")


def test_commit_that_throws_after_the_swap_is_committed_by_its_token(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    result = with_liar(writers, rewrite, swap_then_throw)
    assert result.status is CommitStatus.COMMITTED
    assert result.snapshot_id == writers.load(name).currentSnapshot().snapshotId()
    assert ids(writers, name) == [1, 2, 3]


def test_commit_that_throws_after_the_swap_unread_is_unknown(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    result = with_liar(writers, rewrite, swap_then_throw, readable=False)
    assert result.status is CommitStatus.UNKNOWN
    assert "catalog is away" in result.message
    assert ids(writers, name) == [1, 2, 3]


def test_commit_that_is_only_said_to_be_done_is_unknown(writers: Writers) -> None:
    name, _, rewrite = rewrite_of_all(writers)
    result = with_liar(writers, rewrite, lambda *_: None)
    assert result.status is CommitStatus.UNKNOWN
    assert snapshots(writers, name) == 2


def test_commit_that_throws_something_else_is_unknown(writers: Writers) -> None:
    def throws(operations: Any, base: Any, metadata: Any) -> None:
        raise TimeoutError("no answer")

    name, _, rewrite = rewrite_of_all(writers)
    result = with_liar(writers, rewrite, throws)
    assert (result.status, result.tries) == (CommitStatus.UNKNOWN, 1)
    assert snapshots(writers, name) == 2


def test_commit_found_before_a_later_foreign_commit_is_committed(writers: Writers) -> None:
    def lie(operations: Any, base: Any, metadata: Any) -> None:
        operations.commit(base, metadata)
        writers.append(writers.load(name), [D])
        raise TimeoutError("the answer got lost")

    name, _, rewrite = rewrite_of_all(writers)
    result = with_liar(writers, rewrite, lie)
    assert result.status is CommitStatus.COMMITTED
    assert result.snapshot_id == writers.load(name).currentSnapshot().parentId()
    assert ids(writers, name) == [1, 2, 3, 4]
