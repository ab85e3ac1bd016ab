"""The Iceberg table that has a copy of the audit log, written by PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
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
from iceberg_maint.ports.observers import AuditRow, ChainEnd

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

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
