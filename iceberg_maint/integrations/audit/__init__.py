"""Audit: an append-only, hash-chained log of maintenance on disk or object storage."""

from __future__ import annotations

from pathlib import Path

from iceberg_maint.config import Config, redact
from iceberg_maint.config.sections import AuditConfig
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.integrations.audit.folder import (
    Folder,
    LocalFolder,
    StoreFolder,
    folder_name,
    local_folders,
    store_folders,
)
from iceberg_maint.integrations.audit.log import AuditLog
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.storage import Store
from iceberg_maint.wiring.integrations import Integration


def audit_log(config: Config, ledger: Ledger) -> AuditLog:
    """The audit log of a configuration. Opens nothing. Raises ConfigurationError ICM-100 without a location."""
    audit = config.audit
    if audit is None:
        raise ConfigurationError(
            "ICM-100", "the configuration has no section audit.", "set audit.location to a location."
        )
    root = None if audit.local_path is None else Path(audit.local_path)

    def folder_of(table_uuid: str) -> Folder:
        if root is not None:
            return LocalFolder(root / folder_name(table_uuid))
        return StoreFolder(_store(audit), f"{audit.location}/{folder_name(table_uuid)}")

    def chains() -> list[str]:
        return local_folders(root) if root is not None else store_folders(_store(audit), audit.location)

    return AuditLog(
        folder_of,
        ledger,
        chains,
        required=audit.required,
        keep_days=audit.keep_days,
        masked=lambda text: redact(text, config.secrets),
    )


def _store(audit: AuditConfig) -> Store:
    from pyiceberg.io import load_file_io

    from iceberg_maint.catalog.approved_io import open_store

    return open_store(load_file_io(dict(audit.properties), audit.location), audit.location)


INTEGRATION = Integration(audit=audit_log)
