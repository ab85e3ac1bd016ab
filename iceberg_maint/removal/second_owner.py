"""Detects a second owner of a table: reads the metadata files that its log does not name, and refuses if
another catalog commits to the table or its own catalog points at an older version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from iceberg_maint.core.model.ids import command_line
from iceberg_maint.core.model.location import Equivalences, parse_location
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.failures import is_of_process
from iceberg_maint.core.removal.orphan_rules import (
    TRASH,
    MetadataLog,
    MetadataVersion,
    Standing,
    UnloggedMetadata,
    newest_first,
    second_line,
    standing,
    unlogged,
)
from iceberg_maint.errors import IcebergMaintError, RefusedError
from iceberg_maint.ports.storage import Reachability, Store, StoredFile
from iceberg_maint.removal.table_ownership import UNREADABLE, log_entries, metadata_versions
from iceberg_maint.removal.target import Target

_LOGS_READ = 100
"""The number of unlogged metadata files, newest first, whose own logs are read."""
_PATHS_TOLD = 5
_PATHS_OF_OWNER = 2
_OWNERS_TOLD = 5
_FIX = (
    "find the catalog that points at this file. Keep the table in one catalog only, or configure that catalog here. "
    "If no catalog points at it, delete these metadata files or move them out of the table's location."
)


def check_lineage(
    target: Target,
    files: Iterable[StoredFile],
    store: Store,
    reachability: Reachability,
    memo: Path,
    *,
    forgets: bool = True,
) -> UnloggedMetadata:
    """Returns the files among these that are metadata outside the table's log. `memo` is as in
    `metadata_versions`. A table that had this name before was dropped. Its files are no sign, unless one is newer than
    this table's pointer.

    Raises RefusedError ICM-111 for a file of another table or one that cannot be read, for one that is
    newer than the catalog's pointer, and for one that continues another line of commits than the
    pointer's.
    """
    state, same = target.state, target.same
    log = reachability.log()
    ours = _keys(log, same)
    versions_by_standing: dict[Standing, list[MetadataVersion]] = {s: [] for s in Standing}
    foreign: dict[str, list[MetadataVersion]] = {}
    outside = (file for file in files if _key(file.path, same) not in ours)
    for version in metadata_versions(store, outside, state.uuid, memo, forgets=forgets):
        if version.owner != state.uuid:
            foreign.setdefault(version.owner, []).append(version)
        else:
            versions_by_standing[standing(version, log)].append(version)
    _check_foreign(target, log, foreign)
    newer, beside = versions_by_standing[Standing.NEWER], versions_by_standing[Standing.BESIDE]
    if newer:
        # A commit that was under way during the listing may have ended since.
        log = reachability.log()
        ours = _keys(log, same)
        still_unlogged = [v for v in (*newer, *beside) if _key(v.path, same) not in ours]
        newer = [v for v in still_unlogged if standing(v, log) is Standing.NEWER]
        beside = [v for v in still_unlogged if standing(v, log) is Standing.BESIDE]
    if newer:
        raise _newer(state, log, newest_first(newer))
    beside_keys = frozenset(_key(v.path, same) for v in beside)
    for version in newest_first(beside)[:_LOGS_READ]:
        _check_line(state, log, version, store, same, beside_keys)
    # Older files indicate nothing only if every earlier version is known to have a log entry.
    older = () if log.complete else versions_by_standing[Standing.OLDER]
    return unlogged((*beside, *older), _PATHS_TOLD)


def check_folders(
    target: Target,
    store: Store,
    reachability: Reachability,
    memo: Path,
    prefixes: Iterable[str] | None = None,
) -> UnloggedMetadata:
    """As `check_lineage`, for the metadata files that are below these prefixes now. Without prefixes: in
    the table's metadata folders."""
    folders = _metadata_folders(target.state, reachability.log()) if prefixes is None else prefixes
    files = _listed_metadata(folders, store)
    return check_lineage(target, files, store, reachability, memo, forgets=False)


def versions_memo(scratch: Path, state: TableState) -> Path:
    """Returns the file that keeps the contents of the table's old metadata files."""
    return scratch / f"metadata-{state.uuid}.db"


def _metadata_folders(state: TableState, log: MetadataLog) -> tuple[str, ...]:
    """Returns the folders of the table's metadata files: those of the files in its log, and the default
    one."""
    folders = (path.rpartition("/")[0] for path in (log.location, *log.files))
    return tuple(dict.fromkeys((*folders, f"{state.location.rstrip('/')}/metadata")))


def _listed_metadata(folders: Iterable[str], store: Store) -> Iterator[StoredFile]:
    """Yields the table metadata files in these folders, as storage lists them now."""
    for folder in folders:
        for file in store.list(folder):
            if file.path.endswith((".metadata.json", ".metadata.json.gz")) and f"/{TRASH}/" not in file.path:
                yield file


