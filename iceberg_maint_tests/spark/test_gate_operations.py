"""What the gate answers Iceberg of the table, and how often it asks itself: each time is a way to the JVM and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from iceberg_maint.spark.gate import Gate, GateRefusedError


@dataclass
class Metadata:
    """As much of a Java `TableMetadata` as a commit asks for."""

    number: int

    def currentSnapshot(self) -> Metadata:
        return self

    def snapshotId(self) -> int:
        return self.number

    def metadataFileLocation(self) -> str:
        return f"v{self.number}"


@dataclass
class Operations:
    """A table of numbered versions; `asked` are the calls."""

    version: int = 1
    asked: list[str] = field(default_factory=list)

    def current(self) -> Metadata:
        self.asked.append("current")
        return Metadata(self.version)

    def refresh(self) -> Metadata:
        self.asked.append("refresh")
        return Metadata(self.version)

    def io(self) -> str:
        self.asked.append("io")
        return "io"

    def commit(self, _base: Any, _metadata: Any) -> None:
        self.version += 1


@pytest.fixture
def operations() -> Operations:
    return Operations()


@pytest.fixture
def gate(operations: Operations) -> Gate:
    return Gate(None, operations, lambda *_: (), lambda: True, lambda *_: None)  # type: ignore[arg-type]


def test_table_is_asked_once_for_what_stays(gate: Gate, operations: Operations) -> None:
    assert {gate.current().number for _ in range(3)} == {1}
    assert {gate.io() for _ in range(3)} == {"io"}
    assert operations.asked == ["current", "io"]


def test_refreshed_table_is_current(gate: Gate, operations: Operations) -> None:
    assert gate.current().number == 1
    operations.version = 2
    assert gate.refresh().number == 2
    assert gate.current().number == 2
    assert operations.asked == ["current", "refresh"]


def test_commit_makes_what_was_current_old(gate: Gate) -> None:
    base = gate.current()
    gate.commit(base, Metadata(2))
    assert gate.current().number == 2


def test_gate_is_good_for_one_commit(gate: Gate) -> None:
    gate.commit(gate.current(), Metadata(2))
    with pytest.raises(GateRefusedError):
        gate.commit(gate.current(), Metadata(3))
