"""Names of tables, partitions and operations, and commands that contain them."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table's name: `catalog.namespace[.namespace…].table`, as the catalog spells it. Some catalogs have names with
    a dot or an empty part: see `is_unique`."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, text: str) -> TableId:
        """Splits a dotted name that begins with the catalog. Raises ValueError if it has fewer than three
        parts."""
        parts = text.split(".")
        if len(parts) < 3 or not all(parts):
            raise ValueError(f"'{text}' is not a table name of the form catalog.namespace.table")
        return cls(parts[0], tuple(parts[1:-1]), parts[-1])

    @property
    def parts(self) -> tuple[str, ...]:
        """Catalog, namespaces and table."""
        return (self.catalog, *self.namespace, self.name)

    @property
    def in_catalog(self) -> tuple[str, ...]:
        """Namespaces and table without the catalog: PyIceberg's identifier."""
        return (*self.namespace, self.name)

    @property
    def is_unique(self) -> bool:
        """Whether the text of the name means this table only: no part is empty or contains a dot."""
        return all(part and "." not in part for part in self.parts)

    def __str__(self) -> str:
        return ".".join(self.parts)


def in_shard(table: TableId, index: int, count: int) -> bool:
    """Whether shard `index` contains the table. `index` is from 0 to `count` - 1. Only the table's name decides."""
    name = str(table).encode("utf-8", "surrogatepass")
    return int(hashlib.sha256(name).hexdigest()[:12], 16) % count == index


class Operation(StrEnum):
    """The maintenance operations, named as Iceberg's Spark procedures, in the order of a run."""

    CONVERT_EQUALITY_DELETES = "convert_equality_deletes"
    REWRITE_DATA_FILES = "rewrite_data_files"
    REWRITE_POSITION_DELETE_FILES = "rewrite_position_delete_files"
    REWRITE_MANIFESTS = "rewrite_manifests"
    EXPIRE_SNAPSHOTS = "expire_snapshots"
    REMOVE_ORPHAN_FILES = "remove_orphan_files"


DATA_OPERATIONS = (
    Operation.CONVERT_EQUALITY_DELETES,
    Operation.REWRITE_DATA_FILES,
    Operation.REWRITE_POSITION_DELETE_FILES,
)
"""The operations of one materialization of a table's data, in this order."""

POSITION_OPERATIONS = (Operation.CONVERT_EQUALITY_DELETES, Operation.REWRITE_POSITION_DELETE_FILES)
"""The operations that write delete files and keep the data files."""

HOUSEKEEPING_OPERATIONS = (
    Operation.REWRITE_MANIFESTS,
    Operation.EXPIRE_SNAPSHOTS,
    Operation.REMOVE_ORPHAN_FILES,
)
"""The operations of one materialization of a table's housekeeping, in this order. Each concerns the table
as a whole."""

REMOVING_OPERATIONS = (Operation.EXPIRE_SNAPSHOTS, Operation.REMOVE_ORPHAN_FILES)
"""The operations that remove snapshots or files by their age."""

ALL_OPERATIONS = (*DATA_OPERATIONS, *HOUSEKEEPING_OPERATIONS)
"""All operations, in the order of a run."""

PartitionKey = NewType("PartitionKey", str)
"""The key of one partition, as `core.model.partition_key` encodes it, or `WHOLE_TABLE`. Ledger, JSON and Dagster
store it as text. `PartitionKey(text)` makes a key of stored or requested text and does not check it;
`decode_partition` does."""

UNPARTITIONED_KEY = PartitionKey("__all__")
"""The key of all files of a spec without partition fields."""

WHOLE_TABLE = PartitionKey("*")
"""Stands in place of a partition key for a decision on the table as a whole. No partition key equals it."""

READING = "reading"
"""Stands in place of an operation in the history of attempts to read the table's metadata."""

VERIFYING = "verifying"
"""Stands in place of an operation in the history of `attest`, which proves commits."""

FLEET = "*"
"""Stands in place of a table name for a pause of all tables."""


def command_line(*arguments: str) -> str:
    """The command `iceberg-maint` with these arguments, as text that a shell splits into exactly them. All of its
    characters are printable."""
    return " ".join(("iceberg-maint", *map(shell_argument, arguments)))


def shell_argument(text: str) -> str:
    """One argument of a shell's command. Characters that a screen escapes are octal bytes in `$'…'`."""
    if text.isprintable():
        return shlex.quote(text)
    plain = (c if c.isprintable() and c not in "\\'" else _octal(c) for c in text)
    return f"$'{''.join(plain)}'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass"))
