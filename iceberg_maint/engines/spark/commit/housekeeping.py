"""Commits of housekeeping through the gate: an expiry of exactly the planned snapshots and refs, and regrouped manifests.

Iceberg's `RemoveSnapshots` also expires snapshots by each branch's own age and count, in addition to the ids it
gets. It cannot follow a plan exactly. This module makes the changes with metadata updates
(`MetadataUpdate.RemoveSnapshots`, `RemoveSnapshotRef`). It deletes no file: the orphan scan removes
unreachable files. Unused schemas and specs stay.

Iceberg's `RewriteManifests` writes data manifests. Their entries keep sequence
numbers, row ids and snapshots. Each manifest gets a run of partitions that fills it. `RewriteManifests` does not
rewrite delete manifests; Iceberg's Spark action does. Both need Iceberg 1.12, because earlier versions gave
rows of format v3 new ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from iceberg_maint.core.commits.change import LiveEntry, MetadataReader, Violation
from iceberg_maint.core.commits.expiry_rules import (
    applied_to,
    check_expiry,
    has_expired,
    lost_with,
    read_removed_refs,
)
from iceberg_maint.core.commits.manifest_rules import (
    Partition,
    Regrouping,
    check_regrouping,
    cuts,
    digest_entries,
    planned_entries,
)
from iceberg_maint.core.commits.table_rules import check_publishes
from iceberg_maint.core.decisions.manifests_decision import clusters_of, target_manifest_bytes
from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import Manifest
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import ExpireSnapshots, RewriteManifests
from iceberg_maint.engines.spark.commit.gate import BaseMovedError, Gate, pending_publishes, table_version
from iceberg_maint.engines.spark.commit.retry import (
    OPERATION_CALLS,
    TableAccess,
    commit_with_retry,
    quiet_proxies,
    rejected,
    snapshot_with_token,
)
from iceberg_maint.engines.spark.commit.rewrite_files import summary_of
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import CONTENT_FILE, MANIFEST, OBJECT, STRING, JavaFunctions
from iceberg_maint.engines.spark.jvm.java_errors import failed_by_environment, one_line
from iceberg_maint.engines.spark.scan.scan import metadata_specs, spec_values
from iceberg_maint.errors import StaleBatchError
from iceberg_maint.ports.engine import CommitContext, Written

_NO_HEAD = -1
ExpiryCheck = Callable[
    [str, ExpireSnapshots, Mapping[str, Any], Mapping[str, Any], Retention], tuple[Violation, ...]
]


def commit_expiry(
    access: TableAccess,
    batch: Batch,
    work: ExpireSnapshots,
    context: CommitContext,
    *,
    check: ExpiryCheck = check_expiry,
) -> CommitResult:
    """Removes the batch's snapshots and refs in one commit.

    COMMITTED means that the table has none of them, whichever program removed them. An expiry adds no snapshot, so
    the id in the result is the head's. If the catalog applied the commit to other metadata than the checked
    metadata, the result lists the refs and snapshots that the commit removed beyond the plan.

    Raises FenceLostError if the lease is lost before the swap. An interrupt passes through.
    """
    bridge = access.bridge
    checked: list[tuple[str, dict[str, Any]]] = []

    def inspect(base: Any, metadata: Any) -> tuple[Violation, ...]:
        location = str(base.metadataFileLocation())
        retention = context.retention(location)
        if retention is None:
            raise BaseMovedError
        checked.append((location, _document(bridge, base)))
        return check(batch.table_uuid, work, checked[-1][1], _document(bridge, metadata), retention)

    def try_once(table: Any) -> tuple[Gate, Exception | None]:
        access.begin_try(batch, table, 1)
        operations = table.operations()
        gate = Gate(bridge, operations, inspect, context, requires_refs=True)
        try:
            base = operations.current()
            gate.commit(base, _without(bridge, base, work))
        except Exception as why:  # noqa: BLE001 - the caller classifies it, by the table
            return gate, why
        return gate, None

    def find_commit(table: Any, _base_snapshot_id: int | None) -> int | None:
        document = _document(bridge, table.operations().current())
        head = document.get("current-snapshot-id")
        return (_NO_HEAD if head is None else int(head)) if has_expired(work, document) else None

    result = commit_with_retry(access, batch.table, context, try_once, find_commit)
    if result.status is not CommitStatus.COMMITTED or context.checks_commit_base:
        return result
    return replace(result, lost=_lost(access, batch.table, work, *checked[-1]))


def _lost(
    access: TableAccess, name: str, work: ExpireSnapshots, location: str, base: Mapping[str, Any]
) -> tuple[str, ...]:
    """The refs and snapshots that a commit, checked with the metadata at `location`, removed beyond the plan."""

    def compare_metadata() -> tuple[str, ...]:
        bridge, table = access.bridge, access.load(name)
        read = bridge.iceberg.TableMetadataParser.read
        log = [str(entry.file()) for entry in bridge.iterate(table.operations().current().previousFiles())]
        swapped = applied_to(work, location, log, lambda before: _document(bridge, read(table.io(), before)))
        return () if swapped is None else lost_with(work, base, swapped)

    return read_removed_refs(compare_metadata, access.backoff.after, one_line)


def _without(bridge: Bridge, base: Any, work: ExpireSnapshots) -> Any:
    """The metadata without the planned refs and snapshots.

    The changes cross as Iceberg's JSON. In a Java list an id below 2^31 would arrive as an Integer and equal
    no snapshot id, which is a Long.
    """

    builder = bridge.iceberg.TableMetadata.buildFrom(base)
    updates: list[dict[str, Any]] = [{"action": "remove-snapshot-ref", "ref-name": n} for n in work.refs]
    if work.snapshots:
        updates.append({"action": "remove-snapshots", "snapshot-ids": list(work.snapshots)})
    for update in updates:
        bridge.iceberg.MetadataUpdateParser.fromJson(json.dumps(update)).applyTo(builder)
    return builder.build()


def _document(bridge: Bridge, metadata: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(str(bridge.iceberg.TableMetadataParser.toJson(metadata)))
    return document


_WRITTEN_WITH = {"write.manifest.compression-level": "6"}
"""Avro's default level is 9. At level 9 regrouping takes 1.5 times as long (docs: manifests-decoder)."""

