"""The row group size of a rewrite's files: small enough for parallel reads.

Readers split Parquet files between row groups only. One task reads each of many small files. If the
rewritten file had one row group, one task would read all of it.
"""

from __future__ import annotations

from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge

ROW_GROUP_PROPERTY = "write.parquet.row-group-size-bytes"
_DEFAULT_BYTES = 128 * 1024 * 1024
LEAST_BYTES = 8 * 1024 * 1024
"""Two row groups of this size and the cost of opening a file exceed Iceberg's smallest split
(`TableScanUtil.MIN_SPLIT_SIZE`, 16 MiB). Iceberg would combine smaller row groups into one split."""


def row_group_bytes(input_bytes: int, parallelism: int, table_bytes: int) -> int:
    """The row group size for a rewrite of `input_bytes`: the table's size, or less if one scan would have more
    tasks than row groups."""
    share = -(-input_bytes // max(1, parallelism))
    return min(table_bytes, max(LEAST_BYTES, share))


def with_row_groups(bridge: Bridge, table: Any, input_bytes: int) -> Any:
    """The Java table with the row group size for a write of `input_bytes`. The change is not committed.

    A table with encrypted files does not change, because the copy would not have the keys.
    """
    is_plaintext = "PlaintextEncryptionManager" in str(table.encryption().getClass().getSimpleName())
    table_bytes = int(table.properties().getOrDefault(ROW_GROUP_PROPERTY, str(_DEFAULT_BYTES)))
    parallelism = int(bridge.spark.sparkContext.defaultParallelism)
    size_bytes = row_group_bytes(input_bytes, parallelism, table_bytes)
    if not is_plaintext or size_bytes >= table_bytes or input_bytes <= LEAST_BYTES:
        return table
    metadata = table.operations().current()
    builder = bridge.iceberg.TableMetadata.buildFrom(metadata)
    properties = bridge.map([(ROW_GROUP_PROPERTY, str(size_bytes))])
    location = metadata.metadataFileLocation()
    copy = builder.setProperties(properties).discardChanges().withMetadataLocation(location).build()
    operations = bridge.iceberg.StaticTableOperations(copy, table.io(), table.locationProvider())
    return bridge.iceberg.BaseTable(operations, table.name())
