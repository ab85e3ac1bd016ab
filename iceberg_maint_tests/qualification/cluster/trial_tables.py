"""The tables of the trials, made and read by PyIceberg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_maint.core.model.table_state import BATCH_PROPERTY
from iceberg_maint_tests.qualification.cluster.configuration import Addresses, catalog_properties

PARTITIONS, FILES, ROWS = 3, 6, 500
_SCHEMA = Schema(NestedField(1, "p", LongType()), NestedField(2, "v", StringType()))
_SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))


class TrialTable:
    """A table as the catalog has it at each call."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog, self._name = catalog, f"demo.{name}"

    def batches(self) -> list[str]:
        """The batch of each commit of a rewrite, in order."""
        summaries = [s.summary for s in self._table().snapshots()]
        return [str(s[BATCH_PROPERTY]) for s in summaries if s is not None and s.get(BATCH_PROPERTY)]

    def files(self) -> int:
        """The number of data files."""
        return len(self.paths())

    def paths(self) -> list[str]:
        """The paths of the data files."""
        return [task.file.file_path for task in self._table().scan().plan_files()]

    def _table(self) -> Table:
        return self._catalog.load_table(self._name)


def make_tables(addresses: Addresses, names: Sequence[str]) -> Mapping[str, TrialTable]:
    """Makes tables with one small file in each partition per commit."""
    catalog = RestCatalog("lake", uri=addresses.catalog, **catalog_properties(addresses))
    catalog.create_namespace("demo")
    for name in names:
        table = catalog.create_table(f"demo.{name}", _SCHEMA, partition_spec=_SPEC)
        for number in range(FILES):
            p = [row % PARTITIONS for row in range(ROWS)]
            rows = {"p": p, "v": [f"{number}-{row}" for row in range(ROWS)]}
            table.append(pa.table(rows, schema=_SCHEMA.as_arrow()))
    return {name: TrialTable(catalog, name) for name in names}
