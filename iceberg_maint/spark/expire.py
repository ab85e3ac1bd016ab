"""Expiry of snapshots and refs: a commit to a table's metadata that removes exactly the planned ones.

Iceberg's `RemoveSnapshots` also expires by each branch's own age and count, whatever it is told
besides, so that it could not be held to a plan. The same changes are made by the metadata's own
updates (`MetadataUpdate.RemoveSnapshots`, `RemoveSnapshotRef`). No file is deleted: what nothing
reaches any more is for the orphan pass, and expired schemas and specs stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from iceberg_maint.core.expiry import check_expiry
from iceberg_maint.core.gate import Violation
from iceberg_maint.core.outcome import CommitResult
from iceberg_maint.core.plan import Batch
from iceberg_maint.core.retention import Retention
from iceberg_maint.errors import StaleBatchError
from iceberg_maint.ports import Ticket
from iceberg_maint.spark.bridge import Bridge
from iceberg_maint.spark.gate import BaseMovedError, Gate
from iceberg_maint.spark.tries import LoadTable, Pause, commit_tries

ExpiryCheck = Callable[[Batch, Mapping[str, Any], Mapping[str, Any], Retention], tuple[Violation, ...]]


def commit_expiry(
    bridge: Bridge,
    batch: Batch,
    ticket: Ticket,
    *,
    pause: Pause,
    load_table: LoadTable | None = None,
    check: ExpiryCheck = check_expiry,
) -> CommitResult:
    """Removes the batch's snapshots and refs in one commit. COMMITTED means that the table lacks them
    all, whoever removed them; no snapshot tells of it, so the id is that of the head.

    Raises FenceLostError when the lease is lost before the swap, and whatever interrupts it.
    """
    load = load_table or bridge.load_table

    def inspect(base: Any, metadata: Any) -> tuple[Violation, ...]:
        retention = ticket.retention(str(base.metadataFileLocation()))
        if retention is None:
            raise BaseMovedError
        return check(batch, _document(bridge, base), _document(bridge, metadata), retention)

    def try_once(table: Any) -> tuple[Gate, Exception | None]:
        if str(table.uuid()) != batch.table_uuid:
            raise StaleBatchError(f"the table is {table.uuid()}, the plan was for {batch.table_uuid}")
        gate = Gate(bridge, table.operations(), inspect, ticket.holds, ticket.record_try)
        try:
            base = gate.current()
            gate.commit(base, _without(bridge, base, batch))
        except Exception as why:  # noqa: BLE001 - classified by the caller, with the table's word
            return gate, why
        return gate, None

    def shown(table: Any, _base_snapshot_id: int | None) -> int | None:
        document = _document(bridge, table.operations().current())
        left = {int(s["snapshot-id"]) for s in document.get("snapshots", ())} & set(batch.snapshots)
        refs = document.get("refs", {}).keys() & set(batch.refs)
        return None if left or refs else int(document["current-snapshot-id"])

    return commit_tries(load, batch.table, ticket, pause, try_once, shown)


def _without(bridge: Bridge, base: Any, batch: Batch) -> Any:
    """The metadata without the planned refs and snapshots. The changes cross as Iceberg's JSON: an id
    below 2^31 would arrive as an Integer in a list, and be found nowhere."""
    builder = bridge.iceberg.TableMetadata.buildFrom(base)
    updates: list[dict[str, Any]] = [{"action": "remove-snapshot-ref", "ref-name": n} for n in batch.refs]
    if batch.snapshots:
        updates.append({"action": "remove-snapshots", "snapshot-ids": list(batch.snapshots)})
    for update in updates:
        bridge.iceberg.MetadataUpdateParser.fromJson(json.dumps(update)).applyTo(builder)
    return builder.build()


def _document(bridge: Bridge, metadata: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(str(bridge.iceberg.TableMetadataParser.toJson(metadata)))
    return document
