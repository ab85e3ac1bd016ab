"""Tables with position deletes, and the batch that merges them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from iceberg_maint.core.health.thresholds import position_delete_findings
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import CommitResult
from iceberg_maint.core.planning.file_groups import PlanInputs
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.rewrite_position_delete_files import plan_position_deletes
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.engines.spark.commit.rewrite_files import commit_batch
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.support.spark.equality_deletes import rows_of
from iceberg_maint_tests.support.spark.rewrites import open_gate
from iceberg_maint_tests.support.spark.workshop import FULL, TARGET_BYTES, Workshop

POSITIONS = "POSITION_DELETES"


def table(shop: Workshop, *files: Iterable[int], version: int = 2, partitioned_by: str = "") -> str:
    """One data file for each range of ids."""
    name = shop.new_name("merge")
    java = shop.writers.create(name, version=version, partitioned_by=partitioned_by)
    for ids in files:
        shop.writers.append(java, rows_of(ids))
    return name


def paths(shop: Workshop, name: str) -> list[str]:
    return [str(f.location()) for f in shop.writers.files(shop.writers.load(name))]


def mark(shop: Workshop, name: str, positions: Mapping[str, Iterable[int]], **place: Any) -> Any:
    return shop.writers.delete_at(shop.writers.load(name), positions, **place)


def swap(java: Any, old: Any, new: Any, number: int | None = None) -> None:
    """Another's rewrite of one data file."""
    rewrite = java.newRewrite().validateFromSnapshot(java.currentSnapshot().snapshotId())
    if number is not None:
        rewrite.dataSequenceNumber(number)
    rewrite.deleteFile(old).addFile(new).commit()


def planned(shop: Workshop, name: str, *keys: str, force: bool = True) -> Batch:
    """The batch for these partitions, all by default."""
    state = shop.catalog.pin(TableId.parse(name))
    measured = shop.catalog.measure(state, RewriteDataFilesPolicy())
    due = []
    for key in keys or tuple(measured.partitions):
        found = tuple(
            position_delete_findings(
                measured.partitions[key], FULL.rewrite_position_delete_files, state.format_version
            )
        )
        due.append(
            PartitionDecision(key, Verdict.RUN, Reason.FORCED if force else Reason.POSITION_DELETES, found)
        )
    operation = Operation.REWRITE_POSITION_DELETE_FILES
    decision = Decision(name, operation, Verdict.RUN, Reason.FORCED, None, tuple(due))
    live = shop.catalog.live_files(state, keys or tuple(measured.partitions))
    [batch] = plan_position_deletes(PlanInputs(state, decision, live, FULL, TARGET_BYTES)).batches
    return batch


def twice_marked(shop: Workshop, version: int = 2) -> tuple[str, str, str]:
    name = table(shop, range(10), range(10, 20))
    a, b = paths(shop, name)
    mark(shop, name, {a: [0], b: [0]})
    mark(shop, name, {a: [1]})
    if version == 3:
        shop.sql(
            f"alter table {name} set tblproperties ('format-version'='3', 'write.delete.mode'='merge-on-read')"
        )
    return name, a, b


def registered_again(shop: Workshop, name: str, path: str) -> None:
    """Another removes the data file and registers the same path: with a sequence number of its own."""
    java = shop.writers.load(name)
    [file] = [f for f in shop.writers.files(java) if str(f.location()) == path]
    java.newDelete().deleteFile(file).commit()
    java.newAppend().appendFile(file).commit()


def unguarded(shop: Workshop, batch: Batch, written: Written) -> CommitResult:
    """The commit as if the gate had no rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_batch, "__kwdefaults__", {**commit_batch.__kwdefaults__, "check": open_gate})
        return shop.commit(batch, written)
