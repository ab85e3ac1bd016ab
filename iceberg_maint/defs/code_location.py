"""One code location: its tables and settings, the files that it follows, and its reload."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg

from iceberg_maint.core.model.ids import TableId, in_shard
from iceberg_maint.errors import ConfigurationError, unwritable_home
from iceberg_maint.machine.files import private_folder, replace_file
from iceberg_maint.ports.catalog import Catalog


class ConfigurationFile:
    """The file at `path` as of the creation of this object. Create it before the file is read.

    A code location reads the file once; each run reads it again. After a change, sensors could request
    work at every tick that the runs refuse. `load` reads the file and raises its errors.
    """

    def __init__(self, path: Path, load: Callable[[], object]) -> None:
        self._path, self._load = path, load
        self._loaded = self._digest()

    def follow(self, reload: Callable[[], str]) -> list[str]:
        """Requests a reload if the file has changed. Returns messages for a person.

        A file that cannot be loaded causes no reload: the code location would lose its sensors and its
        schedule.
        """
        if self._digest() == self._loaded:
            return []
        try:
            self._load()
        except Exception as why:  # noqa: BLE001 - reported, and read again at the next tick
            return [f"the configuration changed; runs fail until this is fixed: {why}"]
        return [reload()]

    def _digest(self) -> str | None:
        try:
            return hashlib.sha256(self._path.read_bytes()).hexdigest()
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """What one code location loads.

    `tables` are all listed tables, `table_list` is the file that lists them; the location has those of its `shard`, (index,
    count). `configuration` is the file that the context was built from. `webserver_url` is the web server that reloads the
    location. `run` is the run that this process executes: only its assets are needed then, and no sensor. Old runs of Dagster
    are deleted after `keep_days`; None keeps all.
    """

    tables: Sequence[TableId]
    table_list: Path
    shard: tuple[int, int] = (0, 1)
    configuration: ConfigurationFile | None = None
    webserver_url: str | None = None
    run: dg.DagsterRun | None = None
    keep_days: int | None = None

    def has(self, table: TableId) -> bool:
        """Whether the shard of the location contains the table."""
        return in_shard(table, *self.shard)

    @property
    def is_first(self) -> bool:
        """Whether this is the location that does the work on the fleet as a whole."""
        return self.shard[0] == 0


BY_HAND = "reload the code location (Deployment > Reload), or set ICEBERG_MAINT_DAGSTER_URL to reload it automatically"


def reload_location(webserver_url: str | None, location: str | None, why: str) -> str:
    """Reloads the location of this name over GraphQL and returns the result as a sentence.

    Without an address or a name (outside the daemon), or if the reload fails, the sentence says how to
    reload by hand. `why` is the cause of the reload.
    """
    by_hand = f"{why}: {BY_HAND}"
    if webserver_url is None or location is None:
        return by_hand
    from dagster_graphql import (
        DagsterGraphQLClient,
        DagsterGraphQLClientError,
        ReloadRepositoryLocationStatus,
    )

    url = urlsplit(webserver_url)
    try:
        client = DagsterGraphQLClient(
            url.hostname or "127.0.0.1",
            port_number=url.port,
            use_https=url.scheme == "https",
            timeout=20,
        )
        info = client.reload_repository_location(location)
    except (DagsterGraphQLClientError, OSError) as error:
        return f"{by_hand} ({webserver_url} does not answer: {_cause(error)})"
    if info.status is not ReloadRepositoryLocationStatus.SUCCESS:
        return f"{by_hand} ({webserver_url}: {info.message})"
    return f"{why}: code location reloaded"


def _cause(why: BaseException) -> str:
    """The innermost cause, on one line: the client's own text repeats its whole query."""
    while why.__cause__ is not None:
        why = why.__cause__
    return f"{type(why).__name__}: {' '.join(str(why).split())[:200]}"


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
