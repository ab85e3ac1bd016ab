"""Planted faults in adoption, expiry and the orphan scan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.record import Settlement
from iceberg_maint.loop import assess as surveying
from iceberg_maint.loop import execute as executing
from iceberg_maint.loop import select_batches as preparing
from iceberg_maint.loop import settle as reconciling
from iceberg_maint.loop.attempts import attempt as adopting
from iceberg_maint.loop.attempts import housekeeping_attempt
from iceberg_maint.ports.engine import Written
from iceberg_maint.removal import orphan_scan, remove_orphans, target, trash
from iceberg_maint.removal import sweep as sweeping
from iceberg_maint_tests.qualification.simulation import test_adoption as adoption
from iceberg_maint_tests.qualification.simulation import test_housekeeping as keeping
from iceberg_maint_tests.qualification.simulation.mutants import Mutant, Plant, wrapped

Planted = list[tuple[Mutant, Callable[[], None]]]
"""Each with the scenario that must see it."""

STORAGE_MUTANTS: Planted = []

_LONG_SECONDS = 10**9


def planted(
    rule: str, seen_by: Callable[[], None], into: Planted = STORAGE_MUTANTS
) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        into.append((Mutant(plant.__name__, rule, plant), seen_by))
        return plant

    return register


def stopped_before_its_swap() -> None:
    adoption.test_process_stopped_before_its_swap_loses_to_the_one_that_adopted_its_files("swap")


@planted(
    "files are adopted only while no orphan scan may take them",
    keeping.test_files_that_an_orphan_pass_may_be_about_to_move_are_not_adopted,
)
def files_are_adopted_however_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adopting, "ADOPT_WITHIN_SECONDS", _LONG_SECONDS)


@planted(
    "files are adopted only if they are there and hold what their proof says",
    keeping.test_files_of_a_dead_run_that_somebody_has_removed_are_written_again,
)
def adopted_files_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    def adopted(batch, _policy, context, lease):
        left = context.ledger.work.uncommitted_output(lease, batch.batch_id, adopting.ADOPT_WITHIN_SECONDS)
        if left is None or not left.files or left.proof is None:
            return None
        return Written(left.files, left.proof, adopted=True)

    patch.setattr(executing, "reusable_output", adopted)


@planted("files of a dead run are adopted", stopped_before_its_swap)
def nothing_is_adopted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(executing, "reusable_output", lambda _batch, _policy, _context, _lease: None)


@planted(
    "a batch that is resumed is valid still",
    adoption.test_files_are_not_adopted_while_a_catalog_hides_what_they_are_based_on,
)
def resumed_batches_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preparing, "still_valid", lambda _batch, _changes: True)


@planted(
    "a file that another attempt has committed tells nothing of this one",
    adoption.test_swap_that_comes_late_is_not_the_commit_of_the_dead_process_that_adopted_its_files,
)
def shared_files_tell_of_every_attempt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciling, "_committed_by_others", lambda _attempt, _live, _state, _context: frozenset())


@planted(
    "an expiry keeps the snapshots of plans and of unsettled commits",
    keeping.test_expiry_keeps_the_snapshot_of_a_plan_that_is_not_done,
)
def running_work_does_not_hold_snapshots(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any) -> Any:
        return lambda *args, work, **kwargs: real(*args, work=(), **kwargs)

    wrapped(patch, surveying, "retain", make)


@planted("an expiry keeps what readers have not seen", keeping.test_reader_holds_the_snapshot_it_has_come_to)
def readers_do_not_hold_snapshots(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any) -> Any:
        return lambda *args, readers, **kwargs: real(*args, readers=(), **kwargs)

    wrapped(patch, surveying, "retain", make)


@planted(
    "no hold of a reader lapses unless the policy says so",
    keeping.test_reader_that_is_silent_for_a_month_holds_its_snapshot,
)
def holds_of_readers_lapse_after_a_week(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any) -> Any:
        def retain(state, policy, *args, **kwargs):
            week = replace(policy, reader_max_silence_seconds=7 * 86_400)
            return real(state, week, *args, **kwargs)

        return retain

    wrapped(patch, surveying, "retain", make)


@planted(
    "what may expire is asked again at the commit",
    keeping.test_reader_that_registers_between_plan_and_commit_of_an_expiry_keeps_its_snapshot,
)
def plan_of_an_expiry_is_believed(patch: pytest.MonkeyPatch) -> None:
    def may_expire(batch, _policy, _context, _location):
        return Retention(batch.work.snapshots, batch.work.refs, (), ())

    patch.setattr(executing, "may_expire", may_expire)


@planted(
    "what came of an expiry is seen by what is gone",
    keeping.test_expiry_killed_after_its_swap_is_known_by_what_is_gone,
)
def expiry_is_settled_as_never_done(patch: pytest.MonkeyPatch) -> None:
    def settle(_batch, _location, _state, *, may_come):
        return Settlement(CommitStatus.REJECTED, None, "no snapshot has its token")

    patch.setattr(reconciling, "settle_expiry", settle)


@planted(
    "what went with an expiry is looked for whoever settles it",
    keeping.test_tag_that_went_with_an_expiry_is_reported_although_its_process_died,
)
def expiry_of_the_dead_lost_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciling, "_lost_with", lambda _batch, _location, _state, _context: ())


@planted(
    "an expiry is told of as done only if it is",
    keeping.test_expiry_that_a_catalog_says_it_has_done_and_has_not_is_unknown,
)
def expiry_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(housekeeping_attempt, "expired", lambda _batch, _state: True)


@planted(
    "files of open attempts are no orphans",
    keeping.test_files_of_an_unsettled_commit_are_no_orphans_however_old,
)
def files_in_flight_are_orphans(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any) -> Any:
        return lambda self, *args, in_flight, **kwargs: real(self, *args, in_flight=frozenset(), **kwargs)

    wrapped(patch, remove_orphans.OrphanRemoval, "run", make)


@planted(
    "files that a pending manifest names are no orphans",
    keeping.test_files_that_a_pending_manifest_names_are_no_orphans_until_it_is_gone,
)
def pending_manifests_are_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target, "_add_pending", lambda *_: None)


@planted(
    "a young file is no orphan",
    keeping.test_files_written_lately_are_no_orphans_although_no_snapshot_reaches_them,
)
def age_of_files_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any) -> Any:
        return lambda files, prefix, rules: real(files, prefix, replace(rules, youngest_ms=1 << 62))

    wrapped(patch, orphan_scan, "_with_reasons", make)


@planted(
    "metadata is read once more before the first file is moved",
    keeping.test_file_that_is_committed_while_it_is_looked_at_stays_at_its_place,
)
def metadata_is_read_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trash, "read_reached", lambda *_: None)
    patch.setattr(trash, "_put_back_reached", lambda _scan, _done: None)


@planted(
    "what is in the trash is swept after its hold only", keeping.test_orphans_stay_in_the_trash_for_the_hold
)
def hold_of_the_trash_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any) -> Any:
        def sweep(removal, *args, **kwargs):
            return real(
                replace(removal, policy=replace(removal.policy, delete_after_seconds=0)), *args, **kwargs
            )

        return sweep

    wrapped(patch, remove_orphans, "sweep", make)
    patch.setattr(sweeping, "check_target", lambda _target, _policy: None)
