"""Readers: the engines that read a table, and what each of them cannot read."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Reader(StrEnum):
    """An engine that may be named in the policy key `readers`."""

    CLICKHOUSE = "clickhouse"
    DAFT = "daft"
    DUCKDB = "duckdb"
    POLARS = "polars"
    PYICEBERG = "pyiceberg"
    SPARK = "spark"


class Feature(StrEnum):
    """What a commit of maintenance may bring into a table that had none of it."""

    CODEC_LZ4 = "codec lz4"
    DATA_AVRO = "data avro"
    DATA_ORC = "data orc"
    DELETION_VECTORS = "deletion vectors"
    POSITION_DELETES_PARQUET = "position deletes parquet"
    POSITION_DELETES_AVRO = "position deletes avro"
    POSITION_DELETES_ORC = "position deletes orc"


_NOT_ORC = frozenset({Reader.CLICKHOUSE, Reader.DAFT, Reader.DUCKDB, Reader.POLARS})
UNREAD: Mapping[Feature, frozenset[Reader]] = {
    Feature.CODEC_LZ4: frozenset({Reader.DUCKDB}),
    Feature.DATA_AVRO: frozenset({Reader.DAFT, Reader.DUCKDB, Reader.POLARS, Reader.PYICEBERG}),
    Feature.DATA_ORC: frozenset({Reader.DAFT, Reader.DUCKDB, Reader.POLARS}),
    Feature.DELETION_VECTORS: frozenset({Reader.CLICKHOUSE, Reader.DAFT}),
    Feature.POSITION_DELETES_PARQUET: frozenset(),
    Feature.POSITION_DELETES_AVRO: _NOT_ORC | {Reader.PYICEBERG},
    Feature.POSITION_DELETES_ORC: _NOT_ORC,
}
"""The readers that do not read a feature. A test compares this with the record of `make qualify SUITE=readers`."""
