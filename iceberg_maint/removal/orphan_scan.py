"""Finds the orphan files of one table, or refuses if the result cannot be certain.

The order matters for safety: the storage is listed first and the metadata are read afterwards, so that
files committed in between count as referenced. A doubt about a path keeps the file. A doubt about the
comparison as a whole stops the scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from iceberg_maint.core.model.ids import command_line
from iceberg_maint.core.model.location import parse_location
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
from iceberg_maint.errors import LOST_FILE_FIX, RefusedError, UnreadableTableError
from iceberg_maint.ports.storage import Store, StoredFile
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.released_lists import add_names, listed_files, marks_of, stored_releases
from iceberg_maint.removal.second_owner import check_lineage, versions_memo
from iceberg_maint.removal.stored_listing import StoredListing
from iceberg_maint.removal.target import (
    MAX_CLOCK_SKEW_MS,
    Removal,
    Target,
    check_second_opinion,
    check_target,
    checked_clock,
    pending_manifests,
    read_reached,
)
from iceberg_maint.removal.trash_manifest import (
    files_folder,
    files_of,
    manifest_location,
    read_batch_headers,
    restored_paths,
)

_MAX_UNLISTED = 10_000
"""The maximum number of referenced but unlisted files that are looked up one by one: files committed
since the listing."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan. `paths` holds the orphans on disk until it is closed. `digest` is what a
    person approves. `unlogged` is the sign of a second owner."""

    removal: Removal
    counts: ScanCounts
    digest: str
    paths: PathTables
    unlogged: UnloggedMetadata
    pending: PendingManifests

    @property
    def needs_approval(self) -> bool:
        """Whether the share of orphans is so large that a person must approve the removal."""
        return self.counts.is_abnormal(self.removal.policy.max_orphan_ratio)


def scan(removal: Removal, *, approved: str | None = None, listing: StoredListing | None = None) -> Scan:
    """Lists the table's prefixes and finds the unreferenced files. Moves and deletes nothing.

    The scratch folder keeps the contents of old metadata files for the next scan. `approved` is the digest of an
    earlier scan: then no file counts that is younger than the youngest one of that scan, so that files
    that have since passed the minimum age do not change the digest. `listing` may hold files that an earlier
    scan listed; ages count by the time when that scan began. The caller closes `Scan.paths`.
    Raises RefusedError, see `check_target`; ICM-111 for another table's metadata below a prefix or a
    second owner of this table, ICM-115, ICM-122, ICM-125; UnreadableTableError ICM-101 if any metadata
    cannot be read.
    """
    target, policy, store = removal.target, removal.policy, removal.store
    check_target(target, policy)
    started_ms = min(checked_clock(store, prefix, removal.now_ms) for prefix in target.prefixes)
    if listing is not None:
        started_ms = min(started_ms, listing.begin(started_ms))
    paths = removal.paths("orphans")
    try:
        pending = pending_manifests(target.state, policy, started_ms)
        since_ms = pending.unread_since_ms()
        youngest_ms = started_ms if since_ms is None else min(started_ms, since_ms)
        youngest_ms -= policy.older_than_seconds * 1000
        youngest_ms = min((youngest_ms, *_last_readings(target)))
        if approved is not None:
            youngest_ms = min(youngest_ms, approved_until_ms(approved))
        rules = _AgedRules(NameRules(target.state, pending), youngest_ms)
        _read_listed(removal, paths, rules, listing)
        if listing is not None and listing.resumed:
            _read_later_metadata(removal, paths, rules, started_ms)
        paths.add_reached(restored_paths(target.prefixes, store), Kept.RESTORED)
        releases = [r for _, r in stored_releases(target.prefixes, target.state.uuid, store)]
        # A list is written before its releases are deleted.
        marks = list(marks_of(target.prefixes, target.state.uuid, store))
        read_reached(removal, paths, pending)
        if listing is not None and listing.resumed:
            paths.forget_listed(_moved_since(target, store, started_ms))
        _check_reached(paths, target, store, started_ms)
        # This includes tables in no configured catalog, and this table in another catalog.
        unlogged = check_lineage(
            target,
            paths.listed_metadata_files(),
            store,
            removal.reachability,
            versions_memo(removal.scratch, target.state),
        )
        # The files of an expiry are explained: they are no orphans while their release is stored or they are retained
        # in place.
        add_names(paths, releases, removal.reachability)
        for mark in marks:
            paths.add_released(listed_files(store, mark))
        paths.keep_released()
        counts = paths.counts()
        if counts.orphan_files:
            check_second_opinion(removal, paths)
        digest = orphans_digest(paths.orphans())
        return Scan(removal, counts, digest, paths, unlogged, pending)
    except BaseException:
        paths.close()
        raise


def _last_readings(target: Target) -> Iterator[int]:
    """Yields when other tables that cannot be read were last known to write nowhere below the prefixes. Later files
    may be theirs."""
    for owner in target.others:
        if owner.current_until_ms is not None:
            # The ledger's clock and the store's may each differ from this machine's.
            yield owner.current_until_ms - 2 * MAX_CLOCK_SKEW_MS


@dataclass(frozen=True, slots=True)
class _AgedRules:
    """Why a listed file stays, by its name or its age."""

    names: NameRules
    youngest_ms: int


def _read_listed(
    removal: Removal, paths: PathTables, rules: _AgedRules, listing: StoredListing | None
) -> None:
    """Adds the listed files, those of `listing` if it is given. Raises RefusedError ICM-113 for a file that the store
    lists outside the prefix."""
    try:
        for prefix in removal.target.prefixes:
            files = removal.store.list(prefix) if listing is None else listing.files(prefix)
            paths.add_listed(_with_reasons(files, prefix, rules))
    except ValueError as error:
        raise RefusedError("ICM-113", f"{removal.target.state.table}: {error}.", "report it.") from error


def _read_later_metadata(removal: Removal, paths: PathTables, rules: _AgedRules, started_ms: int) -> None:
    """Adds the files of the metadata folder that are younger than the begin of a continued listing: pending
    manifests, and metadata files of a second owner."""
    root = removal.target.state.location.rstrip("/")
    later = (
        file
        for file in removal.store.list(f"{root}/metadata")
        if not (file.modified_ms is not None and file.modified_ms < started_ms)
    )
    paths.add_listed(_with_reasons(later, root, rules))


def _moved_since(target: Target, store: Store, started_ms: int) -> Iterator[str]:
    """Yields the original paths of files that were moved to the trash since a continued listing began."""
    for header in read_batch_headers(target.prefixes, store):
        if header.marked_ms >= started_ms:
            folder = files_folder(header.prefix, header.mark_id)
            for file in store.list(folder):
                yield header.prefix.rstrip("/") + file.path[len(folder) :]


def _with_reasons(
    files: Iterator[StoredFile], prefix: str, rules: _AgedRules
) -> Iterator[tuple[StoredFile, Kept | None]]:
    root = prefix.rstrip("/")
    for file in files:
        if not file.path.startswith(root + "/"):
            raise ValueError(f"the listing of {prefix} contains {file.path}, which is not below it")
        reason = rules.names.kept(file.path[len(root) :], file.modified_ms)
        if reason is None and (file.modified_ms is None or file.modified_ms > rules.youngest_ms):
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
                    "run the next scan, which restores it, or restore it now with "
                    f"`{command_line('orphans', 'restore', str(target.state.table), '--mark', mark_id)}`.",
                )
            raise RefusedError(
                "ICM-122",
                f"{target.state.table}: the metadata reference {path}, which is not in the listing. Nothing was removed.",
                "if the store has it under another spelling, declare that in remove_orphan_files.equal_schemes or "
                f"equal_authorities. If it is lost, {LOST_FILE_FIX}",
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
