"""Translator: what a table is called in Dagster."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import CHECKS_OF_PARTITIONS, CHECKS_OF_TABLES
from iceberg_maint.errors import ConfigurationError

PARTITION_CHECKS: tuple[str, ...] = tuple(check.value for check in CHECKS_OF_PARTITIONS)
"""Names of the partitioned checks, which automation reacts to."""
QUARANTINE_CHECK = "quarantine"
NO_PROGRESS_CHECK = "no_progress"
TABLE_CHECKS: tuple[str, ...] = (QUARANTINE_CHECK, NO_PROGRESS_CHECK)
"""Names of the unpartitioned checks, which tell a person."""
HOUSEKEEPING_CHECKS: tuple[str, ...] = tuple(check.value for check in CHECKS_OF_TABLES)
"""Names of the housekeeping asset's checks, which automation reacts to."""

ENGINE_TAG = "iceberg_maint/engine"
"""Run tag that counts Spark sessions against the limit in `dagster.yaml`."""
FORCE_TAG = "iceberg_maint/force"
"""Run tag with value `true`: rewrites requested partitions even when they are healthy."""
OBSERVE_JOB = "observe_iceberg"
SHARD_VARIABLE = "ICEBERG_MAINT_SHARD"

_HOUSEKEEPING = "housekeeping"
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""What a part of an asset key may be made of: Dagster names outputs and checks after it
(`AssetKey.to_python_identifier`, which bears a dot too; only the parts encoded here have one)."""
_PARTS_OF_A_TABLE = 3
"""At least; what a namespace has too, if a table may be named so."""


def asset_key(table: TableId, prefix: Sequence[str] = ()) -> dg.AssetKey:
    """`prefix / catalog / namespace… / table`, each as it is spelled where Dagster takes that.

    Another part is spelled in plain letters, with a dot and a digest of what it is in the catalog;
    so is a table named as the housekeeping of the table that its namespace may be. Keys of
    different tables differ.
    """
    parts = [p if _PLAIN.fullmatch(p) else _encoded(p) for p in table.parts]
    if table.name == _HOUSEKEEPING and len(table.parts) > _PARTS_OF_A_TABLE:
        parts[-1] = _encoded(table.name)
    return dg.AssetKey([*prefix, *parts])


def check_key(table: TableId, check: str, prefix: Sequence[str] = ()) -> dg.AssetCheckKey:
    """Key of one check of a table."""
    return dg.AssetCheckKey(asset_key(table, prefix), check)


def housekeeping_key(table: TableId, prefix: Sequence[str] = ()) -> dg.AssetKey:
    """`prefix / catalog / namespace… / table / housekeeping`."""
    return dg.AssetKey([*asset_key(table, prefix).path, _HOUSEKEEPING])


def housekeeping_check_key(table: TableId, check: str, prefix: Sequence[str] = ()) -> dg.AssetCheckKey:
    """Key of one check of a table's housekeeping."""
    return dg.AssetCheckKey(housekeeping_key(table, prefix), check)


def partitions_name(table: TableId) -> str:
    """Name of the table's dynamic partitions; such names are global to a Dagster instance."""
    return f"iceberg/{table}"


def slug(table: TableId) -> str:
    """A name of letters, digits and underscores, different for different tables."""
    text = "__".join(table.parts)
    plain = re.sub(r"[^A-Za-z0-9_]", "_", text)
    ambiguous = plain != text or any("__" in p or p.strip("_") != p for p in table.parts)
    return f"{plain}_{_digest(str(table))[:8]}" if ambiguous else plain


def op_name(table: TableId) -> str:
    """Name of the op that maintains the table."""
    return f"maintain__{slug(table)}"


def housekeeping_op_name(table: TableId) -> str:
    """Name of the op that keeps the table's house."""
    return f"housekeep__{slug(table)}"


def pool_name(table: TableId) -> str:
    """Name of the pool shared by everything that commits maintenance to the table."""
    return f"iceberg_table__{slug(table)}"


def group_name(table: TableId) -> str:
    """Asset group: catalog and namespace."""
    return re.sub(r"[^A-Za-z0-9_]", "_", "__".join(table.parts[:-1]))


def in_shard(table: TableId, index: int, count: int) -> bool:
    """Whether the table belongs to code location `index` of `count` (from 0), stable by name."""
    return int(_digest(str(table))[:12], 16) % count == index


def parse_shard(text: str) -> tuple[int, int]:
    """`i/n` as (index, count). Raises ConfigurationError ICM-100."""
    index, _, count = text.partition("/")
    if index.isdecimal() and count.isdecimal() and int(index) < int(count):
        return int(index), int(count)
    raise ConfigurationError(
        "ICM-100", f"{SHARD_VARIABLE} is '{text}'.", "write i/n with 0 <= i < n, for example 0/4."
    )


def _encoded(part: str) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', part)}.{_digest(part)[:16]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
