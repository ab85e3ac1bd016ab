"""A removal: the table and what it is looked at with, what refuses it, and what keeps a file: the references of the current
metadata, files in flight, and those that pending manifests name.

Pending manifests are read before the metadata. If a job commits in between, the metadata reference its files. If it has
not committed, the manifest still names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from iceberg_maint.core.decisions.snapshot_retention import gc_enabled
from iceberg_maint.core.model.location import (
    Equivalences,
    LocationOwner,
    is_root,
    is_within,
    location_owner_of,
    outside,
    overlaps,
    parse_location,
)
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.housekeeping import (
    DELETE_AFTER_FLOOR_SECONDS,
    ORPHAN_AGE_FLOOR_SECONDS,
    RemoveOrphanFilesPolicy,
)
from iceberg_maint.core.removal.orphan_rules import Kept
from iceberg_maint.core.removal.pending_manifests import PendingManifests
from iceberg_maint.errors import RefusedError, UnreadableTableError
from iceberg_maint.ports.storage import Reachability, Store, StoredFile
from iceberg_maint.removal.path_index import PathTables

MAX_CLOCK_SKEW_MS = 5 * 60 * 1000
_SECOND_OPINION_FILES = 10_000
_AT_ONCE = 16
"""The number of manifests read at once and kept in memory."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table and the scope of the search for its orphans.

    `others` are the owners of all other tables of all configured catalogs. `in_flight` are the files of
    attempts without an outcome. `exclusive_prefixes` are further locations that, as the owner declares,
    hold files of this table only. `name_of` returns the name under which the ledger knows the table with a UUID.
    """

    state: TableState
    others: tuple[LocationOwner, ...]
    in_flight: frozenset[str] = frozenset()
    exclusive_prefixes: tuple[str, ...] = ()
    same: Equivalences = field(default_factory=Equivalences)
    name_of: Callable[[str], str | None] = lambda _uuid: None

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The listed prefixes: the table's location and the declared ones, none within another."""
        places = [(p, parse_location(p, self.same)) for p in (self.state.location, *self.exclusive_prefixes)]
        return tuple(
            text
            for n, (text, place) in enumerate(places)
            if not any(
                is_within(place, other) and (m < n or not is_within(other, place))
                for m, (_, other) in enumerate(places)
                if m != n
            )
        )


@dataclass(frozen=True, slots=True)
class Removal:
    """What files are removed from, and with what: `reachability` is that of the target's metadata, `scratch` a folder on
    local disk, `now_ms` this machine's clock, which is only compared with the store's."""

    target: Target
    policy: RemoveOrphanFilesPolicy
    store: Store
    reachability: Reachability
    scratch: Path
    now_ms: Callable[[], int]

    def paths(self, name: str) -> PathTables:
        """Returns an empty comparison of paths in the scratch folder."""
        target = self.target
        return PathTables(self.scratch / f"{name}-{target.state.uuid}.db", target.prefixes, target.same)


def check_target(target: Target, policy: RemoveOrphanFilesPolicy) -> None:
    """Refuses a table whose files may belong to another table, and a policy below the minimum ages.

    Raises RefusedError ICM-110, ICM-111, ICM-112, ICM-113, ICM-114.
    """
    state, table = target.state, target.state.table
    if not gc_enabled(state.properties):
        raise RefusedError(
            "ICM-110",
            f"{table} has gc.enabled=false. Its files may belong to other tables.",
            "none; only the owner of the table should change this.",
        )
    for key, seconds, floor in (
        ("older_than_seconds", policy.older_than_seconds, ORPHAN_AGE_FLOOR_SECONDS),
        ("delete_after_seconds", policy.delete_after_seconds, DELETE_AFTER_FLOOR_SECONDS),
        ("writer_state_max_age_seconds", policy.writer_state_max_age_seconds, ORPHAN_AGE_FLOOR_SECONDS),
    ):
        if seconds is not None and seconds < floor:
            raise RefusedError(
                "ICM-114",
                f"remove_orphan_files.{key}={seconds} is below the floor of {floor}.",
                f"set it to {floor} or more; a write may take that long before its commit.",
            )
    try:
        _check_locations(target)
    except ValueError as error:
        raise RefusedError("ICM-113", f"{table}: {error}.", "use absolute locations.") from error


def _check_locations(target: Target) -> None:
    state, table = target.state, target.state.table
    prefixes = target.prefixes
    for prefix in prefixes:
        if is_root(parse_location(prefix, target.same)):
            raise RefusedError(
                "ICM-111",
                f"{table} ({prefix}) is a whole bucket or file system.",
                "move the table into a folder of its own.",
            )
    for prefix in prefixes:
        if _is_local(prefix, target.same) != _is_local(state.location, target.same):
            raise RefusedError(
                "ICM-113",
                f"{table}: {prefix} is on another kind of storage than {state.location}.",
                "remove it from remove_orphan_files.exclusive_prefixes.",
            )
    if elsewhere := outside(location_owner_of(state), prefixes, target.same):
        raise RefusedError(
            "ICM-112",
            f"{table} ({state.location}) writes to {elsewhere[0]} as well, which other tables may share.",
            "add it to remove_orphan_files.exclusive_prefixes if nothing else writes there.",
        )
    for prefix, owner, location in overlaps(prefixes, target.others, target.same):
        raise RefusedError(
            "ICM-111",
            f"{table} ({prefix}) overlaps {owner.table} ({location}). Removing orphans would destroy its files.",
            "move one of the tables.",
        )