RegroupCheck = Callable[[Batch, RewriteManifests, Regrouping], tuple[Violation, ...]]


def commit_regrouping(
    access: TableAccess,
    batch: Batch,
    work: RewriteManifests,
    written: Written,
    context: CommitContext,
    *,
    check: RegroupCheck = check_regrouping,
) -> CommitResult:
    """Rewrites the batch's manifests, which have one spec and one kind, and swaps them in.

    Raises FenceLostError if the lease is lost before the swap. An interrupt passes through.
    """
    bridge, reader = access.bridge, access.reader
    planned = frozenset(work.manifests)
    try:
        listed = _manifests(reader, access.load(batch.table).currentSnapshot())
        manifests = [m for m in listed if m.path in planned]
        if len(manifests) < len(planned):
            return rejected(Rejection.STALE, "the table no longer has a manifest of the plan", 0)
        # One read serves every try, because a manifest never changes.
        before = planned_entries(_entries(reader, manifests), batch.format_version)
    except Exception as why:  # noqa: BLE001 - nothing was tried, so every exception rejects
        kind = Rejection.ENVIRONMENT if failed_by_environment(why) else Rejection.ERROR
        return rejected(kind, one_line(why), 0)
    commit_manifests = _commit_delete_manifests if manifests[0].is_deletes else _commit_data_manifests
    commit = partial(commit_manifests, bridge, batch.table, manifests, before.partitions)

    def inspect(base: Any, metadata: Any) -> tuple[Violation, ...]:
        if waiting := check_publishes(context.publish_wait(pending_publishes(bridge, base))):
            return waiting
        old, new = (table_version(m, metadata_specs(bridge, m), reader) for m in (base, metadata))
        old_paths = {m.path for m in old.manifests}
        new_manifests = [m for m in new.manifests if m.path not in old_paths]
        after = digest_entries(_entries(reader, new_manifests), before.without_row_ids)
        return check(batch, work, Regrouping(old, new, before.digest, after))

    def try_once(table: Any) -> tuple[Gate, Exception | None]:
        access.begin_try(batch, table, OPERATION_CALLS)
        if table.currentSnapshot() is None:
            raise StaleBatchError("the table has no snapshot")
        gate = Gate(bridge, table.operations(), inspect, context)
        with bridge.callbacks(), quiet_proxies():
            try:
                commit(gate, summary_of(batch, written, context))
            except Exception as why:  # noqa: BLE001 - the caller classifies it, by the table
                return gate, why
        return gate, None

    find_commit = partial(snapshot_with_token, bridge, context.token)
    return commit_with_retry(access, batch.table, context, try_once, find_commit)


def _manifests(reader: MetadataReader, snapshot: Any) -> Sequence[Manifest]:
    return () if snapshot is None else reader.manifest_list(str(snapshot.manifestListLocation()))


