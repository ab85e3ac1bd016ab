"""The table list: a JSON file, so that the import of the definitions needs no catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import ConfigurationError, unwritable_home
from iceberg_maint.ports.catalog import Catalog
from iceberg_maint.private_files import private_folder, replace_file

_VERSION = 1


def read_table_list(path: Path) -> tuple[TableId, ...] | None:
    """The listed tables, sorted; None without a file. Raises ConfigurationError ICM-100."""
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["version"] != _VERSION:
            raise ValueError(f"version {data['version']}")
        return tuple(sorted(TableId(t[0], tuple(t[1:-1]), t[-1]) for t in data["tables"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, IndexError) as why:
        raise ConfigurationError(
            "ICM-100",
            f"{path} is no table list of version {_VERSION} ({why}).",
            "delete it. The next tick writes it from the catalogs.",
        ) from why


def write_table_list(path: Path, tables: Iterable[TableId]) -> None:
    """Replaces the file atomically. Raises IcebergMaintError ICM-100 or ICM-176 if it cannot be written."""
    body = {"version": _VERSION, "tables": [list(t.parts) for t in sorted(set(tables))]}
    try:
        private_folder(path.parent)
        replace_file(path, json.dumps(body, indent=1))
    except OSError as why:
        raise unwritable_home(str(path.parent), why) from why


def load_table_list(path: Path, catalogs: Mapping[str, Catalog]) -> tuple[TableId, ...]:
    """The listed tables. Without a file, lists the tables of the catalogs and writes the file."""
    listed = read_table_list(path)
    if listed is None:
        listed = tuple(sorted(t for c in catalogs.values() for t in c.tables()))
        write_table_list(path, listed)
    return listed
