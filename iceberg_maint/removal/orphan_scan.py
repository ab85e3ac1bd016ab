"""Finds the orphan files of one table, or refuses if the result cannot be certain.

The order matters for safety: the storage is listed first and the metadata are read afterwards, so that
files committed in between count as referenced. A doubt about a path keeps the file. A doubt about the
comparison as a whole stops the scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from iceberg_maint.core.decisions.snapshot_retention import gc_enabled
from iceberg_maint.core.model.ids import command_line
from iceberg_maint.core.model.location import (
    Equivalences,
    Location,
    claim_of,
    is_root,
    outside,
    overlaps,
    parse_location,
)
from iceberg_maint.core.policy.housekeeping import (
    ORPHAN_AGE_FLOOR_SECONDS,
    TRASH_HOLD_FLOOR_SECONDS,
    RemoveOrphanFilesPolicy,
)
from iceberg_maint.core.removal.orphan_rules import (
    TRASH,
    Kept,
    NameRules,
    ScanCounts,
    UnloggedMetadata,
    approved_until_ms,
    orphans_digest,
)
from iceberg_maint.core.removal.pending_manifests import PendingManifests
from iceberg_maint.errors import RefusedError, UnreadableTableError
from iceberg_maint.ports.storage import Reachability, Store, StoredFile
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.pending_manifests import add_pending, pending_manifests
from iceberg_maint.removal.second_owner import check_lineage, versions_memo
from iceberg_maint.removal.stored_listing import StoredListing
from iceberg_maint.removal.stored_releases import add_names, stored_releases
from iceberg_maint.removal.target import Target
from iceberg_maint.removal.trash_manifest import (
    files_folder,
    files_of,
    listed_files,
    manifest_location,
    marks_of,
    read_batch_headers,
    restored_paths,
)

MAX_CLOCK_SKEW_MS = 5 * 60 * 1000
_MAX_UNLISTED = 10_000
"""The maximum number of referenced but unlisted files that are looked up one by one: files committed
since the listing."""

_SECOND_OPINION_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan. `paths` holds the orphans on disk until it is closed. `digest` is what a
    person approves. `unlogged` is the sign of a second owner."""

    target: Target
    policy: RemoveOrphanFilesPolicy
    counts: ScanCounts
    digest: str
    metadata_location: str
    paths: PathTables
    unlogged: UnloggedMetadata
    pending: PendingManifests

    @property
    def needs_approval(self) -> bool:
        """Whether the share of orphans is so large that a person must approve the removal."""
        return self.counts.is_abnormal(self.policy.max_orphan_ratio)


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
        ("hold_seconds", policy.hold_seconds, TRASH_HOLD_FLOOR_SECONDS),
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
    if elsewhere := outside(claim_of(state), prefixes, target.same):
        raise RefusedError(
            "ICM-112",
            f"{table} ({state.location}) writes to {elsewhere[0]} as well, which other tables may share.",
            "add it to remove_orphan_files.exclusive_prefixes if nothing else writes there.",
        )
    for prefix, claim, location in overlaps(prefixes, target.others, target.same):
        raise RefusedError(
            "ICM-111",
            f"{table} ({prefix}) overlaps {claim.table} ({location}). Removing orphans would destroy its files.",
            "move one of the tables.",
        )


def _is_local(location: str, same: Equivalences) -> bool:
    return parse_location(location, same).is_local


def _home(target: Target) -> tuple[Location, Equivalences]:
    return parse_location(target.state.location, target.same), target.same


