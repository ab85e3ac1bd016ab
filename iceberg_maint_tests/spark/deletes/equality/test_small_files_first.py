"""Small files that are rewritten before the equality deletes of the others are converted: real tables, and writers that
commit between the two steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy, RewriteStrategy, Route
from iceberg_maint_tests.support.spark.equality.maintainer import Maintainer, policy_of
from iceberg_maint_tests.support.spark.equality.reference import Twin

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]

CONVERT, REWRITE = DATA_OPERATIONS[:2]
COLUMNS = "tag int, k int, s string, padding string"
HEALTHY_ROWS = 64


def healthy_file(twin: Twin, part: str) -> None:
    """Few rows, which the model compares one by one, of texts that do not compress."""
    random = Random(1)
    twin.append(*({"k": i, "s": part, "padding": random.randbytes(200).hex()} for i in range(HEALTHY_ROWS)))


def upserts(twin: Twin, part: str, count: int = 3) -> None:
    """Each a file of deletes and a small data file: of an old row, a row of the upsert before, and a new row."""
    for n in range(count):
        twin.upsert(["k", "s"], *({"k": k, "s": part} for k in (7 * n, 100_000, 200_000 + n)))


def worn(maintainer: Maintainer, version: int, parts: Sequence[str] = ("a", "b")) -> Twin:
    """Partitions of a healthy file and small ones under equality deletes."""
    twin = maintainer.create(COLUMNS, version=version, partitioned_by="s")
    for part in parts:
        healthy_file(twin, part)
    for part in parts:
        upserts(twin, part)
    return twin


def policy(twin: Twin, **rewrite: object) -> Policy:
    """Files of the size of the largest are healthy, two small ones are due."""
    sizes = [Path(path.removeprefix("file:")).stat().st_size for path in twin.data_files()]
    asks = {"min_input_files": 2, "target_file_size_bytes": max(sizes), "strategy": RewriteStrategy.COLUMNAR}
    return policy_of(Route.AUTO, **{**asks, **rewrite})


def steps(outcomes: Sequence[OperationOutcome]) -> list[tuple[Operation, list[int]]]:
    """The operations with work, and the input files of their batches."""
    return [(o.operation, [b.input_files for b in o.batches]) for o in outcomes if o.batches]


def healthy_paths(twin: Twin) -> set[str]:
    return {path for path in twin.data_files() if Path(path.removeprefix("file:")).stat().st_size > 8_000}


@pytest.mark.variant
def test_small_files_first_and_the_rest_is_converted(maintainer: Maintainer, version: int) -> None:
    twin = worn(maintainer, version)
    healthy = healthy_paths(twin)
    assert len(healthy) == 2
    outcomes = maintainer.heal(twin, policy(twin))
    assert steps(outcomes) == [(REWRITE, [6]), (CONVERT, [2])]
    assert twin.live_equality_deletes() == {}
    assert healthy < twin.data_files()
    assert len(twin.data_files()) == 4
    # Marks are of the healthy files alone.
    marked = {
        str(delete.referencedDataFile())
        for task in twin.writers.tasks(twin.table)
        for delete in twin.writers.bridge.iterate(task.deletes())
    }
    assert marked == healthy


@pytest.mark.variant
def test_small_files_first_then_nothing_is_due(maintainer: Maintainer, version: int) -> None:
    twin = worn(maintainer, version)
    kept = policy(twin)
    maintainer.heal(twin, kept)
    assert steps(maintainer.heal(twin, kept)) == []


@pytest.mark.variant
def test_small_files_first_cycle_after_cycle(maintainer: Maintainer, version: int) -> None:
    """The positions of earlier cycles are taken over."""
    twin = worn(maintainer, version, ("a",))
    kept = policy(twin)
    for _ in range(3):
        outcomes = maintainer.heal(twin, kept)
        assert [operation for operation, _ in steps(outcomes)] == [REWRITE, CONVERT]
        assert twin.live_equality_deletes() == {}
        upserts(twin, "a", 2)


@pytest.mark.variant
def test_small_files_first_under_deletes_of_an_unpartitioned_spec(
    maintainer: Maintainer, version: int
) -> None:
    """Such a delete applies to the files of every spec."""
    twin = maintainer.create(COLUMNS, version=version)
    healthy_file(twin, "x")
    twin.partition_by("s")
    healthy_file(twin, "a")
    for n in range(3):
        twin.append({"k": 300 + n, "s": "a"}, {"k": 5, "s": "b"}, {"k": 6, "s": "b"})
    twin.delete({"k": 3}, {"k": 301}, {"k": 5}, spec_id=0)
    twin.append({"k": 3, "s": "a"}, {"k": 5, "s": "b"})
    outcomes = maintainer.heal(twin, policy(twin))
    assert [operation for operation, _ in steps(outcomes)] == [REWRITE, CONVERT]
    assert twin.live_equality_deletes() == {}


@pytest.mark.variant
def test_small_files_first_with_older_position_deletes(maintainer: Maintainer, version: int) -> None:
    twin = worn(maintainer, version, ("a",))
    twin.delete_rows(11, 12, HEALTHY_ROWS + 3)
    upserts(twin, "a", 2)
    outcomes = maintainer.heal(twin, policy(twin))
    assert [operation for operation, _ in steps(outcomes)] == [REWRITE, CONVERT]
    assert twin.live_equality_deletes() == {}


@pytest.mark.variant
def test_native_converts_all_files_first(maintainer: Maintainer, version: int) -> None:
    """No delete applies to the last small file of a partition."""
    twin = worn(maintainer, version)
    outcomes = maintainer.heal(twin, policy(twin, strategy=RewriteStrategy.NATIVE))
    assert steps(outcomes)[0] == (CONVERT, [6])
    assert twin.live_equality_deletes() == {}


def at_batch(number: int, write: Callable[[], object]) -> Callable[[Batch], None]:
    """Others who write between the write of a batch and its commit: of the first or the second one."""
    batches: list[Batch] = []

    def between(batch: Batch) -> None:
        batches.append(batch)
        if len(batches) == number:
            write()

    return between


@pytest.mark.variant
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("write", ["delete", "append", "upsert", "positions"])
def test_writer_between_the_steps_loses_nothing(
    maintainer: Maintainer, version: int, batch: int, write: str
) -> None:
    """Newer deletes apply to rewritten files and to healthy ones. Older ones, which the healthy files need, do not apply to
    rows that the writer added since."""
    twin = worn(maintainer, version, ("a",))
    writes: dict[str, Callable[[], object]] = {
        "delete": lambda: twin.delete(
            {"k": 100_000, "s": "a"}, {"k": 9, "s": "a"}, {"k": 200_001, "s": "a"}, partition=("a",)
        ),
        "append": lambda: twin.append({"k": 0, "s": "a"}, {"k": 100_000, "s": "a"}),
        "upsert": lambda: twin.upsert(["k", "s"], {"k": 0, "s": "a"}, {"k": 100_000, "s": "a"}),
        "positions": lambda: twin.delete_rows(20, HEALTHY_ROWS + 2),
    }
    kept = policy(twin)
    maintainer.heal(twin, kept, between=at_batch(batch, writes[write]))
    for _ in range(2):
        maintainer.heal(twin, kept)
    assert twin.live_equality_deletes() == {}


@pytest.mark.variant
def test_conversion_that_is_asked_for_alone_takes_all_files(maintainer: Maintainer, version: int) -> None:
    twin = worn(maintainer, version)
    kept = policy(twin)
    [outcome] = maintainer.maintain(twin, kept, operations=(REWRITE,))
    assert (outcome.outcome, outcome.batches) == (OutcomeStatus.NO_OP, ())
    [outcome] = maintainer.maintain(twin, kept, operations=(CONVERT,))
    assert [b.input_files for b in outcome.batches] == [6]
    twin.check()
    assert twin.live_equality_deletes() == {}
