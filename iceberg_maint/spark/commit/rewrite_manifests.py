"""Regroups manifests by partition, in one commit through the gate.

Data manifests are written by Iceberg's own `RewriteManifests`, whose entries keep their sequence
numbers, row ids and snapshots, in runs of partitions that fill a manifest each. It leaves delete
manifests alone; these go through Iceberg's Spark action. Both need Iceberg 1.12: earlier ones gave
rows of format v3 new ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from iceberg_maint.core.commits.change import LiveEntry, MetadataReader
from iceberg_maint.core.commits.entry_digest import Partition, digest_entries, planned_entries
from iceberg_maint.core.commits.gate import Violation
from iceberg_maint.core.commits.rewrite_manifests import Regrouping, check_regrouping, cuts
from iceberg_maint.core.decisions.manifests import clusters_of, target_manifest_bytes
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import Manifest
from iceberg_maint.core.outcomes.outcome import CommitResult, Rejection
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteManifests
from iceberg_maint.errors import StaleBatchError
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint.spark.commit.gate import Gate, table_version
from iceberg_maint.spark.commit.retry import (
    Backoff,
    LoadTable,
    commit_with_retry,
    find_token,
    quiet_proxies,
    rejected,
)
from iceberg_maint.spark.commit.rewrite_files import summary_of
from iceberg_maint.spark.jvm.bridge import Bridge, one_line
from iceberg_maint.spark.jvm.functions import JavaFunctions
from iceberg_maint.spark.scan.pruning import spec_values

_WRITTEN_WITH = {"write.manifest.compression-level": "6"}
"""Avro's own level is 9, at which regrouping takes half as long again (decision 0018)."""

RegroupCheck = Callable[[Batch, RewriteManifests, Regrouping], tuple[Violation, ...]]


def commit_regrouping(
    bridge: Bridge,
    batch: Batch,
    work: RewriteManifests,
    written: Written,
    context: CommitContext,
    *,
    reader: MetadataReader,
    backoff: Backoff,
    load_table: LoadTable | None = None,
    check: RegroupCheck = check_regrouping,
) -> CommitResult:
    """Writes the batch's manifests anew, all of one spec and kind, and swaps them in.

    Raises FenceLostError when the lease is lost before the swap, and whatever interrupts it.
    """
    load = load_table or bridge.load_table
    planned = frozenset(work.manifests)
    try:
        listed = _manifests(reader, load(batch.table).currentSnapshot())
        manifests = [m for m in listed if m.path in planned]
        if len(manifests) < len(planned):
            return rejected(Rejection.STALE, "a manifest of the plan is no longer of the table", 0)
        # What is read once holds for every try: a manifest never changes.
        before = planned_entries(_entries(reader, manifests), batch.format_version)
    except Exception as why:  # noqa: BLE001 - nothing was tried, whatever it is
        return rejected(Rejection.ERROR, one_line(why), 0)
    commit = partial(
        _of_deletes if manifests[0].is_deletes else _of_data,
        bridge,
        batch.table,
        manifests,
        before.partitions,
    )

    def inspect(base: Any, metadata: Any) -> tuple[Violation, ...]:
        old, new = (
            table_version(m, spec_values(bridge, bridge.iterate(m.specs())), reader) for m in (base, metadata)
        )
        known = {m.path for m in old.manifests}
        added = [m for m in new.manifests if m.path not in known]
        after = digest_entries(_entries(reader, added), before.without_row_ids)
        return check(batch, work, Regrouping(old, new, before.digest, after))

    def try_once(table: Any) -> tuple[Gate, Exception | None]:
        if str(table.uuid()) != batch.table_uuid or table.currentSnapshot() is None:
            raise StaleBatchError(f"the table is {table.uuid()}, the plan was for {batch.table_uuid}")
        gate = Gate(bridge, table.operations(), inspect, context.holds, context.record_try)
        with bridge.callbacks(), quiet_proxies():
            try:
                commit(gate, summary_of(batch, written, context))
            except Exception as why:  # noqa: BLE001 - classified by the caller, with the table's word
                return gate, why
        return gate, None

    def shown(table: Any, base_snapshot_id: int | None) -> int | None:
        return find_token(bridge, table, context.token, base_snapshot_id)

    return commit_with_retry(load, batch.table, context, backoff, try_once, shown)


