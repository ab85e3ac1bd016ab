"""Row groups of the files a rewrite writes: small enough that all readers' tasks get a share.

Readers split Parquet files between row groups only. Many small files are read by as many tasks as
there are; the one file they become would be read by one task, if it had one row group.
"""

from __future__ import annotations

from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge

ROW_GROUP_PROPERTY = "write.parquet.row-group-size-bytes"
_DEFAULT_BYTES = 128 * 1024 * 1024
LEAST_BYTES = 8 * 1024 * 1024
"""Two of them do not fit Iceberg's smallest split (`TableScanUtil.MIN_SPLIT_SIZE`, 16 MiB) together
with what opening a file counts for; smaller ones would only be put together again."""


def row_group_bytes(input_bytes: int, parallelism: int, table_bytes: int) -> int:
    """The row group size for the rewrite of so many bytes: the table's, or less where the tasks of
    one scan would outnumber the row groups."""
    share = -(-input_bytes // max(1, parallelism))
    return min(table_bytes, max(LEAST_BYTES, share))


def with_row_groups(bridge: Bridge, table: Any, input_bytes: int) -> Any:
    """The Java table as a write of so many bytes is to see it. Nothing of it is committed.

    Tables whose files are encrypted stay as they are: a copy would not know their keys.
    """
    plain = "PlaintextEncryptionManager" in str(table.encryption().getClass().getSimpleName())
    own = int(table.properties().getOrDefault(ROW_GROUP_PROPERTY, str(_DEFAULT_BYTES)))
    wanted = row_group_bytes(input_bytes, int(bridge.spark.sparkContext.defaultParallelism), own)
    if not plain or wanted >= own or input_bytes <= LEAST_BYTES:
        return table
    metadata = table.operations().current()
    builder = bridge.iceberg.TableMetadata.buildFrom(metadata)
    properties = bridge.map([(ROW_GROUP_PROPERTY, str(wanted))])
    location = metadata.metadataFileLocation()
    changed = builder.setProperties(properties).discardChanges().withMetadataLocation(location).build()
    operations = bridge.iceberg.StaticTableOperations(changed, table.io(), table.locationProvider())
    return bridge.iceberg.BaseTable(operations, table.name())
