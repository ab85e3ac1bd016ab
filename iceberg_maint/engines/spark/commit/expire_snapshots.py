"""Expires snapshots and refs with a commit to a table's metadata that removes exactly the planned ones.

Iceberg's `RemoveSnapshots` also expires snapshots by each branch's own age and count, in addition to the ids it
gets. It cannot follow a plan exactly. This module makes the changes with metadata updates
(`MetadataUpdate.RemoveSnapshots`, `RemoveSnapshotRef`). It deletes no file: the orphan pass removes
unreachable files. Unused schemas and specs stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from iceberg_maint.core.commits.change import Violation
from iceberg_maint.core.commits.expiry_rules import (
    applied_to,
    check_expiry,
    has_expired,
    look_for_lost,
    lost_with,
)
from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import ExpireSnapshots
from iceberg_maint.engines.spark.commit.gate import BaseMovedError, Gate
from iceberg_maint.engines.spark.commit.retry import Backoff, LoadTable, commit_with_retry
from iceberg_maint.engines.spark.jvm.bridge import Bridge, one_line
from iceberg_maint.errors import StaleBatchError
from iceberg_maint.ports.engine import CommitContext

_NO_HEAD = -1
ExpiryCheck = Callable[
    [str, ExpireSnapshots, Mapping[str, Any], Mapping[str, Any], Retention], tuple[Violation, ...]
]


def commit_expiry(
    bridge: Bridge,
    batch: Batch,
    work: ExpireSnapshots,
    context: CommitContext,
    *,
    backoff: Backoff,
    load_table: LoadTable | None = None,
    check: ExpiryCheck = check_expiry,
) -> CommitResult:
    """Removes the batch's snapshots and refs in one commit.

    COMMITTED means that the table has none of them, whichever program removed them. An expiry adds no snapshot, so
    the id in the result is the head's. If the catalog applied the commit to other metadata than the checked
    metadata, the result lists the refs and snapshots that the commit removed beyond the plan.

    Raises FenceLostError if the lease is lost before the swap. An interrupt passes through.
    """
    load = load_table or bridge.load_table
    checked: list[tuple[str, dict[str, Any]]] = []

    def inspect(base: Any, metadata: Any) -> tuple[Violation, ...]:
        location = str(base.metadataFileLocation())
        retention = context.retention(location)
        if retention is None:
            raise BaseMovedError
        checked.append((location, _document(bridge, base)))
        return check(batch.table_uuid, work, checked[-1][1], _document(bridge, metadata), retention)

    def try_once(table: Any) -> tuple[Gate, Exception | None]:
        bridge.take_calls(batch.table, 1)
        bridge.check_written_locations(batch.table, table)
        if str(table.uuid()) != batch.table_uuid:
            raise StaleBatchError(f"the table is {table.uuid()}, the plan was for {batch.table_uuid}")
        operations = table.operations()
        gate = Gate(
            bridge, operations, inspect, context.lease_is_held, context.record_try, requires_refs=True
        )
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

    result = commit_with_retry(load, batch.table, context, backoff, try_once, find_commit)
    if result.status is not CommitStatus.COMMITTED or context.checks_commit_base:
        return result
    return replace(result, lost=_lost(bridge, load, batch.table, work, *checked[-1], backoff))


def _lost(
    bridge: Bridge,
    load: LoadTable,
    name: str,
    work: ExpireSnapshots,
    location: str,
    base: Mapping[str, Any],
    backoff: Backoff,
) -> tuple[str, ...]:
    """The refs and snapshots that a commit, checked with the metadata at `location`, removed beyond the plan."""

    def compare_metadata() -> tuple[str, ...]:
        table = load(name)
        read = bridge.iceberg.TableMetadataParser.read
        log = [str(entry.file()) for entry in bridge.iterate(table.operations().current().previousFiles())]
        swapped = applied_to(work, location, log, lambda before: _document(bridge, read(table.io(), before)))
        return () if swapped is None else lost_with(work, base, swapped)

    return look_for_lost(compare_metadata, backoff.after, one_line)


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
