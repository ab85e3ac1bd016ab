"""Plans: from decisions to batches, the memory that they need, and the next table planned while this one is written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.waits import runs_isolated
from iceberg_maint.core.model.ids import (
    DATA_OPERATIONS,
    HOUSEKEEPING_OPERATIONS,
    Operation,
    TableId,
)
from iceberg_maint.core.model.reasons import Decision, Verdict
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.failures import may_be_too_long
from iceberg_maint.core.planning.batch_memory import learned_correction
from iceberg_maint.core.planning.batch_trials import BatchSize, batch_limit
from iceberg_maint.core.planning.file_groups import BatchLimits, PlanInputs
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.core.planning.planner import partitions_to_read, plan_housekeeping, plan_operation
from iceberg_maint.core.planning.spark_memory import NeededMemory, needed_memory, setting_text
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.loop.assess import Assessment, assess_requested
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.request import Request

_log = logging.getLogger(__name__)


def memory_of_plans(batches: Iterable[Batch], policy: Policy, context: Context) -> NeededMemory | None:
    """What the batches need; None if the settings of Spark are another program's."""
    declared = context.engine.spark.memory
    if declared is None:
        return None
    return needed_memory(batches, declared, policy.equality_deletes.memory)


def shortage(table: str, needed: NeededMemory | None, context: Context) -> IcebergMaintError | None:
    """The warning ICM-124 for settings that declare less than is needed; None if they suffice."""
    if needed is None or context.engine.spark.memory is None:
        return None
    short = [s for s in needed.settings(context.engine.spark.memory) if s.is_short]
    if not short:
        return None
    declared = ", ".join(f"{s.name} = {setting_text(s.declared_bytes)}" for s in short)
    enough = ", ".join(f"{s.name} = {setting_text(s.needed_bytes)}" for s in short if s.needed_bytes)
    less = "take on less per batch (windows.max_partitions_per_batch, windows.max_files_per_batch)"
    return IcebergMaintError(
        "ICM-124",
        f"{table}: the equality deletes of a planned batch need more memory than {declared}.",
        f"set {enough} under spark.conf, or {less}."
        if enough
        else f"raise equality_deletes.memory, or {less}.",
    )


def recorded_shortages(tables: Iterable[TableId], context: Context) -> Iterator[str]:
    """One text for each table whose last batch with equality deletes ran out of memory, by the ledger."""
    for table in tables:
        measured = context.ledger.health.get(table)
        uses = () if measured is None else context.ledger.records.memory_uses(measured.table_uuid, 1)
        if uses and uses[0].exceeded:
            yield (
                f"{table}: the last batch with equality deletes ran out of memory at an estimate of "
                f"{setting_text(uses[0].estimated_bytes)}."
            )


def warn_of_memory(table: str, batches: Iterable[Batch], policy: Policy, context: Context) -> None:
    """Logs ICM-124 if the batches need more than is declared."""
    warning = shortage(table, memory_of_plans(batches, policy, context), context)
    if warning is not None:
        _log.warning("%s", warning)


_WAIT_SECONDS = 5.0
"""A table that takes longer to read is read again by its own run, whose time is limited."""


class PreparedTable:
    """A table that a thread measures and plans. What it reads is in the memory of the table's context; every decision
    is made again by the run, under its lease."""

    def __init__(self, table: TableId, request: Request, context: Context) -> None:
        self._context = context
        self._own = context.of_one_run()
        # A daemon: a run that is terminated does not wait for it.
        self._thread = threading.Thread(
            target=self._read, args=(table, request), name=f"prepare {table}", daemon=True
        )
        self._thread.start()

    def context(self) -> Context:
        """Returns the context for the run of the table: with what was read, unless that takes too long."""
        self._thread.join(_WAIT_SECONDS)
        return self._context if self._thread.is_alive() else self._own

    def _read(self, table: TableId, request: Request) -> None:
        operations = tuple(o for o in request.operations if o in DATA_OPERATIONS)
        # The run reads the table again and reports what fails.
        with suppress(Exception):
            assessment = assess_requested(table, request, self._own, operations)
            due = [d.operation for d in assessment.decisions if d.verdict is Verdict.RUN]
            make_plans(assessment.only(due), self._own)


def make_plans(
    assessment: Assessment, context: Context, *, before_conversion: bool = False
) -> tuple[Plan, ...]:
    """Returns one plan per decision, for the partitions whose verdict is RUN. `run` executes these objects.

    `before_conversion` is that of the step whose decision is planned alone. If a rewrite comes before a conversion, and both
    are planned here, the plan of the conversion has the files that the rewrite leaves to it.
    """
    before_conversion = before_conversion or assessment.rewrites_first()
    pairs = list(zip(assessment.decisions, assessment.histories, strict=True))
    plans: dict[Operation, Plan] = {}
    rewritten: frozenset[str] = frozenset()
    if before_conversion:
        pairs.sort(key=lambda pair: pair[0].operation is not Operation.REWRITE_DATA_FILES)
    for decision, history in pairs:
        plan = _plan(decision, history, assessment, context, before_conversion, rewritten)
        plans[decision.operation] = plan
        if before_conversion and decision.operation is Operation.REWRITE_DATA_FILES:
            rewritten = frozenset(path for b in plan.batches for path in b.paths())
    return tuple(plans[d.operation] for d in assessment.decisions)


def _plan(
    decision: Decision,
    history: TableHistory,
    assessment: Assessment,
    context: Context,
    before_conversion: bool,
    rewritten: frozenset[str],
) -> Plan:
    operation = decision.operation
    if operation in HOUSEKEEPING_OPERATIONS:
        return plan_housekeeping(
            assessment.state,
            decision,
            assessment.policy,
            assessment.retention,
            history,
            sweeps=assessment.sweeps,
        )
    partitions = partitions_to_read(decision, assessment.measured)
    live_files = context.catalogs.live_files(assessment.state, partitions) if partitions else ()
    limits = BatchLimits(
        memory_correction=learned_correction(context.ledger.records.memory_uses(assessment.state.uuid)),
        size=limit_after_conflicts(operation, assessment.state, context),
        alone=frozenset(
            p.partition
            for p in decision.due()
            if may_be_too_long(p.partition) or runs_isolated(history.of(p.partition))
        ),
        readers=context.engine.row_types,
    )
    inputs = PlanInputs(
        assessment.state,
        decision,
        live_files,
        assessment.policy,
        assessment.measured.target_file_size_bytes,
        limits,
        before_conversion,
        rewritten,
    )
    return plan_operation(inputs)


def limit_after_conflicts(operation: Operation, state: TableState, context: Context) -> BatchSize | None:
    """Returns the largest batch of an operation on data after batches that lost every try to other commits.
    None if the policy alone limits it."""
    return batch_limit(context.ledger.records.commit_trials(state.uuid, operation))