def _check_line(
    state: TableState,
    log: MetadataLog,
    version: MetadataVersion,
    store: Store,
    same: Equivalences,
    beside: frozenset[bytes],
) -> None:
    try:
        entries = log_entries(store, version.path)
    except IcebergMaintError:
        raise
    except Exception as error:  # zlib, json and each wrong type in the document raise their own errors
        if is_of_process(error):
            raise
        unreadable = MetadataVersion(version.path, f"{UNREADABLE}{type(error).__name__}")
        raise _foreign(state, {unreadable.owner: [unreadable]}, {unreadable.owner: None}) from error
    by_key = {path: _key(path, same) for path, _ in entries}
    ours = _keys(log, same)
    before = second_line(
        entries,
        log,
        [path for path, key in by_key.items() if key in ours],
        [path for path, key in by_key.items() if key in beside],
    )
    if before is not None:
        raise RefusedError(
            "ICM-111",
            f"{state.table}: {version.path} is a version of this table that is not in its metadata log. It "
            f"follows {before}, which is not in the log either. Another catalog commits to the table, or its "
            "catalog was restored to an older pointer.",
            _FIX,
        )


def _newer(state: TableState, log: MetadataLog, newer: list[MetadataVersion]) -> RefusedError:
    first = newer[0]
    return RefusedError(
        "ICM-111",
        f"{state.table}: {len(newer)} metadata files of this table are not in its metadata log and are newer than "
        f"its catalog's pointer {log.location} ({_numbers(log)}): {first.path} ({_numbers(first)}). Another catalog "
        "commits to the table, or its catalog was restored to an older pointer.",
        f"{_FIX} The file of a failed commit blocks the scan only until the table's next commit.",
    )


def _numbers(version: MetadataLog | MetadataVersion) -> str:
    updated_ms = version.last_updated_ms or 0
    try:
        updated = datetime.fromtimestamp(updated_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        updated = f"{updated_ms} ms"  # damaged metadata: a year that no calendar has
    return f"last sequence number {version.last_sequence_number}, last updated {updated}"


def _check_foreign(
    target: Target, log: MetadataLog, foreign: Mapping[str, Sequence[MetadataVersion]]
) -> None:
    """Raises RefusedError ICM-111 for files of other tables, unless the table was dropped."""
    state, names = target.state, {owner: target.name_of(owner) for owner in foreign}
    dropped = {owner for owner, name in names.items() if name == str(state.table)}
    if others := {owner: files for owner, files in foreign.items() if owner not in dropped}:
        raise _foreign(state, others, names)
    newer = [v for owner in dropped for v in foreign[owner] if (v.last_updated_ms or 0) > log.last_updated_ms]
    if newer:
        first = newest_first(newer)[0]
        raise RefusedError(
            "ICM-111",
            f"{state.table}: {first.path} is of the table with uuid {first.owner}, which had this name before. It was "
            f"last updated later than {log.location}. Another catalog commits to the earlier table.",
            f"{_FIX} The file of a failed commit blocks the scan only until the table's next commit.",
        )


def _foreign(
    state: TableState,
    foreign: Mapping[str, Sequence[MetadataVersion]],
    names: Mapping[str, str | None],
) -> RefusedError:
    owners = []
    for owner, versions in sorted(foreign.items())[:_OWNERS_TOLD]:
        known = f", by the ledger {name}" if (name := names[owner]) else ""
        paths = ", ".join(v.path for v in versions[:_PATHS_OF_OWNER])
        more = f" and {len(versions) - _PATHS_OF_OWNER} more" if len(versions) > _PATHS_OF_OWNER else ""
        whose = owner if owner.startswith(UNREADABLE) else f"of the table with uuid {owner}{known}"
        owners.append(f"{paths}{more} ({whose})")
    if len(foreign) > _OWNERS_TOLD:
        owners.append(f"files of {len(foreign) - _OWNERS_TOLD} more tables")
    uuids = [owner for owner in foreign if not owner.startswith(UNREADABLE)]
    adopt = command_line("orphans", "adopt", str(state.table), uuids[0] if len(uuids) == 1 else "UUID")
    return RefusedError(
        "ICM-111",
        f"{state.table} (uuid {state.uuid}) has metadata files of other tables below its location: {'; '.join(owners)}.",
        f"if a table exists, move it. If it was dropped, run `{adopt}`. Delete an unreadable "
        "file if it belongs to no table.",
    )


def _keys(log: MetadataLog, same: Equivalences) -> frozenset[bytes]:
    return frozenset(_key(path, same) for path in (log.location, *log.files))


def _key(path: str, same: Equivalences) -> bytes:
    return parse_location(path, same).key