def scan(
    target: Target,
    policy: RemoveOrphanFilesPolicy,
    store: Store,
    reachability: Reachability,
    scratch: Path,
    now_ms: Callable[[], int],
    *,
    approved: str | None = None,
    listing: StoredListing | None = None,
) -> Scan:
    """Lists the table's prefixes and finds the unreferenced files. Moves and deletes nothing.

    `now_ms` is this machine's clock; it is only compared with the store's. `scratch` is a folder on local
    disk that keeps the contents of old metadata files for the next scan. `approved` is the digest of an
    earlier scan: then no file counts that is younger than the youngest one of that scan, so that files
    that have since passed the minimum age do not change the digest. `listing` may hold files that an earlier
    pass listed; ages count by the time when that pass began. The caller closes `Scan.paths`.
    Raises RefusedError, see `check_target`; ICM-111 for another table's metadata below a prefix or a
    second owner of this table, ICM-115, ICM-122, ICM-125; UnreadableTableError ICM-101 if any metadata
    cannot be read.
    """
    check_target(target, policy)
    started_ms = min(checked_clock(store, prefix, now_ms) for prefix in target.prefixes)
    if listing is not None:
        started_ms = min(started_ms, listing.begin(started_ms))
    paths = PathTables(scratch / f"orphans-{target.state.uuid}.db", target.prefixes, target.same)
    try:
        pending = pending_manifests(target.state, policy, started_ms)
        since_ms = pending.unread_since_ms()
        youngest_ms = started_ms if since_ms is None else min(started_ms, since_ms)
        youngest_ms -= policy.older_than_seconds * 1000
        youngest_ms = min((youngest_ms, *_last_looks(target)))
        if approved is not None:
            youngest_ms = min(youngest_ms, approved_until_ms(approved))
        read_listed(paths, target, store, youngest_ms, pending, listing)
        if listing is not None and listing.resumed:
            _read_later_metadata(paths, target, store, youngest_ms, pending, started_ms)
        paths.add_reached(restored_paths(target.prefixes, store), Kept.RESTORED)
        releases = [r for _, r in stored_releases(target.prefixes, target.state.uuid, store)]
        # A list is written before its releases are deleted.
        marks = list(marks_of(target.prefixes, target.state.uuid, store))
        metadata_location = reachability.metadata_location()
        read_reached(paths, target, store, reachability, pending)
        if listing is not None and listing.resumed:
            paths.forget_listed(_moved_since(target, store, started_ms))
        _check_reached(paths, target, store, started_ms)
        # This includes tables in no configured catalog, and this table in another catalog.
        unlogged = check_lineage(
            target,
            paths.listed_metadata_files(),
            store,
            reachability,
            versions_memo(scratch, target.state),
        )
        # The files of an expiry are explained: they are no orphans while their release is stored or they are held
        # in place.
        add_names(paths, releases, reachability)
        for mark in marks:
            paths.add_released(listed_files(store, mark))
        paths.keep_released()
        counts = paths.counts()
        if counts.orphan_files:
            check_second_opinion(paths, target, reachability)
        digest = orphans_digest(paths.orphans())
        return Scan(target, policy, counts, digest, metadata_location, paths, unlogged, pending)
    except BaseException:
        paths.close()
        raise


def _last_looks(target: Target) -> Iterator[int]:
    """Yields when other tables that cannot be read were last known to write nowhere below the prefixes. Later files
    may be theirs."""
    for claim in target.others:
        if claim.current_until_ms is not None:
            # The ledger's clock and the store's may each differ from this machine's.
            yield claim.current_until_ms - 2 * MAX_CLOCK_SKEW_MS


def checked_clock(store: Store, prefix: str, now_ms: Callable[[], int]) -> int:
    """Returns the store's time. Raises RefusedError ICM-115 if it differs too much from this machine's, which `now_ms`
    returns. Both are read now: a pass reads metadata and moves files for hours."""
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


def read_listed(
    paths: PathTables,
    target: Target,
    store: Store,
    youngest_ms: int,
    pending: PendingManifests,
    listing: StoredListing | None = None,
) -> None:
    """Adds the listed files, those of `listing` if it is given. Raises RefusedError ICM-113 for a file that the store lists outside the
    prefix."""
    rules = NameRules(target.state, pending)
    try:
        for prefix in target.prefixes:
            files = store.list(prefix) if listing is None else listing.files(prefix)
            paths.add_listed(_with_reasons(files, prefix, rules, youngest_ms))
    except ValueError as error:
        raise RefusedError("ICM-113", f"{target.state.table}: {error}.", "report it.") from error


def _read_later_metadata(
    paths: PathTables,
    target: Target,
    store: Store,
    youngest_ms: int,
    pending: PendingManifests,
    started_ms: int,
) -> None:
    """Adds the files of the metadata folder that are younger than the begin of a continued listing: pending
    manifests, and metadata files of a second owner."""
    rules, root = NameRules(target.state, pending), target.state.location.rstrip("/")
    later = (
        file
        for file in store.list(f"{root}/metadata")
        if not (file.modified_ms is not None and file.modified_ms < started_ms)
    )
    paths.add_listed(_with_reasons(later, root, rules, youngest_ms))


