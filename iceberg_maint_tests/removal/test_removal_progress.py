"""The work of a scan that ended before it listed anything."""

from __future__ import annotations

from iceberg_maint.ports.storage import OrphanWork, ReleasedWork
from iceberg_maint.removal.removal_progress import RemovalProgress


def test_work_without_a_scan_has_no_files() -> None:
    assert RemovalProgress().work(None) == OrphanWork(0, 0, 0, 0, released=ReleasedWork())
