"""The verdict on a table, which every screen, check and exit code shows: measured, refused or failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.decisions.history import FAULTY_CRASHES, Fault, PartitionHistory
from iceberg_maint.core.model.ids import READING, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Reason

_CODE = re.compile(r"ICM-\d+")
_REFUSALS = frozenset({"ICM-115", "ICM-119", "ICM-124", "ICM-135", "ICM-180", "ICM-182", "ICM-183"})
"""Codes of operations on data that are refused."""
_NO_FAULT = frozenset(r.value for r in Reason)
"""Attempts that gained nothing or lost to other commits store their reason, attempts that failed a message."""


class Standing(StrEnum):
    """NOT_READ: never measured. MEASURED: measured, and nothing failed since. REFUSED: the table cannot be read, or an
    operation is refused with a code. FAILED: the last attempt at an operation failed."""

    NOT_READ = "not_read"
    MEASURED = "measured"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """The standing of a table and its faults, the most severe first."""

    standing: Standing
    faults: tuple[Fault, ...] = ()

    @property
    def message(self) -> str:
        """The message of the most severe fault: code, file, rule and fix. Empty without a fault."""
        return self.faults[0].history.reason if self.faults else ""

    @property
    def code(self) -> str | None:
        """The code of the most severe fault. None without a fault, and for an error without a code."""
        found = _CODE.match(self.message)
        return found.group() if found else None

    @property
    def until_ms(self) -> int | None:
        """When the most severe fault is tried again. None without a fault, and if it waits for a person."""
        return None if not self.faults or self.is_held else self.faults[0].history.not_before_ms

    @property
    def is_held(self) -> bool:
        """Whether the most severe fault waits until a person releases it."""
        return bool(self.faults) and self.faults[0].history.quarantined


def verdict_on(is_measured: bool, faults: Iterable[Fault]) -> TableVerdict:
    """Returns the verdict on a table whose health is stored or not, from its faults."""
    ordered = tuple(sorted(faults, key=_gravity))
    if ordered:
        return TableVerdict(Standing.REFUSED if _is_refusal(ordered[0]) else Standing.FAILED, ordered)
    return TableVerdict(Standing.MEASURED if is_measured else Standing.NOT_READ)


def faults_of(histories: Mapping[str, Mapping[PartitionKey, PartitionHistory]]) -> tuple[Fault, ...]:
    """Returns the faults in the histories of a table, by operation."""
    return tuple(
        Fault(operation, partition, history)
        for operation, partitions in histories.items()
        for partition, history in partitions.items()
        if _is_fault(history)
    )


def _is_fault(history: PartitionHistory) -> bool:
    if history.reason in _NO_FAULT:
        return False
    is_coded = _CODE.match(history.reason) is not None
    return is_coded or history.quarantined or history.ineffective > 0 or history.crashes >= FAULTY_CRASHES


def _is_refusal(fault: Fault) -> bool:
    code = _CODE.match(fault.history.reason)
    if code is None:
        return False
    return fault.operation in (READING, Operation.REMOVE_ORPHAN_FILES) or code.group() in _REFUSALS


def _gravity(fault: Fault) -> tuple[bool, bool, bool, str, str]:
    """What cannot be read comes first, then failures, then refusals."""
    return (
        fault.operation != READING,
        _is_refusal(fault),
        not fault.history.quarantined,
        fault.operation,
        fault.partition,
    )