def _moved_since(target: Target, store: Store, started_ms: int) -> Iterator[str]:
    """Yields the original paths of files that were moved to the trash since a continued listing began."""
    for header in read_batch_headers(target.prefixes, store):
        if header.marked_ms >= started_ms:
            folder = files_folder(header.prefix, header.mark_id)
            for file in store.list(folder):
                yield header.prefix.rstrip("/") + file.path[len(folder) :]


def read_reached(
    paths: PathTables,
    target: Target,
    store: Store,
    reachability: Reachability,
    pending: PendingManifests,
) -> None:
    """Adds the files that the current metadata reference, that are in flight, and that pending manifests
    name. Raises RefusedError ICM-113 for paths that cannot be compared, UnreadableTableError ICM-101."""
    # A job deletes its manifest after the commit. If a manifest is gone by now, the metadata reference
    # its files.
    add_pending(paths, store, reachability, pending, *_home(target))
    try:
        paths.add_reached(target.in_flight, Kept.IN_FLIGHT)
        paths.add_reached(reachability.paths(), Kept.REACHABLE)
        paths.index()
    except ValueError as error:
        raise RefusedError(
            "ICM-113", f"{target.state.table}: {error}.", "rewrite the table's metadata with absolute paths."
        ) from error


def _with_reasons(
    files: Iterator[StoredFile], prefix: str, rules: NameRules, youngest_ms: int
) -> Iterator[tuple[StoredFile, Kept | None]]:
    root = prefix.rstrip("/")
    for file in files:
        if not file.path.startswith(root + "/"):
            raise ValueError(f"the listing of {prefix} contains {file.path}, which is not below it")
        reason = rules.kept(file.path[len(root) :], file.modified_ms)
        if reason is None and (file.modified_ms is None or file.modified_ms > youngest_ms):
            reason = Kept.YOUNG
        if reason is not Kept.TRASH:
            yield file, reason


def _check_reached(paths: PathTables, target: Target, store: Store, started_ms: int) -> None:
    """Every file that the metadata reference below a prefix must be listed, or written since the listing.
    A live file in an unknown spelling is missing here and appears as an orphan in the listing."""
    if mismatch := paths.other_store():
        raise RefusedError(
            "ICM-113",
            f"{target.state.table}: storage lists {mismatch[0]}, and the metadata name {mismatch[1]}.",
            "declare in remove_orphan_files.equal_schemes or equal_authorities which names are the same store.",
        )
    for count, path in enumerate(islice(paths.unlisted(), _MAX_UNLISTED + 1)):
        stored = store.stat(path) if count < _MAX_UNLISTED else None
        if stored is not None and f"/{TRASH}/" in path:
            continue  # registered where it is, in the trash, whose files are not listed
        if stored is None or stored.modified_ms is None or stored.modified_ms < started_ms:
            if (mark_id := _mark_of(path, target, store)) is not None:
                raise RefusedError(
                    "ICM-122",
                    f"{target.state.table}: the metadata reference {path}, which is in the trash: it was "
                    "committed after it had been moved there.",
                    "run the next pass, which restores it, or restore it now with "
                    f"`{command_line('orphans', 'restore', str(target.state.table), '--mark', mark_id)}`.",
                )
            raise RefusedError(
                "ICM-122",
                f"{target.state.table}: the metadata reference {path}, which is not in the listing. Nothing was removed.",
                "check whether the file is lost or has another spelling.",
            )


def _mark_of(path: str, target: Target, store: Store) -> str | None:
    """Returns the trash batch of a path that is in the trash; None if no readable manifest names it."""
    key = parse_location(path, target.same).key
    with suppress(UnreadableTableError):
        for header in read_batch_headers(target.prefixes, store):
            for line in files_of(store, header, manifest_location(header)):
                at_its_key = parse_location(line.path, target.same).key == key
                if at_its_key and store.stat(line.trash_path) is not None:
                    return header.mark_id
    return None


def check_second_opinion(paths: PathTables, target: Target, reachability: Reachability) -> None:
    """Every file that a second decoder finds referenced must be referenced for ours too. A manifest that
    we misread or skipped would make live files appear as orphans, without any other sign."""
    for path in reachability.second_opinion(_SECOND_OPINION_FILES):
        if not paths.reaches(path):
            raise RefusedError(
                "ICM-122",
                f"{target.state.table}: two decoders of its metadata disagree: one of them does not find {path}. Nothing was removed.",
                "report this error to the maintainers of iceberg-maint.",
            )
