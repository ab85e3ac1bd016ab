"""The table list: a JSON file, so that importing definitions needs no catalog."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import ConfigurationError, IcebergMaintError
from iceberg_maint.ports.catalog import Catalog

_VERSION = 1


def read_table_list(path: Path) -> tuple[TableId, ...] | None:
    """The listed tables, sorted; None when there is no file. Raises ConfigurationError ICM-100."""
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
            "delete it; it is written again from the catalogs.",
        ) from why


def write_table_list(path: Path, tables: Iterable[TableId]) -> None:
    """Replaces the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"version": _VERSION, "tables": [list(t.parts) for t in sorted(set(tables))]}
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=path.name, delete=False
    ) as file:
        json.dump(body, file, indent=1)
    Path(file.name).replace(path)


def load_table_list(path: Path, catalogs: Mapping[str, Catalog]) -> tuple[TableId, ...]:
    """The listed tables; from the catalogs, and written down, when there is no file yet."""
    listed = read_table_list(path)
    if listed is None:
        listed = tuple(sorted(t for c in catalogs.values() for t in c.tables()))
        write_table_list(path, listed)
    return listed


def list_catalogs(catalogs: Mapping[str, Catalog]) -> tuple[frozenset[TableId], dict[str, str]]:
    """Tables of every catalog that answers, and the error of every catalog that does not."""
    found: set[TableId] = set()
    silent: dict[str, str] = {}
    for name, catalog in sorted(catalogs.items()):
        try:
            found.update(catalog.tables())
        except IcebergMaintError as why:
            silent[name] = str(why)
    return frozenset(found), silent
