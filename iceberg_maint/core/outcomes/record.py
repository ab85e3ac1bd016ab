"""Record: the append-only account of one operation on one table in one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_maint.core.outcomes.outcome import OperationOutcome


@dataclass(frozen=True, slots=True)
class Record:
    """The plan, the outcome, the policy digest, the versions and the owner of one run. A written record
    never changes."""

    record_id: str
    run_id: str
    table: str
    table_uuid: str
    operation: str
    started_ms: int
    ended_ms: int
    plan_id: str | None
    policy_digest: str
    versions: Mapping[str, str]
    outcome: OperationOutcome
