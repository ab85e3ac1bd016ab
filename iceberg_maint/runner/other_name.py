"""One table under two names: two catalogs of one configuration have it, or one catalog has it twice."""

from __future__ import annotations

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.errors import RefusedError, UnknownTableError
from iceberg_maint.runner.runtime import Runtime


def refuse_other_name(state: TableState, runtime: Runtime) -> None:
    """Refuses a run under another name than the one that maintains the table.

    That is the name of its last lease, as long as a configured catalog has this table under it, and the policy of that
    name is to act. Pointers of two catalogs may differ, and the ledger's facts are those of the table's UUID.

    Raises RefusedError ICM-162, and what the other catalog raises if it does not answer.
    """
    name = runtime.ledger.last_leased_name(state.uuid)
    if name is None or name == str(state.table):
        return
    other = TableId.parse(name)
    if other.catalog not in runtime.catalogs:
        return
    try:
        other_state = runtime.catalog_of(other).pin(other)
    except UnknownTableError:
        return
    policy = runtime.policy_of(other_state)
    if other_state.uuid != state.uuid or policy.mode is not Mode.ACT or policy.paused:
        return
    raise RefusedError(
        "ICM-162",
        f"{state.table} is also {other}, which is maintained: both have the UUID {state.uuid}.",
        "set mode: advise for one of the two names.",
    )
