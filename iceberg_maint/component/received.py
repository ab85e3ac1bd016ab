"""What the run elsewhere has sent, stored in Dagster: events, partitions, and what is due."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import dagster as dg
from dagster_shared.serdes import deserialize_value

from iceberg_maint import __version__
from iceberg_maint.component.pipeline import uses_in_progress, waiting_for_the_slot
from iceberg_maint.component.table_assets import TableAssets
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.defs.assets.check_targets import last_results, materialization_targets, result_age_seconds
from iceberg_maint.defs.automation.ranges import pick_ranges
from iceberg_maint.defs.dagster_internals import CheckStatus, CheckTarget
from iceberg_maint.defs.instance import busy_assets
from iceberg_maint.defs.names import CARD, DUE_CHECK, EXAMINED, PARTITION_CHECKS, WAITS_CHECK
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.report.formatting import duration

_RETRIES = 2
_ASK_SECONDS = 2.0
"""Seconds between two questions what uses the table."""
_BY_AUTOMATION = ("dagster/from_automation_condition", "dagster/auto_materialize")
"""Tags of a run that a condition requested. What a person starts does not yield."""
_DUE_SINCE = "due_since"
_LATE = "ICM-187"
_WAITS_FOR_NONE = (
    "No load and no reader of the table is in progress, and no run waits for the slot of maintenance."
)
NOT_DUE = "No maintenance is due now."
UNKNOWN_DUE = "The run ended without a measurement. The next one evaluates this check."


def failing_partitions(instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]) -> set[str]:
    """The partitions that fail one of these partitioned checks."""
    infos = instance.event_log_storage.get_asset_check_partition_info(list(checks))
    return {
        info.partition_key
        for info in infos
        if info.partition_key is not None and info.latest_execution_status is CheckStatus.FAILED
    }


def launch_extras(context: dg.AssetExecutionContext, assets: TableAssets, own: dg.AssetKey) -> dict[str, Any]:
    """What the run elsewhere must know of this Dagster (`pipes_run.Launch` there)."""
    instance, run = context.instance, context.run
    partitioned = context.has_partition_key or context.has_partition_key_range
    key = assets.data.key
    checks = [dg.AssetCheckKey(key, name) for name in PARTITION_CHECKS]
    return {
        "housekeeping": own != key,
        "materializes": bool(context.selected_asset_keys),
        "tags": dict(run.tags),
        "partitions": list(context.partition_keys) if partitioned else None,
        "known": list(instance.get_dynamic_partitions(assets.partitions)),
        "materialized": sorted(instance.get_materialized_partitions(key)),
        "failing": sorted(failing_partitions(instance, checks)),
    }


class Received:
    """The messages of one run of the asset `own` of a table, each stored once, in their order."""

    def __init__(
        self, context: dg.AssetExecutionContext, assets: TableAssets, own: dg.AssetKey, wait_minutes: int
    ) -> None:
        self._context, self._instance = context, context.instance
        self.assets, self.own, self._wait_seconds = assets, own, wait_minutes * 60
        partitioned = context.has_partition_key or context.has_partition_key_range
        self._due = dg.AssetCheckKey(assets.data.key, DUE_CHECK)
        self._waits_check = dg.AssetCheckKey(assets.data.key, WAITS_CHECK)
        evaluates = partitioned and self._due in context.selected_asset_check_keys
        # Asked before a message deletes one of them.
        self._own_due = frozenset(context.partition_keys if evaluates else ())
        self._taken = 0
        self._lost = False
        self._measured, self._did_work = False, False
        self._ended: Mapping[str, Any] | None = None
        self._card: dict[str, Any] = {}
        tags = context.run.tags
        self._waits = bool(context.selected_asset_keys) and any(tag in tags for tag in _BY_AUTOMATION)
        self._asked_seconds, self._uses = -_ASK_SECONDS, dict[str, dg.AssetKey | None]()

    def take(self, messages: Sequence[Any]) -> bool:
        """Stores the messages that are new. Says whether the run must begin no further batch."""
        for message in messages[self._taken :]:
            self._taken += 1
            self._lost = self._lost or message["number"] != self._taken
            self._store(message)
        return self.must_yield()

    def must_yield(self) -> bool:
        """Whether a load or a reader of the table is in progress or waits for its start, or another run for the slot of this one,
        unless the maintenance has waited too long for them or a person started it."""
        if self._waits and not self._uses and time.monotonic() - self._asked_seconds >= _ASK_SECONDS:
            self._uses = self._find_uses()
            self._asked_seconds = time.monotonic()
            if self._uses and self._has_waited_too_long():
                self._waits, self._uses = False, {}
            elif self._uses:
                self._context.log.info(f"{self.assets.table}: yields to {', '.join(self._uses)}")
        return bool(self._uses)

    def may_be_left(self) -> bool:
        """Whether a run that only measures leaves this table for the next time: another run waits for its slot, and the table was
        measured within the time that maintenance may wait."""
        run = self._context.run
        if self._context.selected_asset_keys or not any(tag in run.tags for tag in _BY_AUTOMATION):
            return False
        if not (waiting := waiting_for_the_slot(self._instance)):
            return False
        # Each measurement evaluates this check.
        if result_age_seconds(self._instance, self._waits_check) > self._wait_seconds:
            return False
        self._context.log.info(
            f"{self.assets.table}: not measured now, {', '.join(waiting)} waits for the slot of this run"
        )
        return True

    def _find_uses(self) -> dict[str, dg.AssetKey | None]:
        uses = uses_in_progress(self._instance, self.assets.pipeline, self._context.run.run_id)
        return {**uses, **waiting_for_the_slot(self._instance)}

    def leave_due(self) -> None:
        """Ends the run before its work. What is due stays due, or is due again after the load: Dagster does not see each load
        that is in progress beside others, and would request the run at every tick."""
        measured_next = not set(self.assets.pipeline.loaders).isdisjoint(self._uses.values())
        for partition in sorted(self._own_due):
            self._evaluate(self._due, measured_next, f"Waits for {', '.join(self._uses)}.", partition)

    def close(self) -> None:
        """Leaves no check of the run without a result, however it ended."""
        if not self._measured:
            for partition in sorted(self._own_due):
                self._evaluate(self._due, True, UNKNOWN_DUE, partition)

    def result(self, exit_code: int) -> None:
        """Ends the run as it ended elsewhere. Raises Failure with the coded message, or RetryRequested."""
        ended = self._ended
        if ended is None or self._lost:
            self._fail(
                f"ICM-184 {self.assets.table}: the run ended with exit code {exit_code}, and messages of it are lost. What "
                "it committed stays. Fix: read its last lines in stderr of the step; the next run reconciles and continues.",
                exit_code,
            )
        if ended["outcome"] == "retry":
            raise dg.RetryRequested(max_retries=_RETRIES, seconds_to_wait=ended["seconds"])
        if ended["outcome"] != "done" or exit_code != 0:
            self._fail(ended["text"] or f"{self.assets.table}: exit code {exit_code}", exit_code)

    def output(self) -> dict[str, Any] | None:
        """The metadata of the output after which assets downstream begin in this run; None if they must not. Only a run without
        a partition key has it: of its partitions each is materialized by a message."""
        context = self._context
        if context.has_partition_key or context.has_partition_key_range or not context.selected_asset_keys:
            return None
        blocking = [dg.AssetCheckKey(c.asset_key, c.name) for c in self.assets.data_checks if c.blocking]
        if blocking and (over := sorted(failing_partitions(self._instance, blocking))):
            context.log.warning(
                f"{self.assets.table}: {', '.join(over)} over a threshold: assets downstream are skipped"
            )
            return None
        return self._card

    def _fail(self, text: str, exit_code: int) -> NoReturn:
        metadata = {"exit_code": dg.MetadataValue.int(exit_code)}
        raise dg.Failure(text, metadata=metadata, allow_retries=False)

    def _store(self, message: Mapping[str, Any]) -> None:
        match message["kind"]:
            case "started":
                if message["version"] != __version__:
                    raise ConfigurationError(
                        "ICM-184",
                        f"the run elsewhere has iceberg-maint {message['version']}, this environment has {__version__}.",
                        "install one version in both.",
                    )
            case "materialization" | "observation":
                self._log(message)
            case "check":
                self._log_check(message)
            case "health":
                self._measured = True
                self._sync(message["partitions"], message["gone"])
                self._report_due(message["due"], message["sentence"])
                self._report_housekeeping_due(message["due_operations"])
                self._report_waits(bool(message["due"] or message["due_operations"]))
            case "gone":
                self._sync((), message["partitions"])
            case "ended":
                self._ended = message

    def _log(self, message: Mapping[str, Any]) -> None:
        key, partition = self._key(message), message["partition"]
        metadata = deserialize_value(message["metadata"], dict)
        if partition is None and not message["housekeeping"]:
            self._card = {name: metadata[name] for name in (CARD,) if name in metadata}
        is_old = message["description"] == EXAMINED and partition is None
        if is_old and self._instance.get_latest_materialization_event(key) is not None:
            return
        event = dg.AssetMaterialization if message["kind"] == "materialization" else dg.AssetObservation
        self._did_work |= event is dg.AssetMaterialization and bool(self._context.selected_asset_keys)
        self._context.log_event(
            event(
                key,
                partition=partition,
                description=message["description"],
                metadata=metadata,
            )
        )

    def _log_check(self, message: Mapping[str, Any]) -> None:
        self._evaluate(
            dg.AssetCheckKey(self._key(message), message["name"]),
            message["passed"],
            message["description"],
            message["partition"],
            metadata=deserialize_value(message["metadata"], dict),
            severity=dg.AssetCheckSeverity(message["severity"]),
        )

    def _evaluate(
        self, check: dg.AssetCheckKey, passed: bool, description: str, partition: str | None, **more: Any
    ) -> None:
        self._context.log_event(
            dg.AssetCheckEvaluation(
                asset_key=check.asset_key,
                check_name=check.name,
                passed=passed,
                description=description,
                partition=partition,
                target_materialization_data=self._target(check.asset_key, partition),
                **{"metadata": {}, **more},
            )
        )

    def _target(self, key: dg.AssetKey, partition: str | None) -> CheckTarget | None:
        if partition is None:
            return None
        return materialization_targets(self._instance, key, [partition]).get(partition)

    def _key(self, message: Mapping[str, Any]) -> dg.AssetKey:
        return self.assets.housekeeping.key if message["housekeeping"] else self.assets.data.key

    def _sync(self, partitions: Collection[str], gone: Collection[str]) -> None:
        """Adds new partitions. Deletes those that are gone, unless a run uses the asset."""
        name = self.assets.partitions
        known = set(self._instance.get_dynamic_partitions(name))
        if new := sorted(set(partitions) - known):
            self._instance.add_dynamic_partitions(name, new)
        if gone and not busy_assets(self._instance)(self.assets.data.key):
            for partition in sorted(gone):
                self._instance.delete_dynamic_partition(name, partition)

    def _report_due(self, due: Mapping[str, float], sentence: str) -> None:
        """Fails the check of the heaviest ranges of due partitions, which starts their maintenance. Passes that of those that
        fail it and are no longer due, and those of the run."""
        order = [PartitionKey(key) for key in self._instance.get_dynamic_partitions(self.assets.partitions)]
        picked = pick_ranges(order, {PartitionKey(key): score for key, score in due.items()})
        number = {"due_partitions": dg.MetadataValue.int(len(due))}
        for partition in sorted((self._own_due | failing_partitions(self._instance, [self._due])) - picked):
            self._evaluate(self._due, True, NOT_DUE, partition, metadata=number)
        for partition in sorted(picked):
            self._evaluate(self._due, False, f"Maintenance is due: {sentence}.", partition, metadata=number)

    def _report_housekeeping_due(self, operations: Sequence[str]) -> None:
        check = dg.AssetCheckKey(self.assets.housekeeping.key, DUE_CHECK)
        text = f"Maintenance is due: {', '.join(operations)}." if operations else NOT_DUE
        number = {"due_operations": dg.MetadataValue.int(len(operations))}
        self._evaluate(check, not operations, text, None, metadata=number)

    def _report_waits(self, is_due: bool) -> None:
        """Fails if maintenance has been due for longer than the limit and the table is used now: it no longer waits then."""
        now = time.time()
        since = now if self._did_work else self._due_since() or now
        uses = self._find_uses() if is_due else {}
        passed = not uses or now - since <= self._wait_seconds
        text = f"Waits for {', '.join(uses)}." if uses else _WAITS_FOR_NONE
        if not passed:
            text = (
                f"{_LATE} {self.assets.table}: maintenance has been due for {duration(now - since)} and waits for "
                f"{', '.join(uses)}. It no longer waits. Fix: end what never ends, or raise wait_minutes of the component."
            )
            self._context.log.warning(text)
        metadata: dict[str, dg.MetadataValue[Any]] = {
            "due_minutes": dg.MetadataValue.float(round((now - since) / 60, 1) if is_due else 0.0),
            "uses": dg.MetadataValue.int(len(uses)),
        }
        if is_due:
            metadata[_DUE_SINCE] = dg.MetadataValue.timestamp(since)
        self._evaluate(
            self._waits_check, passed, text, None, metadata=metadata, severity=dg.AssetCheckSeverity.WARN
        )

    def _last_waits(self) -> dg.AssetCheckEvaluation | None:
        """The last evaluation of the check of waits."""
        return next(last_results(self._instance, [self._waits_check]), None)

    def _due_since(self) -> float | None:
        last = self._last_waits()
        value = None if last is None else last.metadata.get(_DUE_SINCE)
        return value.value if isinstance(value, dg.TimestampMetadataValue) else None

    def _has_waited_too_long(self) -> bool:
        last = self._last_waits()
        return last is not None and not last.passed
