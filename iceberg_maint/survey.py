"""Survey: the read-only half of the loop, from catalog to decision and plan.

`observe`, `plan`, `why` and `run` all start here; nothing in it changes a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from iceberg_maint.core.decide import decide_rewrite
from iceberg_maint.core.health import Measured
from iceberg_maint.core.history import TableHistory
from iceberg_maint.core.ids import Operation, TableId
from iceberg_maint.core.partition import decode_partition
from iceberg_maint.core.plan import Plan
from iceberg_maint.core.planner import plan_rewrite
from iceberg_maint.core.policy import Policy
from iceberg_maint.core.reasons import Decision
from iceberg_maint.core.state import TableState
from iceberg_maint.errors import UnknownTableError
from iceberg_maint.ports import Catalog, Clock, Engine, Ledger

PolicyOf = Callable[[TableState], Policy]
"""The effective policy of a table, which its properties take part in."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The outside systems one table is maintained with; `engine` starts Spark when called."""

    catalog: Catalog
    ledger: Ledger
    clock: Clock
    engine: Callable[[], Engine]


@dataclass(frozen=True, slots=True)
class Survey:
    """One table looked at: what is, what is wanted, what was, what follows."""

    state: TableState
    policy: Policy
    measured: Measured
    history: TableHistory
    decision: Decision


def survey(
    table: TableId,
    policy_of: PolicyOf,
    tools: Tools,
    *,
    requested: frozenset[str] | None = None,
    force: bool = False,
    owner: str | None = None,
) -> Survey:
    """Pins, measures, stores the health and decides.

    `owner` is the lease owner asking; its own lease does not count as somebody else's. Raises
    UnknownTableError for a table the catalog lacks or a requested partition key that the table
    cannot have.
    """
    state = tools.catalog.pin(table)
    check_partitions(state, requested)
    policy = policy_of(state)
    measured = measure(state, policy, tools)
    history = tools.ledger.history(state.uuid, str(table), Operation.REWRITE_DATA_FILES)
    if owner is not None and history.lease_owner == owner:
        history = replace(history, lease_owner=None)
    decision = decide_rewrite(
        measured,
        state.format_version,
        policy,
        history,
        tools.clock.now_ms(),
        requested=requested,
        force=force,
    )
    return Survey(state, policy, measured, history, decision)


def measure(state: TableState, policy: Policy, tools: Tools) -> Measured:
    """Measures a pinned table and stores it."""
    measured = tools.catalog.measure(state, policy.rewrite_data_files)
    tools.ledger.put_health(measured)
    return measured


def make_plan_for(seen: Survey, tools: Tools) -> Plan:
    """The plan of what the decision says RUN; the very object `run` executes."""
    due = [p.partition for p in seen.decision.due()]
    live = tools.catalog.live_files(seen.state, due) if due else ()
    return plan_rewrite(seen.state, seen.decision, live, seen.policy, seen.measured.target_file_size_bytes)


def check_partitions(state: TableState, requested: frozenset[str] | None) -> None:
    """Refuses keys that no partition of this table can have; one without files is fine."""
    for key in sorted(requested or ()):
        try:
            decode_partition(key, state.specs, state.first_spec_id)
        except ValueError as why:
            raise UnknownTableError(
                "ICM-126",
                f"{state.table} has no partition {why}.",
                f"list the keys with 'iceberg-maint observe {state.table}'.",
            ) from why
