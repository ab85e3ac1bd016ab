"""The report of one table to Dagster: its partition keys, checks, card and numbers, and what Dagster then knows of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import dagster as dg

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    ALL_OPERATIONS,
    DATA_OPERATIONS,
    HOUSEKEEPING_OPERATIONS,
    PartitionKey,
    TableId,
)
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.defs.assets.metadata import (
    WORST_PARTITIONS,
    Metadata,
    column_schema,
    failure_metadata,
    partition_metadata,
    rank,
    table_metadata,
    text_value,
)
from iceberg_maint.defs.assets.partition_checks import (
    MAX_FAILING,
    CheckedTable,
    changed_evaluations,
    log_evaluations,
    outdated,
    partition_evaluations,
)
from iceberg_maint.defs.assets.table_card import (
    assessed_view,
    described,
    last_proof,
    stored_view,
    table_card,
)
from iceberg_maint.defs.assets.table_checks import (
    housekeeping_evaluations,
    table_evaluations,
    unreadable_evaluation,
)
from iceberg_maint.defs.automation.due_work import (
    last_expiry,
    last_orphan_scan,
    unknown_partitions,
)
from iceberg_maint.defs.automation.observations import (
    LastObservation,
    finished_runs,
    read_last_observation,
    store_last_observation,
)
from iceberg_maint.defs.instance import busy_assets, queued_runs
from iceberg_maint.defs.names import CARD
from iceberg_maint.defs.runs.examined import (
    MAX_EXAMINED,
    examined_housekeeping,
    examined_partitions,
    unexamined_partitions,
)
from iceberg_maint.defs.runs.kept_connections import kept_connections, one_transaction
from iceberg_maint.defs.runs.run_context import ReportContext
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import IcebergMaintError, printable
from iceberg_maint.loop.assess import Assessment, assess
from iceberg_maint.loop.attest import attest_by_policy
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.read_fleet import report_observed
from iceberg_maint.loop.plan_batches import make_plans
from iceberg_maint.report.deferrals import deferral, pauses_text
from iceberg_maint.report.formatting import ESTIMATE_RECORDS
from iceberg_maint.report.plan_notes import advice_of

CARD_ONLY = "The state of the table changed. No partition was materialized."


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """The run that ends with an observation. `sizes_before` is the histogram of file sizes before it, empty if it
    committed nothing; so is `proof`, the line of its proof."""

    sizes_before: tuple[int, ...] = ()
    proof: str = ""


class TableReports:
    """Measures tables and reports them to Dagster, in the op of a run."""

    def __init__(
        self,
        context: ReportContext,
        loop_context: Context,
        translator: IcebergTranslator,
    ) -> None:
        self._context, self._loop_context, self._translator = context, loop_context, translator
        self._instance, self._run_id = context.instance, context.run.run_id
        self._queued = queued_runs(context.instance, loop_context.clock.now_ms())

    @cached_property
    def _busy(self) -> Callable[[dg.AssetKey], bool]:
        """Whether a run or backfill may change an asset, as of the first question. It reads all unfinished runs, of which one
        may have a thousand assets."""
        return busy_assets(self._instance)

    def report(self, table: TableId, run: ReportedRun | None = None) -> None:
        """Measures one table, reports it to Dagster, and stores the observation. `run` is the run on the table
        that ends with this observation. Raises what reading the table raises."""
        key = self._translator.get_asset_key(table)
        with kept_connections(self._instance):
            last = read_last_observation(self._instance, key) or LastObservation()
            ended = finished_runs(self._instance, [last.run_id] if last.run_id else [])
        before = self._loop_context.ledger.health.get(table)
        pauses = self._loop_context.ledger.registry.pauses()
        assessment = assess(table, self._loop_context, ALL_OPERATIONS)
        self._attest(assessment, files=run is not None)
        report_observed(assessment, self._loop_context)
        data = assessment.only(DATA_OPERATIONS)
        deferred_by = deferral(data.decision)
        advice = self._advice(data)
        sizes_before = run.sizes_before if run is not None and run.sizes_before else last.sizes_before
        proof = last.proof if run is None or not run.proof else run.proof
        view = replace(
            assessed_view(self._loop_context, assessment),
            before=sizes_before,
            proof=proof,
            advice=advice,
            run_id=self._run_id,
        )
        text = described(
            self._loop_context,
            self._context.log,
            table,
            lambda: table_card(replace(view, proof=last_proof(self._loop_context, str(table)) or proof)),
        )
        with kept_connections(self._instance):
            self._sync_partitions(data.measured)
            with one_transaction(self._instance):
                self._log_partitions(data, before, last.sequence_number)
                if run is None:
                    schema = column_schema(assessment.state)
                    self._log_card(key, {CARD: text} | failure_metadata(data.history) | schema)
                # A run reports what it did; what else is healthy is for the observe job.
                limit = MAX_EXAMINED if run is None else 0
                unexamined = self._log_health(
                    assessment, {CARD: text}, advice, deferred_by, limit, again=deferred_by != last.deferral
                )
            observation = LastObservation(
                pointer=data.measured.metadata_location,
                observed_ms=self._loop_context.ledger.registry.now_ms(),
                sequence_number=data.measured.sequence_number,
                pause=pauses_text(pauses, table, assessment.state.uuid),
                deferral=deferred_by,
                queued=self._queued.get(key, ""),
                unexamined=unexamined,
                sizes_before=sizes_before,
                proof=proof,
            )
            self._store(key, observation, last.run_id if last.run_id in ended else None, data)

    def _attest(self, assessment: Assessment, *, files: bool) -> None:
        """Judges new commits that claim to change no row. A proof that fails as a whole is said, and tried again."""
        state, policy = assessment.state, assessment.policy.attest
        try:
            attest_by_policy(state, policy, self._loop_context, files=files)
        except IcebergMaintError as why:
            masked = self._loop_context.process.masked(str(why))
            self._context.log.warning(f"{state.table}: not attested: {masked}")

    def _advice(self, assessment: Assessment) -> str:
        """What a run would do in mode advise. A plan that cannot be made leaves the text empty."""
        if assessment.decision.reason is not Reason.ADVISE:
            return ""
        table = assessment.state.table
        try:
            plans = make_plans(assessment, self._loop_context)
        except IcebergMaintError as why:
            self._context.log.warning(f"{table}: no plan: {self._loop_context.process.masked(str(why))}")
            return ""
        records = self._loop_context.ledger.records.newest(str(table), ESTIMATE_RECORDS)
        partitions = len(assessment.measured.partitions)
        return advice_of(assessment.decision, plans, partitions, records).sentence()

    def _sync_partitions(self, measured: Measured) -> None:
        """Adds new keys. Deletes keys that the ledger has retired and keys that no partition ever had,
        unless a run uses the asset."""
        name = self._translator.get_partitions_name(measured.table)
        known = set(map(PartitionKey, self._instance.get_dynamic_partitions(name)))
        if new := sorted(set(measured.partitions) - known):
            self._instance.add_dynamic_partitions(name, new)
        retired = known & set(self._loop_context.ledger.health.retired_partitions(measured.table))
        retired |= unknown_partitions(self._loop_context, measured.table, known)
        retired -= set(measured.partitions)
        if not retired or self._busy(self._translator.get_asset_key(measured.table)):
            return
        for key in sorted(retired):
            self._instance.delete_dynamic_partition(name, key)

    def _log_health(
        self,
        assessment: Assessment,
        card: Metadata,
        advice: str,
        deferred_by: str,
        limit: int,
        *,
        again: bool,
    ) -> bool:
        """Reports the table with its checks, and up to `limit` healthy partitions as examined. Returns whether others are
        left."""
        data, uuid = assessment.only(DATA_OPERATIONS), assessment.state.uuid
        examined, unexamined = self._examine(assessment, card, limit)
        self._log_checks(data, deferred_by, examined, again=again)
        last_scan, expiry = last_orphan_scan(self._loop_context, uuid), last_expiry(self._loop_context, uuid)
        evaluations = [
            *table_evaluations(
                assessment.state.table,
                self._translator,
                data.history,
                self._loop_context.ledger.attestations.get(uuid),
            ),
            *housekeeping_evaluations(assessment, self._translator, last_scan, expiry),
        ]
        log_evaluations(self._context, changed_evaluations(self._instance, evaluations))
        title = f"{data.decision.verdict.value} ({data.decision.reason.value})"
        cursors = self._loop_context.ledger.work.cursors(uuid)
        # The table's event comes last and has its own labels: Dagster plots the last hundred events of an asset.
        self._context.log_event(
            dg.AssetObservation(
                self._translator.get_asset_key(assessment.state.table),
                description=printable(f"{title}: deferred by {deferred_by}") if deferred_by else title,
                metadata=card | table_metadata(data, cursors, deferred_by, advice),
            )
        )
        return unexamined

    def _examine(self, assessment: Assessment, card: Metadata, limit: int) -> tuple[list[PartitionKey], bool]:
        """Reports healthy housekeeping and up to `limit` healthy partitions that Dagster shows as missing.
        Returns the last of these partitions, whose checks show the health of all, and whether others are left."""
        table, data = assessment.state.table, assessment.only(DATA_OPERATIONS)
        key = self._translator.get_asset_key(table)
        missing = unexamined_partitions(lambda: self._materialized(key), data.measured, data.decision)
        partitions = missing[:limit]
        housekeeping = assessment.only(HOUSEKEEPING_OPERATIONS).decisions
        schema = column_schema(assessment.state)
        for event in (
            *examined_partitions(key, data.measured, partitions[:-1], self._run_id, card),
            *examined_partitions(key, data.measured, partitions[-1:], self._run_id, card | schema),
            *examined_housekeeping(
                self._instance, self._translator.get_housekeeping_key(table), housekeeping, card
            ),
        ):
            self._context.log_event(event)
        return partitions[-1:], len(missing) > len(partitions)

    def _materialized(self, key: dg.AssetKey) -> Collection[str]:
        """The partitions of an asset that Dagster shows as materialized."""
        return self._instance.get_materialized_partitions(key)

    def _log_partitions(self, assessment: Assessment, before: Measured | None, sequence_number: int) -> None:
        """Observes the worst unhealthy partitions, then those that changed since `before` or have files of
        a later sequence number.

        Only few: Dagster plots the last hundred events of an asset.
        """
        old = before.partitions if before is not None else {}
        measured = assessment.measured.partitions
        ranked = [p for p in rank(assessment.decision) if p.partition in measured]
        unhealthy = [p for p in ranked if p.findings]
        changed = [
            p
            for p in ranked
            if not p.findings
            and p.partition in old
            and (
                old[p.partition] != measured[p.partition]
                or measured[p.partition].max_data_sequence_number > sequence_number > 0
            )
        ]
        for p in reversed((unhealthy + changed)[:WORST_PARTITIONS]):
            self._context.log_event(
                dg.AssetObservation(
                    self._translator.get_asset_key(assessment.measured.table),
                    partition=p.partition,
                    metadata=partition_metadata(measured[p.partition], p),
                )
            )

    def _log_checks(
        self, assessment: Assessment, deferred_by: str, examined: Sequence[PartitionKey], *, again: bool
    ) -> None:
        """Evaluates the checks that Dagster does not show as they are, and those of `examined` partitions;
        `again` those of all unhealthy partitions, up to the limit."""
        stale = list(dict.fromkeys([*self._stale(assessment), *examined]))
        if again:
            unhealthy = [p.partition for p in rank(assessment.decision) if p.findings][:MAX_FAILING]
            stale = list(dict.fromkeys([*stale, *unhealthy]))
        checked = self._checked(assessment, deferred_by)
        evaluations = partition_evaluations(self._instance, self._translator, checked, stale)
        log_evaluations(self._context, evaluations)

    def _stale(self, assessment: Assessment) -> list[PartitionKey]:
        """The partitions whose checks Dagster does not show as they are."""
        unhealthy = [p.partition for p in rank(assessment.decision) if p.findings]
        return outdated(self._instance, self._translator, self._checked(assessment), unhealthy)

    def _checked(self, assessment: Assessment, deferred_by: str = "") -> CheckedTable:
        now_ms = self._loop_context.clock.now_ms()
        return CheckedTable(assessment.measured, assessment.policy, now_ms, deferred_by)

    def _store(
        self, key: dg.AssetKey, observation: LastObservation, ended_run: str | None, data: Assessment
    ) -> None:
        """Stores the observation. A run on the table that had not ended before the observation stays in it,
        so that the next tick of the sensor follows its end. If this is that run, the sensor need not follow
        it, unless a check or the card does not show its result."""
        current = read_last_observation(self._instance, key)
        run_id = current.run_id if current is not None else None
        is_shown = not self._shows_another_failure(key, failure_metadata(data.history))
        if run_id == ended_run or (run_id == self._run_id and is_shown and not self._stale(data)):
            run_id = None
        store_last_observation(self._instance, key, replace(observation, run_id=run_id))

    def _log_card(self, key: dg.AssetKey, metadata: Metadata) -> None:
        """Reports the card as a materialization of no partition, if the last one says another failure: the overview of an
        asset shows the last materialization, and no observation after it. Not in a run of maintenance: a backfill
        fails of a materialization without a partition."""
        if self._shows_another_failure(key, metadata):
            self._context.log_event(dg.AssetMaterialization(key, description=CARD_ONLY, metadata=metadata))

    def _shows_another_failure(self, key: dg.AssetKey, metadata: Metadata) -> bool:
        """Whether the last materialization of the asset says another failure than this metadata."""
        last = self._instance.get_latest_materialization_event(key)
        shown = last.asset_materialization if last is not None else None
        return shown is not None and shown.metadata.get("failure") != metadata.get("failure")

    def report_unreadable(self, table: TableId, error: Exception) -> None:
        """Reports a table that could not be read, with its last known state."""
        why = self._loop_context.process.redacted_error(error)
        known = isinstance(why, IcebergMaintError)
        text = str(why) if known else f"{type(why).__name__}: {why}"
        self._context.log.error(f"{table}: {text}", exc_info=None if known else why)
        key = self._translator.get_asset_key(table)
        if (measured := self._loop_context.ledger.health.get(table)) is not None:
            card = described(
                self._loop_context,
                self._context.log,
                table,
                lambda: table_card(stored_view(self._loop_context, measured, {})),
            )
            history = self._loop_context.ledger.health.history(
                measured.table_uuid, str(table), DATA_OPERATIONS[0]
            )
            self._log_card(key, {CARD: card} | failure_metadata(history))
        log_evaluations(self._context, [unreadable_evaluation(table, self._translator, text)])
        self._context.log_event(
            dg.AssetObservation(
                key,
                metadata={"error": text_value(text)},
            )
        )
