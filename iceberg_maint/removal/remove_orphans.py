"""One orphan scan over a table: restores referenced files, deletes trash past its retention, moves new orphans
to the trash.

A scan that ends early reports what it did until then. A killed scan leaves every file at its place or in
the trash, as the manifests there state. The next scan continues from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.location import LocationOwner, equivalences
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.housekeeping import ReleasedRetention, RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import RetainedOrphans, UnloggedMetadata, retained_orphans
from iceberg_maint.core.removal.released_file_rules import Release
from iceberg_maint.errors import FenceLostError, RefusedError, UnreadableTableError
from iceberg_maint.machine.files import private_folder
from iceberg_maint.ports.storage import OrphanWork, Reachability, ReleasedWork, Store
from iceberg_maint.removal.in_place_retention import restore_in_place, retain_in_place
from iceberg_maint.removal.orphan_scan import Scan, scan
from iceberg_maint.removal.released_lists import (
    batches_in_place,
    record_release,
    retained_in_place,
    stored_releases,
)
from iceberg_maint.removal.removal_progress import RemovalProgress, TrashChange
from iceberg_maint.removal.second_owner import check_folders, versions_memo
from iceberg_maint.removal.store_requests import AskedLease, RemovalLease, TimeUpError
from iceberg_maint.removal.stored_listing import StoredListing
from iceberg_maint.removal.sweep import restore, sweep
from iceberg_maint.removal.target import Removal, Target, check_target
from iceberg_maint.removal.trash import remove_released, trash
from iceberg_maint.removal.trash_manifest import TrashBatch, retained_in_trash, trash_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)
_PATHS_TOLD = 5
"""The number of paths per trash batch that a scan reports."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which parts of a scan are done, and for which files. Without `takes_released`, stored releases and files that are retained
    in place stay. `approved` is the digest of a scan that a
    person approves: only exactly those files are moved. `mark_id` is the only trash batch that is swept."""

    marks: bool = True
    sweeps: bool = True
    takes_released: bool = True
    approved: str | None = None
    mark_id: str | None = None


@dataclass(frozen=True, slots=True)
class CleanupContext:
    """What a scan needs from outside: the owners of all other tables, a table's storage and the
    reachability of its metadata, a folder on local disk, this machine's clock, and the name under which the ledger
    knows the table with a UUID."""

    others: Callable[[TableId], tuple[LocationOwner, ...]]
    store: Callable[[TableState], Store]
    reachability: Callable[[TableState], Reachability]
    scratch: Path
    now_ms: Callable[[], int]
    name_of: Callable[[str], str | None] = lambda _uuid: None


class OrphanRemoval:
    """Finds the unreferenced files of one table, removes them in two steps, and restores them."""

    def __init__(self, context: CleanupContext, scope: Scope = Scope()) -> None:
        self._context, self._scope = context, scope

    def run(
        self,
        state: TableState,
        policy: RemoveOrphanFilesPolicy,
        *,
        in_flight: frozenset[str],
        sweep: bool,
        holds: Callable[[], bool],
        is_over: Callable[[], bool] = lambda: False,
    ) -> OrphanWork:
        """See `ports.storage.OrphanFiles`. A scan with an approval has no time limit: the digest that a person
        approves names all of its files."""
        done, asked = RemovalProgress(), AskedLease(holds, self._context.now_ms)
        lease = RemovalLease(asked) if self._scope.approved is not None else RemovalLease(asked, is_over)
        removal = self._removal(state, policy, in_flight)
        try:
            deletes = sweep and self._scope.sweeps
            self._sweep(removal, lease, done, deletes=deletes)
            if self._scope.takes_released:
                self._take_released(removal, lease, done, deletes=deletes)
            if self._scope.marks:
                self._mark(removal, lease, done)
        except FenceLostError:
            raise
        except TimeUpError:
            return replace(done.work(self._retained(removal, done)), unfinished=True)
        except Exception as why:
            if not done.is_something:
                raise
            return done.work(self._retained(removal, done), stopped=why)
        return done.work(self._retained(removal, done))

    @contextmanager
    def scan(
        self, state: TableState, policy: RemoveOrphanFilesPolicy, *, in_flight: frozenset[str]
    ) -> Iterator[Scan]:
        """Yields what a scan would move, for the body of the context to read. Moves nothing. Raises
        the errors of `scan`."""
        removal = self._removal(state, policy, in_flight)
        # A scan without changes needs no lease, so several may run at once.
        with TemporaryDirectory(dir=removal.scratch) as scratch:
            orphan_scan = scan(replace(removal, scratch=Path(scratch)), approved=self._scope.approved)
            try:
                yield orphan_scan
            finally:
                orphan_scan.paths.close()

    def trash_batches(self, state: TableState, policy: RemoveOrphanFilesPolicy) -> tuple[TrashBatch, ...]:
        """Returns the trash batches of the table that are not yet swept, oldest first."""
        target, store = _target(state, policy), self._context.store(state)
        retained = (
            *trash_batches(target.prefixes, store),
            *batches_in_place(target.prefixes, state.uuid, store),
        )
        return tuple(sorted(retained, key=lambda b: (b.header.marked_ms, b.location)))

    def stored_releases(self, state: TableState, policy: RemoveOrphanFilesPolicy) -> tuple[Release, ...]:
        """Returns the releases of the table whose files are not yet in the trash. Their retention begins with the next
        scan."""
        found = stored_releases(_target(state, policy).prefixes, state.uuid, self._context.store(state))
        return tuple(release for _, release in found if release.table_uuid == state.uuid)

    def second_owner(self, state: TableState, policy: RemoveOrphanFilesPolicy) -> UnloggedMetadata:
        """See `ports.storage.OrphanFiles`."""
        target = replace(_target(state, policy), name_of=self._context.name_of)
        store, reachability = self._context.store(state), self._context.reachability(state)
        return check_folders(target, store, reachability, versions_memo(self._scratch(), state))

    def approving(self, digest: str) -> OrphanRemoval:
        """See `ports.storage.OrphanFiles`."""
        return OrphanRemoval(self._context, replace(self._scope, approved=digest))

    def leaving_released(self) -> OrphanRemoval:
        """See `ports.storage.OrphanFiles`."""
        return OrphanRemoval(self._context, replace(self._scope, takes_released=False))

    def record_release(self, state: TableState, policy: RemoveOrphanFilesPolicy, release: Release) -> None:
        """See `ports.storage.OrphanFiles`."""
        target = replace(_target(state, policy), others=self._context.others(state.table))
        check_target(target, policy)
        record_release(target.prefixes[0], self._context.store(state), release)

    def remove_released(
        self,
        state: TableState,
        policy: RemoveOrphanFilesPolicy,
        *,
        in_flight: frozenset[str],
        holds: Callable[[], bool],
    ) -> ReleasedWork:
        """See `ports.storage.OrphanFiles`."""
        done, lease = RemovalProgress(), RemovalLease(AskedLease(holds, self._context.now_ms))
        stopped: Exception | None = None
        try:
            removal = self._removal(state, policy, in_flight)
            self._sweep(removal, lease, done, deletes=True, released_only=True)
            self._take_released(removal, lease, done, deletes=True)
            done.count_retained(removal)
        except FenceLostError:
            raise
        except Exception as why:  # noqa: BLE001 - the caller reports it, with what was done before it
            stopped = why
        return done.released(stopped)

    def restore(
        self,
        state: TableState,
        policy: RemoveOrphanFilesPolicy,
        *,
        mark_id: str | None,
        holds: Callable[[], bool],
        report: Callable[[TrashChange], None],
    ) -> None:
        """Restores the files of one trash batch, or of all; see `sweep.restore`."""
        # The owners of other tables do not matter: a file goes back to the place it was taken from.
        target, store = _target(state, policy), self._context.store(state)
        lease = RemovalLease(AskedLease(holds, self._context.now_ms))
        restore(target, store, self._context.reachability(state), lease, mark_id, report=report)
        for change in restore_in_place(target, store, mark_id, lease):
            report(change)

    def _sweep(
        self,
        removal: Removal,
        lease: RemovalLease,
        done: RemovalProgress,
        *,
        deletes: bool,
        released_only: bool = False,
    ) -> None:
        try:
            sweep(
                self._renewed(removal),
                lease,
                deletes=deletes,
                mark_id=self._scope.mark_id,
                released_only=released_only,
                report=done.trash_changes.append,
            )
        finally:
            if restored := sum(e.restored_files for e in done.trash_changes):
                _log.warning(
                    "%s: restored files from the trash that were committed after they were moved there: %d; "
                    "a write may take longer than remove_orphan_files.older_than_seconds",
                    removal.target.state.table,
                    restored,
                )

    def _take_released(
        self, removal: Removal, lease: RemovalLease, done: RemovalProgress, *, deletes: bool
    ) -> None:
        """Takes the stored releases by the way of the policy, and deletes what an earlier policy or this one has retained
        in place."""
        in_place = removal.policy.released_files is ReleasedRetention.IN_PLACE
        if self._scope.marks and not in_place:
            remove_released(self._renewed(removal), lease, done.taken.append)
        marks, mark_id = self._scope.marks and in_place, self._scope.mark_id
        retain_in_place(self._renewed(removal), lease, done, marks=marks, deletes=deletes, mark_id=mark_id)

    def _mark(self, removal: Removal, lease: RemovalLease, done: RemovalProgress) -> None:
        listing = StoredListing(removal.target, removal.store, lease)
        is_approved = self._scope.approved is not None
        try:
            self._mark_listed(removal, lease, done, None if is_approved else listing)
        except TimeUpError:
            listing.save()
            raise
        except (RefusedError, UnreadableTableError):
            # A doubt about the listing must not outlive this scan.
            listing.discard()
            raise
        listing.discard()

    def _mark_listed(
        self, removal: Removal, lease: RemovalLease, done: RemovalProgress, listing: StoredListing | None
    ) -> None:
        approved = self._scope.approved
        orphan_scan = scan(self._renewed(removal), approved=approved, listing=listing)
        try:
            done.scan = orphan_scan
            if orphan_scan.digest != approved and (approved is not None or orphan_scan.needs_approval):
                orphans, prefixes = orphan_scan.paths.orphans(), removal.target.prefixes
                done.waiting = retained_orphans(orphan_scan.digest, None, orphans, prefixes, _PATHS_TOLD)
                return
            trash(orphan_scan, lease, approved=approved, report=done.trashed.append)
        finally:
            orphan_scan.paths.close()

    def _retained(self, removal: Removal, done: RemovalProgress) -> tuple[RetainedOrphans, ...] | None:
        """Returns what the trash holds now and what waits for approval; None if the trash cannot be read.
        Such an error does not undo the work of the scan. The next sweep or listing of the trash reports
        it."""
        target, store = removal.target, removal.store
        try:
            done.count_retained(removal)
            in_trash = sorted(
                (
                    *retained_in_trash(target.prefixes, store, _PATHS_TOLD),
                    *retained_in_place(target.prefixes, target.state.uuid, store, _PATHS_TOLD),
                ),
                key=lambda h: h.mark_id,  # begins with the time of the mark
            )
        except Exception as why:  # noqa: BLE001 - it is only reported
            _log.warning("%s: the contents of the trash cannot be read: %s", target.state.table, why)
            return None
        return (*in_trash, *((done.waiting,) if done.waiting else ()))

    def _removal(
        self, state: TableState, policy: RemoveOrphanFilesPolicy, in_flight: frozenset[str]
    ) -> Removal:
        context, target = self._context, _target(state, policy)
        return Removal(
            replace(target, others=context.others(state.table), in_flight=in_flight, name_of=context.name_of),
            policy,
            context.store(state),
            context.reachability(state),
            self._scratch(),
            context.now_ms,
        )

    def _renewed(self, removal: Removal) -> Removal:
        """Returns the removal with a reachability that has read nothing. A step keeps the paths that it reads, and one that has
        read a manifest does not name its files again."""
        return replace(removal, reachability=self._context.reachability(removal.target.state))

    def _scratch(self) -> Path:
        return private_folder(self._context.scratch)


def _target(state: TableState, policy: RemoveOrphanFilesPolicy) -> Target:
    """Returns the table as the target of what needs no owners of other tables. Raises RefusedError ICM-113."""
    try:
        same = equivalences(policy.equal_schemes, policy.equal_authorities)
    except ValueError as error:
        raise RefusedError(
            "ICM-113",
            f"{state.table}: remove_orphan_files.equal_schemes or equal_authorities: {error}.",
            "write each as spelling=canonical.",
        ) from error
    return Target(state, (), exclusive_prefixes=policy.exclusive_prefixes, same=same)
