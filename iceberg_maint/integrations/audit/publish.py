"""Copies the entries of the audit log to an Iceberg table, each once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import RefusedError
from iceberg_maint.integrations.audit.chain import Entry, Kind
from iceberg_maint.integrations.audit.log import AuditLog
from iceberg_maint.loop.context import Runtime
from iceberg_maint.loop.lease import LEASE_TTL_SECONDS, leased
from iceberg_maint.ports.observers import AuditRow, AuditTable, ChainEnd

ROWS_PER_APPEND = 5_000


@dataclass(slots=True)
class Published:
    """What one call copied. `damaged` has the chains that were not copied to their end, with the reason."""

    entries: int = 0
    appends: int = 0
    damaged: dict[str, str] = field(default_factory=dict)


def publish(log: AuditLog, chains: Sequence[str], table: AuditTable) -> Published:
    """Appends the entries that the table lacks, the oldest of each chain first.

    The table itself says what it has: the last entry of each chain. So a crash, or an append whose answer was
    lost, neither omits nor repeats an entry. The caller lets one call run at a time. The chain of the table itself
    is omitted: copying it would be work to copy. A chain with a damaged or missing entry is copied up to that entry.
    """
    own, ends = table.open(), table.ends()
    published = Published()
    rows: list[AuditRow] = []
    for chain in chains:
        if chain == own:
            continue
        try:
            for entry in _new_entries(log, chain, ends.get(chain)):
                rows.append(row_of(chain, entry))
                if len(rows) == ROWS_PER_APPEND:
                    _append(table, rows, published)
        except ValueError as why:
            published.damaged[chain] = str(why)
    if rows:
        _append(table, rows, published)
    return published


def _append(table: AuditTable, rows: list[AuditRow], published: Published) -> None:
    table.append(rows)
    published.entries += len(rows)
    published.appends += 1
    rows.clear()


def _new_entries(log: AuditLog, chain: str, end: ChainEnd | None) -> Iterator[Entry]:
    """The entries behind this end. Raises ValueError for the first one that does not follow.

    Retention may have removed entries that the table never got. Then the first one that the log has follows.
    """
    last = end
    for entry in log.entries_after(chain, 0 if end is None else end.sequence):
        follows = last is not None and entry.sequence == last.sequence + 1
        if follows and last is not None and entry.previous != last.hash:
            raise ValueError(f"the entry {last.sequence} was replaced after it was copied or read")
        if not follows and last is not end:
            raise ValueError(
                f"the entries {(last.sequence if last else 0) + 1} to {entry.sequence - 1} are missing"
            )
        yield entry
        last = ChainEnd(entry.sequence, entry.hash)


def row_of(chain: str, entry: Entry) -> AuditRow:
    """The row of an entry."""
    body = entry.body
    outcome: Mapping[str, object] = body.get("outcome", {}) if entry.kind is Kind.RECORD else {}

    def text(value: object) -> str | None:
        return None if value is None else str(value)

    def number(value: object) -> int | None:
        return value if isinstance(value, int) else None

    return AuditRow(
        chain=chain,
        sequence=entry.sequence,
        kind=entry.kind.value,
        subject=entry.subject,
        at_ms=entry.at_ms,
        table_name=text(body.get("table")),
        run_id=text(body.get("run_id")),
        operation=text(body.get("operation")),
        outcome=text(outcome.get("outcome")),
        reason=text(outcome.get("reason")),
        snapshot_before=number(outcome.get("snapshot_before", body.get("snapshot_before"))),
        snapshot_after=number(outcome.get("snapshot_after")),
        entry_hash=entry.hash,
        previous_hash=entry.previous,
        body=json.dumps(dict(body), sort_keys=True),
    )


def publish_audit_log(
    runtime: Runtime, log: AuditLog, chains: Callable[[], list[str]], table: AuditTable, name: TableId
) -> Published:
    """Appends the entries that the audit table `name` lacks, under the lease of that table: neither a second
    publication nor a run that maintains the table is at work.

    Raises RefusedError ICM-109 if another owner keeps the lease, ICM-157, and IcebergMaintError ICM-158.
    """
    table_uuid = table.open()
    with leased(
        runtime.ledger,
        runtime.clock,
        table_uuid=table_uuid,
        table=str(name),
        owner=f"audit-{uuid.uuid4().hex[:12]}",
        min_fence=runtime.catalog_of(name).pin(name).newest_fence(),
        wait_seconds=LEASE_TTL_SECONDS + 5,
    ) as lease:
        if lease is None:
            raise RefusedError(
                "ICM-109",
                f"{name}: another run works on the audit table. Nothing was published.",
                "publish again when it has ended.",
            )
        return publish(log, chains(), table)