def _entries(reader: MetadataReader, manifests: Iterable[Manifest]) -> Iterator[LiveEntry]:
    """The live entries of the manifests, read one manifest at a time. Memory holds the entries of one manifest."""
    return (entry for manifest in manifests for entry in reader.live_entries(manifest))


def _commit_data_manifests(
    bridge: Bridge,
    name: str,
    manifests: Sequence[Manifest],
    partitions: Mapping[Partition, int],
    gate: Gate,
    summary: dict[str, str],
) -> None:
    functions = bridge.once(JavaFunctions)
    table = gate.table(name)
    with gate.showing(_WRITTEN_WITH):
        operation = table.rewriteManifests()
    starts = _starts(bridge, table, manifests, partitions)
    # Java: file -> starts.floorKey(file.partition()), the last of the starts that is not after the partition
    struct = "org.apache.iceberg.StructLike"
    floor = functions.bound(starts, "java.util.TreeMap", "floorKey", OBJECT, OBJECT)
    floor = floor.asType(functions.type_of(OBJECT, struct))
    partition_run = functions.compose(functions.method(CONTENT_FILE, "partition", struct), floor)
    operation.rewriteIf(_is_one_of(functions, manifests)).clusterBy(functions.function(partition_run))
    for key, value in summary.items():
        operation.set(key, value)
    operation.commit()


def _commit_delete_manifests(
    bridge: Bridge,
    name: str,
    manifests: Sequence[Manifest],
    _partitions: Mapping[Partition, int],
    gate: Gate,
    summary: dict[str, str],
) -> None:
    table = gate.table(name)
    action = bridge.iceberg.spark.actions.SparkActions.get(bridge.session).rewriteManifests(table)
    action.specId(manifests[0].spec_id).rewriteIf(_is_one_of(bridge.once(JavaFunctions), manifests))
    for key, value in summary.items():
        action.snapshotProperty(key, value)
    action.execute()


def _is_one_of(functions: JavaFunctions, manifests: Sequence[Manifest]) -> Any:
    """A predicate: whether a Java manifest is one of these."""
    # Java: manifest -> paths.contains(manifest.path())
    path = functions.method(MANIFEST, "path", STRING)
    return functions.predicate(functions.compose(path, functions.contains([m.path for m in manifests])))


def _starts(
    bridge: Bridge, table: Any, manifests: Sequence[Manifest], partitions: Mapping[Partition, int]
) -> Any:
    """The partitions at which a new manifest starts, as a `TreeMap` in Iceberg's order of partitions."""
    java_spec = table.specs().get(manifests[0].spec_id)
    partition_type = java_spec.partitionType()
    starts = bridge.jvm.java.util.TreeMap(bridge.iceberg.types.Comparators.forType(partition_type))
    clusters = clusters_of(manifests, target_manifest_bytes(dict(table.properties())))
    [spec] = spec_values(bridge, [java_spec]).values()
    runs = cuts(partitions, clusters)
    # The partition with NULL in every field is the first of all.
    for document in ({}, *(single_values(spec, partition) for partition in runs)):
        if document is not None:
            start = bridge.iceberg.SingleValueParser.fromJson(partition_type, json.dumps(document))
            starts.put(start, start)
    return starts


def single_values(spec: PartitionSpec, partition: Partition) -> dict[str, Any] | None:
    """A partition as JSON (spec: "JSON single-value serialization").

    None if a value has no such form, for example NaN or a date that Python cannot represent. No run starts at
    such a partition, so the run before it is longer.
    """
    values: dict[str, Any] = {}
    for field, value in zip(spec.fields, partition, strict=True):
        if value is None:
            continue
        try:
            values[str(field.field_id)] = _single_value(field.result_type, value)
        except (OverflowError, ValueError):
            return None
    return values


def _single_value(type_name: str, value: object) -> Any:
    if isinstance(value, bool | str) or type_name in ("int", "long"):
        return value
    if isinstance(value, int):
        return _temporal(type_name, value)
    if isinstance(value, bytes):
        if type_name in ("float", "double"):
            raise ValueError("runs do not start at floats")
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, UUID):
        return str(value)
    raise ValueError(f"{type_name} {value!r}")


def _temporal(type_name: str, value: int) -> str:
    if type_name == "date":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    digits = 9 if type_name.endswith("_ns") else 6
    seconds, fraction = divmod(value, 10**digits)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    clock = f"{moment:%H:%M:%S}.{fraction:0{digits}d}"
    if type_name == "time":
        return clock
    return f"{moment.date().isoformat()}T{clock}{'+00:00' if 'tz' in type_name else ''}"