def _is_local(location: str, same: Equivalences) -> bool:
    return parse_location(location, same).is_local


def checked_clock(store: Store, prefix: str, now_ms: Callable[[], int]) -> int:
    """Returns the store's time. Raises RefusedError ICM-115 if it differs too much from this machine's, which `now_ms`
    returns. Both are read now: a scan reads metadata and moves files for hours."""
    before_ms = now_ms()
    store_ms = store.now_ms(prefix)
    # A store that is slow to answer is not a store whose clock is wrong.
    apart_ms = max(before_ms - store_ms, store_ms - now_ms(), 0)
    if apart_ms > MAX_CLOCK_SKEW_MS:
        raise RefusedError(
            "ICM-115",
            f"the local clock and that of the store of {prefix} are {apart_ms // 1000} s "
            "apart. Ages cannot be trusted.",
            "correct the wrong clock by NTP.",
        )
    return store_ms


def pending_manifests(state: TableState, policy: RemoveOrphanFilesPolicy, now_ms: int) -> PendingManifests:
    """Returns the manifests that count as pending at this time."""
    seconds = policy.writer_state_max_age_seconds
    if seconds is None:
        return PendingManifests(state)
    return PendingManifests(state, now_ms - max(seconds, policy.older_than_seconds) * 1000)


def _add_pending(removal: Removal, paths: PathTables, pending: PendingManifests) -> None:
    """Adds the files that pending manifests name: listed manifests, and those in the table's current
    folders for them. A manifest noted before is not read again. Raises UnreadableTableError ICM-101."""
    in_folders = (file for folder in pending.folders for file in _listed(removal, folder))
    in_other_folders = (f for f in in_folders if pending.keeps(_name(f.path), f.modified_ms))
    fresh = (f for f in chain(paths.listed_flink_manifests(), in_other_folders) if paths.add_manifest(f))
    with ThreadPoolExecutor(_AT_ONCE) as readers:
        while chunk := list(islice(fresh, _AT_ONCE)):
            contents = readers.map(lambda file: _content(removal.store, file.path), chunk)
            for file, data in zip(chunk, contents, strict=True):
                if data is not None:
                    certain = pending.has_full_name(_name(file.path))
                    files = removal.reachability.pending(file.path, data, certain=certain)
                    _add_named(paths, file.path, files or ())


def _add_named(paths: PathTables, location: str, files: Iterable[str]) -> None:
    try:
        paths.add_reached(files, Kept.PENDING)
    except ValueError as error:
        raise UnreadableTableError(
            "ICM-101",
            f"pending manifest {location} names a file that cannot be compared with a listing: {error}. "
            "No file was moved.",
            "delete the manifest if its job will never be restored; otherwise write absolute paths.",
        ) from error


def _listed(removal: Removal, folder: str) -> Iterator[StoredFile]:
    state, same = removal.target.state, removal.target.same
    try:
        if parse_location(folder, same).is_local != parse_location(state.location, same).is_local:
            raise ValueError("the folder is on another kind of storage than the table")
        yield from removal.store.list(folder)
    except ValueError as error:
        raise UnreadableTableError(
            "ICM-101",
            f"{folder}, where Flink jobs keep pending manifests of the table, cannot be listed: {error}. The "
            "files that they name cannot be distinguished from orphans, so no file was moved.",
            "set flink.manifests.location to a folder of the table's storage, or remove the property once no "
            "job has manifests there.",
        ) from error


def _content(store: Store, location: str) -> bytes | None:
    """Returns the manifest; None if its job has deleted it since the listing."""
    try:
        return store.read(location)
    except FileNotFoundError:
        return None


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def read_reached(removal: Removal, paths: PathTables, pending: PendingManifests) -> None:
    """Adds the files that the current metadata reference, that are in flight, and that pending manifests
    name. Raises RefusedError ICM-113 for paths that cannot be compared, UnreadableTableError ICM-101."""
    # A job deletes its manifest after the commit. If a manifest is gone by now, the metadata reference
    # its files.
    _add_pending(removal, paths, pending)
    try:
        paths.add_reached(removal.target.in_flight, Kept.IN_FLIGHT)
        paths.add_reached(removal.reachability.paths(), Kept.REACHABLE)
        paths.index()
    except ValueError as error:
        raise RefusedError(
            "ICM-113",
            f"{removal.target.state.table}: {error}.",
            "rewrite the table's metadata with absolute paths.",
        ) from error


def check_second_opinion(removal: Removal, paths: PathTables) -> None:
    """Every file that a second decoder finds referenced must be referenced for ours too. A manifest that
    we misread or skipped would make live files appear as orphans, without any other sign."""
    for path in removal.reachability.second_opinion(_SECOND_OPINION_FILES):
        if not paths.reaches(path):
            raise RefusedError(
                "ICM-122",
                f"{removal.target.state.table}: two decoders of its metadata disagree: one of them does not find {path}. Nothing was removed.",
                "report this error to the maintainers of iceberg-maint.",
            )
