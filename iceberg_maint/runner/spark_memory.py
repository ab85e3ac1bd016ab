"""Compares the memory that plans need with what the settings of Spark declare, before Spark starts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.spark_memory import NeededMemory, needed_memory, setting_text
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.runner.runtime import Runtime

_log = logging.getLogger(__name__)


def memory_of_plans(batches: Iterable[Batch], policy: Policy, runtime: Runtime) -> NeededMemory | None:
    """What the batches need; None if the settings of Spark are another program's."""
    declared = runtime.spark.memory
    if declared is None:
        return None
    return needed_memory(batches, declared, policy.equality_deletes.memory)


def shortage(table: str, needed: NeededMemory | None, runtime: Runtime) -> IcebergMaintError | None:
    """The warning ICM-165 for settings that declare less than is needed; None if they suffice."""
    if needed is None or runtime.spark.memory is None:
        return None
    short = [s for s in needed.settings(runtime.spark.memory) if s.is_short]
    if not short:
        return None
    declared = ", ".join(f"{s.name} = {setting_text(s.declared_bytes)}" for s in short)
    enough = ", ".join(f"{s.name} = {setting_text(s.needed_bytes)}" for s in short if s.needed_bytes)
    less = "take on less per batch (windows.max_partitions_per_batch, windows.max_files_per_batch)"
    return IcebergMaintError(
        "ICM-165",
        f"{table}: the equality deletes of a planned batch need more memory than {declared}.",
        f"set {enough} under spark.conf, or {less}."
        if enough
        else f"raise equality_deletes.memory, or {less}.",
    )


def recorded_shortages(tables: Iterable[TableId], runtime: Runtime) -> Iterator[str]:
    """One text for each table whose last batch with equality deletes ran out of memory, by the ledger."""
    for table in tables:
        measured = runtime.ledger.health(table)
        uses = () if measured is None else runtime.ledger.memory_uses(measured.table_uuid, 1)
        if uses and uses[0].exceeded:
            yield (
                f"{table}: the last batch with equality deletes ran out of memory at an estimate of "
                f"{setting_text(uses[0].estimated_bytes)}."
            )


def warn_of_memory(table: str, batches: Iterable[Batch], policy: Policy, runtime: Runtime) -> None:
    """Logs ICM-165 if the batches need more than is declared."""
    warning = shortage(table, memory_of_plans(batches, policy, runtime), runtime)
    if warning is not None:
        _log.warning("%s", warning)
