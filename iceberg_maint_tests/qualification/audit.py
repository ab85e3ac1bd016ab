"""10,000 records on disk and on S3, with deaths and damage: `make qualify SUITE=audit`.

On disk the process dies before or after the entry of every record. On moto's S3 it dies at every hundredth. Then
entries are edited, cut, swapped and replaced, and `audit verify` must name exactly these.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from pyiceberg.io import load_file_io

from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.integrations.audit.audit_commands import ledger_faults
from iceberg_maint.integrations.audit.chain import FaultKind, Kind, entry_file_name, next_entry, parse
from iceberg_maint.integrations.audit.folder import Folder, LocalFolder, StoreFolder
from iceberg_maint.integrations.audit.log import AuditLog
from iceberg_maint_tests.audit.test_log import TABLE, UUID, Death, FakeLedger, record_number
from iceberg_maint_tests.support.telemetry.receivers import fake_aws

RECORDS = 10_000


class Dying:
    """A folder that ends the process at its next entry, if it is told to."""

    def __init__(self, inner: Folder) -> None:
        self._inner = inner
        self.names, self.read, self.remove = inner.names, inner.read, inner.remove
        self.dies: str | None = None

    def create(self, name: str, data: bytes) -> None:
        dies, self.dies = self.dies, None
        if dies == "before":
            raise Death
        self._inner.create(name, data)
        if dies == "after":
            raise Death


def fill(folder: Folder, records: int, every: int) -> tuple[FakeLedger, int]:
    """Appends all records. At every so many the process dies before or after the entry, and another follows."""
    dying, ledger, deaths = Dying(folder), FakeLedger(), 0
    log = AuditLog(lambda _: dying, ledger)  # type: ignore[arg-type]
    for n in range(records):
        ledger.stored.append(record_number(n))
        if n % every == 0:
            dying.dies = "before" if n // every % 2 else "after"
        try:
            log.settle(TABLE, UUID)
        except Death:
            deaths += 1
            log = AuditLog(lambda _: dying, ledger)  # type: ignore[arg-type]
            log.settle(TABLE, UUID)
    return ledger, deaths


def check(
    place: str, folder: Folder, overwrite: Callable[[str, bytes], None], records: int, every: int
) -> dict[str, bool]:
    """Fills a log, damages it, and compares the named faults."""
    begin = time.monotonic()
    ledger, deaths = fill(folder, records, every)
    log = AuditLog(lambda _: folder, ledger)  # type: ignore[arg-type]
    verdict = log.read(UUID)
    ids = [e.subject for e in verdict.entries if e.kind is Kind.RECORD]
    whole = not verdict.faults and ids == [r.record_id for r in ledger.stored]
    edited, swapped, replaced = records // 2, records * 7 // 10, records * 8 // 10
    first, second = folder.read(entry_file_name(swapped)), folder.read(entry_file_name(swapped + 10))
    folder.remove([entry_file_name(3)])
    overwrite(
        entry_file_name(edited),
        folder.read(entry_file_name(edited)).replace(b'"run_id":"run', b'"run_id":"ran'),
    )
    overwrite(entry_file_name(swapped), second)
    overwrite(entry_file_name(swapped + 10), first)
    old = parse(folder.read(entry_file_name(replaced)))
    forged = next_entry(
        parse(folder.read(entry_file_name(replaced - 1))),
        old.kind,
        old.subject,
        old.at_ms,
        {**old.body, "plan_id": "x"},
    )
    overwrite(entry_file_name(replaced), forged.to_bytes())
    folder.remove([entry_file_name(records)])
    verdict = log.read(UUID)
    by_ledger, _ = ledger_faults(verdict, ledger.stored[::-1])
    seconds = time.monotonic() - begin
    return {
        f"{place}: {records} records, {deaths} deaths, no gap and no double ({seconds:.0f} s)": whole,
        f"{place}: removed, edited, swapped and replaced entries are named, and no other": [
            (f.kind, f.name) for f in verdict.faults
        ]
        == [
            (FaultKind.MISSING, entry_file_name(3)),
            (FaultKind.CHANGED, entry_file_name(edited)),
            (FaultKind.MOVED, entry_file_name(swapped)),
            (FaultKind.MOVED, entry_file_name(swapped + 10)),
            (FaultKind.REPLACED, entry_file_name(replaced)),
        ],
        f"{place}: the end that was cut is named by the ledger's record": (
            FaultKind.CUT,
            f"r{records - 1}",
        )
        in [(f.kind, f.name) for f in by_ledger],
    }


def on_disk(folder: Path, records: int) -> dict[str, bool]:
    """The log on disk: the process dies at every record."""
    root = folder / UUID

    def overwrite(name: str, data: bytes) -> None:
        (root / name).write_bytes(data)

    return check("disk", LocalFolder(root), overwrite, records, 1)


@contextmanager
def _bucket() -> Iterator[tuple[Folder, Callable[[str, bytes], None]]]:
    with fake_aws() as endpoint:
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        client.create_bucket(Bucket="audit")
        properties = {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "k",
            "s3.secret-access-key": "s",
            "s3.region": "us-east-1",
        }
        store = open_store(load_file_io(properties, "s3://audit/log"), "s3://audit/log")

        def overwrite(name: str, data: bytes) -> None:
            client.put_object(Bucket="audit", Key=f"log/{UUID}/{name}", Body=data)

        yield StoreFolder(store, f"s3://audit/log/{UUID}"), overwrite


def on_s3(records: int) -> dict[str, bool]:
    """The log on moto's S3: the process dies at every hundredth record."""
    with _bucket() as (folder, overwrite):
        return check("S3", folder, overwrite, records, 100)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="test-audit")
    parser.add_argument("--only", choices=["disk", "s3"])
    parser.add_argument("--records", type=int, default=RECORDS, help="at least 100")
    chosen = parser.parse_args(arguments)
    only = chosen.only
    results: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as folder:
        if only in (None, "disk"):
            results |= on_disk(Path(folder), chosen.records)
        if only in (None, "s3"):
            results |= on_s3(chosen.records)
    for claim, holds in results.items():
        print(f"{'ok  ' if holds else 'FAIL'} {claim}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
