"""Publishes the audit log to its Iceberg table, for the command `audit publish` and for Dagster."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from iceberg_maint.audit.log import AuditLog
from iceberg_maint.audit.publish import Published, publish
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.audit import AuditTable
from iceberg_maint.runner.lease import LEASE_TTL_SECONDS, leased
from iceberg_maint.runner.runtime import Runtime


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
