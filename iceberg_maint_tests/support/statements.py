"""Batches of a small table, for the statements of engines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.plan import Batch, batch_at
from iceberg_maint.core.planning.work import (
    FileGroup,
    InputFile,
    RewriteDataFiles,
    RewriteManifests,
)
from iceberg_maint.core.policy.engines import EngineSettings
from iceberg_maint_tests.support.core.values import small
from iceberg_maint_tests.support.fakes.catalog import UNPARTITIONED, fake_table


def settings(uri: str, **parts: object) -> EngineSettings:
    """The settings of an engine at this address."""
    all_parts: dict[str, object] = {"user": "me", "password": None, "catalogs": {}, "timeout_seconds": 5.0}
    return EngineSettings(uri, **(all_parts | parts))  # type: ignore[arg-type]


def state_of(
    transform: str = "", result: str = "string", source: str | None = None, name: str = "lake.db.t"
) -> TableState:
    """The state of a table that is partitioned by its column `p`, or is not partitioned."""
    spec = UNPARTITIONED
    if transform:
        spec = PartitionSpec(0, (PartitionField(1000, 2, "p_part", transform, result),))
    state = fake_table("lake.db.t", small(1, partition="__all__"), specs=(spec,)).state
    return replace(
        state,
        table=TableId.parse(name),
        key_types={1: "long", 2: source or result},
        column_ids={"id": 1, "p": 2},
    )


def rewrite(
    state: TableState, partitions: Iterable[str] = ("__all__",), sizes: Iterable[int] = (10, 20)
) -> Batch:
    """A batch of files of these sizes in each of the partitions, with a target of 1000 bytes."""
    groups = tuple(
        FileGroup(PartitionKey(p), 0, 0, tuple(InputFile(f"{p}/{s}", s, 1, 1) for s in sizes), 1)
        for p in partitions
    )
    return batch_at(state, RewriteDataFiles(groups), frozenset(), 1000)


def manifests(state: TableState) -> Batch:
    """A batch that regroups manifests."""
    return batch_at(state, RewriteManifests(("m1", "m2")), frozenset({"m1"}))


def texts(statements: Iterable[object]) -> list[tuple[str, Mapping[str, str]]]:
    """The statements as plain values."""
    return [(s.text, dict(s.settings)) for s in statements]  # type: ignore[attr-defined]
