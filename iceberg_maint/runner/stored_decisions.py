"""Decisions on the data of a table from its stored health, without the catalog."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint.core.decisions.combine import combine_decisions
from iceberg_maint.core.decisions.decide import decide, findings_of, other_data_operation
from iceberg_maint.core.decisions.foreign_maintainers import coexistence_policy
from iceberg_maint.core.decisions.history import TableHistory, combine_histories
from iceberg_maint.core.decisions.readers import readers_policy
from iceberg_maint.core.decisions.unsupported_types import SPARK_4, RowTypes
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.ledger import Ledger


def decide_stored(
    measured: Measured, policy: Policy, ledger: Ledger, now_ms: int, readers: RowTypes = SPARK_4
) -> tuple[TableHistory, Decision]:
    """Returns history and decision on a table's data from its stored health, without the catalog."""
    histories, decisions = stored_decisions(measured, policy, ledger, now_ms, readers)
    return combine_histories(histories), combine_decisions(decisions)


def stored_decisions(
    measured: Measured, policy: Policy, ledger: Ledger, now_ms: int, readers: RowTypes = SPARK_4
) -> tuple[tuple[TableHistory, ...], tuple[Decision, ...]]:
    """Returns histories and decisions of each operation on a table's data, from its stored health."""
    stored = ledger.histories({measured.table_uuid: str(measured.table)})
    histories = {o: stored[measured.table_uuid, o] for o in DATA_OPERATIONS}
    return tuple(histories.values()), decisions_of(measured, policy, histories, now_ms, readers)


def decisions_of(
    measured: Measured,
    policy: Policy,
    histories: Mapping[Operation, TableHistory],
    now_ms: int,
    readers: RowTypes = SPARK_4,
) -> tuple[Decision, ...]:
    """Returns the decisions of the operations in `histories`, from stored health."""
    policy = coexistence_policy(readers_policy(policy, measured), measured.foreign, now_ms)
    findings = findings_of(measured, policy, now_ms)
    decisions = []
    for operation, history in histories.items():
        other = other_data_operation(operation)
        decisions.append(
            decide(
                operation,
                measured,
                measured.format_version,
                policy,
                history,
                now_ms,
                beside=histories[other] if other else None,
                readers=readers,
                findings=findings,
            )
        )
    return tuple(decisions)
