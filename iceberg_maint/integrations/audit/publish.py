"""Copies the entries of the audit log to an Iceberg table, each once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, TimestamptzType

from iceberg_maint.catalog.manifests.avro import check_bounds_of_pyiceberg
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import IcebergMaintError, RefusedError
from iceberg_maint.integrations.audit.chain import Entry, Kind
from iceberg_maint.integrations.audit.log import AuditLog
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.lease import LEASE_TTL_SECONDS, leased
from iceberg_maint.ports.observers import AuditRow, AuditTable, ChainEnd

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

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
    context: Context, log: AuditLog, chains: Callable[[], list[str]], table: AuditTable, name: TableId
) -> Published:
    """Appends the entries that the audit table `name` lacks, under the lease of that table: neither a second
    publication nor a run that maintains the table is at work.

    Raises RefusedError ICM-109 if another owner keeps the lease, ICM-157, and IcebergMaintError ICM-158.
    """
    table_uuid = table.open()
    with leased(
        context.ledger,
        context.clock,
        table_uuid=table_uuid,
        table=str(name),
        owner=f"audit-{uuid.uuid4().hex[:12]}",
        min_fence=context.catalogs.of(name).pin(name).newest_fence(),
        wait_seconds=LEASE_TTL_SECONDS + 5,
    ) as lease:
        if lease is None:
            raise RefusedError(
                "ICM-109",
                f"{name}: another run works on the audit table. Nothing was published.",
                "publish again when it has ended.",
            )
        return publish(log, chains(), table)


_NUMBERS = frozenset({"sequence", "snapshot_before", "snapshot_after"})
_REQUIRED = frozenset({"chain", "sequence", "kind", "subject", "at", "entry_hash", "previous_hash", "body"})
_NAMES = tuple("at" if f.name == "at_ms" else f.name for f in fields(AuditRow))
_AT_ID = _NAMES.index("at") + 1


def _type(name: str) -> IcebergType:
    if name == "at":
        return TimestamptzType()
    return LongType() if name in _NUMBERS else StringType()


SCHEMA = Schema(*(NestedField(n, name, _type(name), name in _REQUIRED) for n, name in enumerate(_NAMES, 1)))
"""The columns: the fields of `AuditRow`, with `at` in place of `at_ms`."""
SPEC = PartitionSpec(PartitionField(_AT_ID, 1000, DayTransform(), "at_day"))


class IcebergAuditTable:
    """The audit table `name` in a catalog with these properties. It is created at the first use, partitioned by the
    day of the entries."""

    def __init__(self, name: TableId, properties: Mapping[str, str]) -> None:
        self._name = name
        self._properties = dict(properties)
        self._read: Table | None = None

    @cached_property
    def _catalog(self) -> Catalog:
        return load_catalog(self._name.catalog, **self._properties)

    def open(self) -> str:
        """Creates the table if it does not exist, and returns its UUID."""
        with _failures(self._name):
            return str(self._table().metadata.table_uuid)

    def ends(self) -> dict[str, ChainEnd]:
        """Reads three columns of the table. The next appends are commits on this snapshot."""
        ends: dict[str, ChainEnd] = {}
        with _failures(self._name):
            self._read = self._table()
            scan = self._read.scan(selected_fields=("chain", "sequence", "entry_hash"))
            for batch in scan.to_arrow_batch_reader():
                for row in batch.to_pylist():
                    end = ends.get(row["chain"])
                    if end is None or end.sequence < row["sequence"]:
                        ends[row["chain"]] = ChainEnd(row["sequence"], row["entry_hash"])
        return ends

    def append(self, rows: Sequence[AuditRow]) -> None:
        """Appends the rows by one commit on the snapshot whose ends were read, or on the last append."""
        with _failures(self._name):
            table = self._read or self._table()
            # After a conflict PyIceberg would append the rows to the commit of another process, which may have them.
            table.metadata.properties["commit.retry.num-retries"] = "0"
            table.append(pa.Table.from_pylist(list(map(_values, rows)), schema=table.schema().as_arrow()))

    def _table(self) -> Table:
        check_bounds_of_pyiceberg()
        identifier = (*self._name.namespace, self._name.name)
        try:
            table = self._catalog.load_table(identifier)
        except NoSuchTableError:
            self._catalog.create_namespace_if_not_exists(self._name.namespace)
            table = self._catalog.create_table_if_not_exists(identifier, SCHEMA, partition_spec=SPEC)
        _check(self._name, table.schema())
        return table


def _values(row: AuditRow) -> dict[str, Any]:
    values = asdict(row)
    return {**values, "at": datetime.fromtimestamp(values.pop("at_ms") / 1000, UTC)}


def _check(name: TableId, schema: Schema) -> None:
    actual = {f.name: f.field_type for f in schema.fields}
    wrong = [f.name for f in SCHEMA.fields if actual.get(f.name) != f.field_type]
    unknown = [f.name for f in schema.fields if f.required and f.name not in _NAMES]
    if wrong or unknown:
        raise RefusedError(
            "ICM-157",
            f"audit.table is {name}, and that table has other columns than the audit log: {', '.join(wrong + unknown)}. "
            "Nothing is written to it.",
            "name another table in audit.table, or drop this one: the next publication creates it again from the log.",
        )


@contextmanager
def _failures(name: TableId) -> Iterator[None]:
    """Turns errors of the catalog and the store into ICM-158."""
    try:
        yield
    except IcebergMaintError:
        raise
    except Exception as why:
        cause = " ".join(f"{type(why).__name__}: {why}".split())[:300]
        raise IcebergMaintError(
            "ICM-158",
            f"the audit table {name} cannot be used: {cause}.",
            "check the catalog, the store and the permissions of audit.table. The audit log has every entry, and the "
            "next publication appends what the table lacks.",
        ) from why
