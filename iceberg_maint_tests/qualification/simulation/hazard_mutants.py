"""Planted faults in the guards of paths that are registered again, of tables that another catalog has too, of clocks and
of paused writers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from iceberg_maint.core.commits import gate_rules
from iceberg_maint.core.commits.planned_files import PlannedFile
from iceberg_maint.core.removal.orphan_rules import Standing
from iceberg_maint.loop import assess as surveying
from iceberg_maint.loop import maintain, read_table
from iceberg_maint.loop.attempts import housekeeping_attempt
from iceberg_maint.removal import in_place_retention, orphan_scan, remove_orphans, second_owner, sweep
from iceberg_maint.removal import trash as releasing
from iceberg_maint_tests.qualification.simulation import test_hazards as hazards
from iceberg_maint_tests.qualification.simulation.mutants import wrapped
from iceberg_maint_tests.qualification.simulation.storage_mutants import Planted
from iceberg_maint_tests.qualification.simulation.storage_mutants import planted as planted_into

HAZARD_MUTANTS: Planted = []
planted = partial(planted_into, into=HAZARD_MUTANTS)


@planted(
    "a source is the same file at the commit as at the plan",
    partial(hazards.test_sources_registered_again_before_the_commit_keep_their_rows, "key"),
)
def path_is_an_identity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlannedFile, "difference", lambda _self, _other: "")


@planted(
    "a delete that was applied is live at the commit",
    hazards.test_delete_that_was_applied_and_is_taken_back_brings_its_rows_back,
)
def deletes_taken_back_are_not_missed(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any) -> Any:
        def check(intent, change):
            return real(intent, replace(change, files=replace(change.files, departures=())))

        return check

    wrapped(patch, gate_rules, "check", make)


@planted(
    "released files are looked for once more before they are moved",
    hazards.test_file_put_back_while_its_expiry_is_on_its_way_stays,
)
def released_files_are_believed(patch: pytest.MonkeyPatch) -> None:
    for name in ("_read_current", "check_second_opinion"):
        patch.setattr(releasing, name, lambda *_: None)


@planted(
    "files retained in place are looked for once more before they are deleted",
    hazards.test_file_registered_again_while_it_is_held_in_place_stays,
)
def files_held_in_place_are_believed(patch: pytest.MonkeyPatch) -> None:
    for name in ("read_reached", "check_second_opinion"):
        patch.setattr(in_place_retention, name, lambda *_: None)
    # A release of the same run is read before the deletion.
    patch.setattr(releasing, "_read_current", lambda *_: None)


@planted(
    "a newer version in another catalog refuses the pass",
    hazards.test_files_behind_a_restored_pointer_stay,
)
def newer_version_is_no_sign(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(second_owner, "standing", lambda _version, _log: Standing.OLDER)


@planted(
    "a line of commits beside the catalog's refuses the pass",
    hazards.test_files_of_two_catalogs_that_commit_in_turn_stay,
)
def line_beside_ours_is_no_sign(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(second_owner, "second_line", lambda *_: None)


@planted(
    "another catalog keeps what an expiry released",
    hazards.test_released_files_that_another_catalog_reaches_stay,
)
def other_catalogs_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    nothing = lambda *_args, **_kwargs: None  # noqa: E731
    for module in (in_place_retention, remove_orphans, releasing, sweep):
        patch.setattr(module, "check_folders", nothing)
    patch.setattr(orphan_scan, "check_lineage", nothing)


@planted(
    "nothing is removed while clocks disagree",
    partial(hazards.test_one_clock_a_month_off_removes_nothing, "machine", hazards.MONTH_MS),
)
def clocks_that_disagree_are_believed(patch: pytest.MonkeyPatch) -> None:
    for module in (read_table, housekeeping_attempt, maintain, surveying):
        patch.setattr(module, "clock_skew_text", lambda _clocks: None)
    _by_the_machine(patch)


def _by_the_machine(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(read_table.Clocks, "earliest_ms", property(lambda self: self.machine_ms))


@planted(
    "an expiry reads the store's clock",
    hazards.test_machine_and_ledger_that_share_a_clock_a_month_ahead_of_the_store_remove_nothing,
)
def clock_of_the_store_is_not_read(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any) -> Any:
        return lambda context, state, *, store: real(context, state, store=False)

    wrapped(patch, read_table, "table_clocks", make)
    wrapped(patch, housekeeping_attempt, "table_clocks", make)


@planted(
    "the clocks are read again at the commit of an expiry",
    hazards.test_clock_that_jumps_between_plan_and_commit_expires_nothing_that_is_young,
)
def clocks_are_read_at_the_plan_only(patch: pytest.MonkeyPatch) -> None:
    _by_the_machine(patch)
    patch.setattr(
        housekeeping_attempt,
        "checked_clocks",
        lambda context, state, *, store: read_table.table_clocks(context, state, store=store),
    )
    patch.setattr(housekeeping_attempt, "clock_skew_text", lambda _clocks: None)


@planted(
    "no position of a paused writer lapses unless the policy says so",
    hazards.test_writer_that_was_paused_for_a_month_finds_its_position,
)
def positions_of_writers_lapse_after_a_week(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any) -> Any:
        def retain(state, policy, *args, **kwargs):
            week = replace(policy, writer_state_max_age_seconds=7 * 86_400)
            return real(state, week, *args, **kwargs)

        return retain

    wrapped(patch, surveying, "retain", make)
