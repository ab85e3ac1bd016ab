"""Broken metadata whose snapshots are each other's ancestors: a look at the history ends all the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from iceberg_maint.core.commits.change import Lineage
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY
from iceberg_maint.engines.spark.commit.gate import lineage
from iceberg_maint.engines.spark.commit.retry import snapshot_with_token

pytestmark = pytest.mark.timeout(10)


@dataclass
class Snapshot:
    """As much of a Java `Snapshot` as a history asks for."""

    number: int
    parent: int | None
    properties: dict[str, str] = field(default_factory=dict)

    def snapshotId(self) -> int:
        return self.number

    def parentId(self) -> int | None:
        return self.parent

    def summary(self) -> dict[str, str]:
        return self.properties


class Ring:
    """A table at snapshot 2, whose parent is 1, whose parent is 2; 3 is staged beside them."""

    def __init__(self) -> None:
        self.all = {n: Snapshot(n, 3 - n) for n in (1, 2)} | {3: Snapshot(3, 1, {TOKEN_PROPERTY: "t"})}

    def currentSnapshot(self) -> Snapshot:
        return self.all[2]

    def snapshot(self, number: int) -> Snapshot | None:
        return self.all.get(number)

    def snapshots(self) -> list[Snapshot]:
        return list(self.all.values())


class Parser:
    """Iceberg's `SnapshotParser`."""

    @staticmethod
    def toJson(snapshot: Snapshot) -> str:
        return json.dumps({"snapshot-id": snapshot.number, "parent-snapshot-id": snapshot.parent})


BRIDGE: Any = SimpleNamespace(iceberg=SimpleNamespace(SnapshotParser=Parser), iterate=list)


def test_lineage_of_ring_that_never_comes_to_pinned_snapshot_ends_without_it() -> None:
    found = lineage(BRIDGE, Ring(), (), 9)
    assert isinstance(found, Lineage)
    assert (found.pinned_exists, found.reaches_pinned) == (False, False)
    assert [one.snapshot_id for one in found.since] == [2, 1]


@pytest.mark.parametrize(("token", "found"), [("t", 3), ("other", None)])
def test_token_is_looked_for_in_all_snapshots_of_ring_that_never_comes_to_base(
    token: str, found: int | None
) -> None:
    assert snapshot_with_token(BRIDGE, token, Ring(), 9) == found


class Line(Ring):
    """A table at snapshot 2, whose parent is 1, which has none; 3 is staged beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.all[1].parent = None


@pytest.mark.parametrize(("base", "found"), [(1, None), (9, 3)])
def test_token_is_looked_for_beside_the_history_only_if_that_never_comes_to_base(
    base: int, found: int | None
) -> None:
    assert snapshot_with_token(BRIDGE, "t", Line(), base) == found
