"""Regressions of the budget of the fleet and of remembered decisions: work that would never run, and work that is not
charged."""

from __future__ import annotations

from iceberg_maint_tests.qualification.regressions.regression import Regression, off

_REMEMBERED = "loop/test_remembered_decisions.py"

SCHEDULING = (
    Regression(
        "running-batches-spend-nothing",
        "found in review",
        "Batches that run in other processes count with their bytes and no seconds, so that a budget of time starts any number at once",
        "A batch without an outcome counts with its predicted seconds",
        off(
            "loop/fleet/budget.py",
            "replace(s, load=batch_load(s.load.bytes, speed)) if s.is_open else s for s in spends",
            "s for s in spends",
            "loop/test_fleet_budget.py::test_batch_without_an_end_spends_its_predicted_seconds",
        ),
    ),
    Regression(
        "one-commit-for-each-partition",
        "found in use",
        "A budget of commits counts one for each due partition, and partitions of one batch wait for periods that nothing is spent in",
        "Partitions of a table fill batches as the policy allows; a batch is one commit",
        off(
            "core/decisions/fleet_budget.py",
            "    return replace(load, commits=batches.more(work.key[0], work.part, load.commits))",
            "    return load",
            "core/decisions/test_fleet_budget.py::test_partitions_that_share_a_batch_count_as_one_commit",
            "core/decisions/test_fleet_budget.py::test_partitions_that_wait_for_one_batch_are_expected_at_one_time",
            "loop/test_fleet_budget.py::test_one_commit_is_divided_among_the_partitions_of_one_batch_and_the_run_makes_one",
        ),
    ),
    Regression(
        "remembered-past-its-time",
        "found in design",
        "A remembered decision stands after a back-off, a cold window or blackout hours have ended, and due work does not start, or starts within them",
        "The time of a decision notes where each of its answers changes; the decision is remembered until then",
        off(
            "core/decisions/waits.py",
            "            self.last_ms = min(self.last_ms, at_ms - 1)",
            "            pass",
            f"{_REMEMBERED}::test_remembered_decision_equals_one_decided_anew",
            f"{_REMEMBERED}::test_decision_in_back_off_is_made_again_when_the_back_off_ends",
            f"{_REMEMBERED}::test_decision_beside_blackout_hours_is_made_once_a_minute",
        ),
    ),
    Regression(
        "remembered-before-its-time",
        "found in design",
        "A remembered decision is used for a time before the one that it was made for, after a clock was set back",
        "A decision is remembered for a span of time with a beginning",
        off(
            "core/decisions/waits.py",
            "            self.first_ms = max(self.first_ms, at_ms)",
            "            pass",
            f"{_REMEMBERED}::test_remembered_decision_equals_one_decided_anew",
            f"{_REMEMBERED}::test_decision_beside_blackout_hours_is_made_once_a_minute",
        ),
    ),
    Regression(
        "remembered-for-another-policy",
        "found in design",
        "A table goes on by a policy or a history that has changed since",
        "A decision is remembered for equal health, policy, histories and types only",
        off(
            "loop/fleet/stored_decisions.py",
            "known.key == key:",
            "known.key.head == key.head:",
            f"{_REMEMBERED}::test_decision_of_another_basis_is_made_again",
        ),
    ),
)