def _manifests(reader: MetadataReader, snapshot: Any) -> Sequence[Manifest]:
    return () if snapshot is None else reader.manifest_list(str(snapshot.manifestListLocation()))


def _entries(reader: MetadataReader, manifests: Iterable[Manifest]) -> Iterator[LiveEntry]:
    """One manifest after the other: of a table's live entries only those of one are ever held."""
    return (entry for manifest in manifests for entry in reader.live_entries(manifest))


def _of_data(
    bridge: Bridge,
    name: str,
    manifests: Sequence[Manifest],
    partitions: Mapping[Partition, int],
    gate: Gate,
    summary: dict[str, str],
) -> None:
    lambdas = bridge.once(JavaFunctions)
    table = gate.table(name)
    with gate.showing(_WRITTEN_WITH):
        operation = table.rewriteManifests()
    starts = _starts(bridge, table, manifests, partitions)
    operation.rewriteIf(lambdas.manifest_in([m.path for m in manifests])).clusterBy(
        lambdas.partition_run(starts)
    )
    for key, value in summary.items():
        operation.set(key, value)
    operation.commit()


def _of_deletes(
    bridge: Bridge,
    name: str,
    manifests: Sequence[Manifest],
    _partitions: Mapping[Partition, int],
    gate: Gate,
    summary: dict[str, str],
) -> None:
    table = gate.table(name)
    action = bridge.iceberg.spark.actions.SparkActions.get(bridge.session).rewriteManifests(table)
    action.specId(manifests[0].spec_id).rewriteIf(
        bridge.once(JavaFunctions).manifest_in([m.path for m in manifests])
    )
    for key, value in summary.items():
        action.snapshotProperty(key, value)
    action.execute()


def _starts(
    bridge: Bridge, table: Any, manifests: Sequence[Manifest], partitions: Mapping[Partition, int]
) -> Any:
    """The partitions at which a new manifest starts, as a `TreeMap` in Iceberg's order of partitions."""
    java_spec = table.specs().get(manifests[0].spec_id)
    kind = java_spec.partitionType()
    starts = bridge.jvm.java.util.TreeMap(bridge.iceberg.types.Comparators.forType(kind))
    clusters = clusters_of(manifests, target_manifest_bytes(dict(table.properties())))
    [spec] = spec_values(bridge, [java_spec]).values()
    runs = cuts(partitions, clusters)
    # NULL in all fields comes before everything else.
    for document in ({}, *(single_values(spec, partition) for partition in runs)):
        if document is not None:
            start = bridge.iceberg.SingleValueParser.fromJson(kind, json.dumps(document))
            starts.put(start, start)
    return starts


def single_values(spec: PartitionSpec, partition: Partition) -> dict[str, Any] | None:
    """A partition as JSON (spec: "JSON single-value serialization"); None where a value has no such
    form, as NaN or a date beyond Python's: a run that does not start there is just a longer one."""
    found: dict[str, Any] = {}
    for field, value in zip(spec.fields, partition, strict=True):
        if value is None:
            continue
        try:
            found[str(field.field_id)] = _single_value(field.result_type, value)
        except (OverflowError, ValueError):
            return None
    return found


def _single_value(kind: str, value: object) -> Any:
    if isinstance(value, bool | str) or kind in ("int", "long"):
        return value
    if isinstance(value, int):
        return _temporal(kind, value)
    if isinstance(value, bytes):
        if kind in ("float", "double"):
            raise ValueError("runs do not start at floats")
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, UUID):
        return str(value)
    raise ValueError(f"{kind} {value!r}")


def _temporal(kind: str, value: int) -> str:
    if kind == "date":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    digits = 9 if kind.endswith("_ns") else 6
    seconds, fraction = divmod(value, 10**digits)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    clock = f"{moment:%H:%M:%S}.{fraction:0{digits}d}"
    if kind == "time":
        return clock
    return f"{moment.date().isoformat()}T{clock}{'+00:00' if 'tz' in kind else ''}"
