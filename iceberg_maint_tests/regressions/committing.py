"""Regressions of committing: commits whose end is unknown, done twice, or by whom the lease was taken."""

from __future__ import annotations

from iceberg_maint_tests.regressions.regression import Regression, known, off

COMMIT = "spark/commit/test_rewrite_files.py::test_commit"

COMMITTING = (
    Regression(
        "unknown-taken-for-failed",
        "apache/iceberg#4686, #2317, #12792",
        "a commit whose answer was lost counts as failed, and the files it had committed are deleted",
        "only a lost swap is a rejection; all else after the swap was tried is UNKNOWN",
        off(
            "spark/commit/retry.py",
            "    if gate.error is not None and lost:\n",
            "    if gate.error is not None:\n",
            f"{COMMIT}_that_throws_something_else_is_unknown",
        ),
    ),
    Regression(
        "committed-though-it-threw",
        "apache/iceberg#12818, #6778, #15050",
        "a time-out after the swap: the commit is made once more",
        "the table is asked for the attempt's token before anything is said",
        off(
            "spark/commit/retry.py",
            "        snapshot_id = find_commit(load(name), base)\n",
            "        snapshot_id = None\n",
            f"{COMMIT}_that_throws_after_the_swap_is_committed_by_its_token",
        ),
    ),
    Regression(
        "success-without-a-commit",
        "apache/amoro#4290, apache/iceberg#17202",
        "a catalog says OK and has not committed",
        "after every success the table must show the token",
        off(
            "spark/commit/retry.py",
            "    if snapshot_id is not None:\n        return CommitResult(CommitStatus.COMMITTED",
            "    if snapshot_id is not None or error is None:\n        return CommitResult(CommitStatus.COMMITTED",
            f"{COMMIT}_that_is_only_said_to_be_done_is_unknown",
        ),
    ),
    Regression(
        "swap-still-in-flight",
        "apache/iceberg#15530, #11814",
        "a swap is declared lost while it is still on its way, and its metadata deleted",
        "an attempt is rejected only once main has moved past its base",
        off(
            "core/outcomes/settle.py",
            "bases = {s.snapshot_id for s in chain[1:]}",
            "bases = {s.snapshot_id for s in chain}",
            "core/outcomes/test_settle.py::test_settle_head_still_at_base_is_unknown",
        ),
    ),
    Regression(
        "token-overlooked",
        "pierrezemb (commit_unknown_result)",
        "a retried commit has two effects, as nobody looks for the first",
        "an attempt is committed when its token is in any snapshot of the table",
        off(
            "core/outcomes/settle.py",
            "    if committed is not None:\n",
            "    if False:\n",
            "core/outcomes/test_settle.py::test_settle_token_in_head_is_committed_there",
        ),
    ),
    Regression(
        "history-expired-behind-an-attempt",
        "apache/iceberg#17202",
        "the history that would tell has expired, and an attempt is given up that may still land",
        "an attempt is given up only where nothing of it can come any more",
        off(
            "core/outcomes/settle.py",
            "    history_is_visible = head.parent_id is None or len(state.ancestors()) > 1\n",
            "    history_is_visible = True\n",
            "core/outcomes/test_settle.py::test_settle_no_trace_where_history_may_just_not_be_shown_is_unknown",
        ),
    ),
    Regression(
        "operation-committed-twice",
        "apache/iceberg#9227",
        "`commit()` is called again on one operation object: the table is unreadable, or another's commit is lost",
        "the gate lets each operation commit once",
        known(
            "gate",
            "an operation commits as often as it likes",
            "spark/commit/test_gate.py::test_gate_takes_one_commit_only",
        ),
    ),
    Regression(
        "zombie-commits",
        "dagster-io/dagster#15325, #16535",
        "a worker that was taken for dead commits beside its successor",
        "the lease is asked for at the swap",
        known("gate", "a lost lease commits", f"{COMMIT}_without_the_lease_raises_before_the_swap"),
    ),
    Regression(
        "zombie-writes-its-state",
        "dagster-io/dagster#33962",
        "two daemons launch one run: both write its outcome",
        "every write to the ledger needs owner and fence of the lease",
        off(
            "ledger/leases.py",
            "    if holds(conn, required):\n",
            "    if True:\n",
            "ledger/test_leases.py::test_every_write_of_a_lost_lease_is_refused_and_changes_nothing[sqlite-taken over]",
        ),
    ),
    Regression(
        "lease-of-the-dead-lives-for-ever",
        "dagster-io/dagster#33643",
        "a crashed worker blocks its table until somebody looks",
        "leases expire by the database's clock",
        off(
            "ledger/leases.py",
            "    if row is not None and row.live and row.owner != owner:\n",
            "    if row is not None and row.owner is not None and row.owner != owner:\n",
            "ledger/test_leases.py::test_lease_expired_is_given_to_another[sqlite]",
        ),
    ),
    Regression(
        "fence-given-out-again",
        "a ledger restored from a backup",
        "after a restore a fence is given out twice: a zombie's commit passes for its successor's",
        "fences go on from the newest in the table's own history",
        off(
            "ledger/leases.py",
            "max(row.fence if row is not None else 0, min_fence) + 1",
            "(row.fence if row is not None else 0) + 1",
            "ledger/test_leases.py::test_lease_fence_is_above_the_tables_own[sqlite]",
        ),
    ),
    Regression(
        "attempt-not-written-down",
        "apache/iceberg#4686",
        "a process dies between a commit and its note of it: nobody knows that there was one",
        "the attempt is on record before the swap",
        known("gate", "the swap is not recorded first", f"{COMMIT}_that_cannot_be_recorded_is_not_tried"),
    ),
    Regression(
        "commit-without-effect-for-ever",
        "apache/amoro#3391, trinodb/trino#25208",
        "a batch that changes nothing is planned again in every cycle",
        "a commit without gain is told as such, and its partitions back off",
        off(
            "runner/execute.py",
            "    status = OutcomeStatus.IMPROVED if better else OutcomeStatus.NO_OP\n",
            "    status = OutcomeStatus.IMPROVED\n",
            "runner/test_maintain.py::test_useless_commit_is_told_and_backs_off",
        ),
    ),
    Regression(
        "unequal-rows-committed",
        "airbnb/chronon#1111",
        "what was written is not what was read, and is committed",
        "without an equal proof there is no commit",
        off(
            "runner/execute.py",
            "    if not written.proof.equal:\n",
            "    if False:\n",
            "runner/test_maintain.py::test_unequal_proof_commits_nothing",
        ),
    ),
    Regression(
        "kill-button-kills-nothing",
        "dagster-io/dagster#15026",
        "an executor retries what a person has terminated",
        "an interrupt ends the run, and its batch is handed back",
        off(
            "runner/execute.py",
            '        engine.cancel()\n        _terminated(batch, runtime, lease, attempt, past, "stopped before its commit")\n        raise\n',
            '        engine.cancel()\n        return AttemptResult(OutcomeStatus.FAILED, Reason.ERROR, "interrupted")\n',
            "runner/test_stops.py::test_terminated_while_writing_hands_the_batch_back",
        ),
    ),
    Regression(
        "pool-slot-never-freed",
        "dagster-io/dagster#33643, #32560",
        "a crashed run keeps its pool's slot: the table is never maintained again",
        "an instance that does not free slots is refused",
        off(
            "defs/instance.py",
            '    if instance.run_monitoring_settings.get("free_slots_after_run_end_seconds") is None:\n',
            "    if False:\n",
            "defs/test_observe.py::test_instance_that_would_block_after_a_crash_is_refused",
        ),
    ),
    Regression(
        "run-started-for-ever",
        "dagster-io/dagster#11510, #17448",
        "a run whose worker is gone stays started: nobody tells, and nothing else runs",
        "a run that is no longer heard in the ledger is failed",
        off(
            "defs/lost_runs.py",
            "        return self.looks >= _LOOKS and now_ms - self.since_ms >= limit_seconds * 1000\n",
            "        return False and limit_seconds\n",
            "defs/test_lost_runs.py::test_run_that_goes_silent_is_failed_and_forgotten_with_a_reason_to_read",
        ),
    ),
    Regression(
        "success-turned-into-failure",
        "dagster-io/dagster#8729",
        "who looks after dead runs fails one that has just succeeded",
        "its status is asked again before it is failed",
        off(
            "defs/lost_runs.py",
            "    if run is not None and run.status is dg.DagsterRunStatus.STARTED:\n",
            "    if run is not None:\n",
            "defs/test_lost_runs.py::test_run_that_ended_meanwhile_keeps_its_end",
        ),
    ),
    Regression(
        "lock-free-hive",
        "apache/iceberg#11814",
        "Hive tables without locks lose commits",
        "such a catalog is refused",
        off(
            "config/catalogs.py",
            '    if properties.get(_HIVE_LOCK, "").lower() == "false":\n',
            "    if False:\n",
            "config/test_load.py::test_hive_table_without_a_lock_is_refused_where_it_is_acted_on",
        ),
    ),
    Regression(
        "catalog-without-atomic-commits",
        "apache/iceberg#864, #1014",
        "a Hadoop catalog's commits are not atomic across processes",
        "such a catalog is refused",
        off(
            "spark/session/session.py",
            '        if conf.get(f"{key}.type") == "hadoop":\n',
            "        if False:\n",
            "spark/session/test_session.py::test_check_conf_unsafe_session_is_refused",
        ),
    ),
    Regression(
        "manifest-entries-lose-their-numbers",
        "hyparam/icebird#39, apache/iceberg#16304",
        "rewritten manifests lose sequence numbers or row ids: other deletes apply",
        "the live entries before and after are compared whole",
        off(
            "core/commits/rewrite_manifests.py",
            "    if change.before != change.after:\n",
            "    if False:\n",
            "core/commits/test_rewrite_manifests.py::test_entry_that_is_not_what_it_was_is_refused",
        ),
    ),
    Regression(
        "manifest-is-missing",
        "apache/iceberg#3466, #10129",
        "a rewrite of manifests fails on one that a writer has replaced, again and again",
        "the plan is out of date and made anew",
        off(
            "core/commits/rewrite_manifests.py",
            "    if missing := planned - old.keys():\n",
            "    if missing := frozenset():\n",
            "core/commits/test_rewrite_manifests.py::test_manifest_that_is_gone_makes_the_plan_stale",
        ),
    ),
    Regression(
        "stale-hides-corrupt",
        "the review of 0.1.0",
        "a commit that breaks a stale rule and corrupts a file beside it is planned again as stale: nobody learns of it",
        "a violation that no stale rule explains is refused",
        off(
            "core/commits/violation.py",
            "    return all(v.is_stale or not stale.isdisjoint(v.explained_by) for v in violations)\n",
            "    return bool(stale)\n",
            "core/commits/test_gate.py::test_stale_rule_excuses_only_the_violations_that_it_explains",
            "spark/commit/test_gate_identity.py::"
            "test_source_registered_again_does_not_excuse_a_removal_nobody_planned",
        ),
    ),
    Regression(
        "row-ids-given-twice",
        "reproduced on Iceberg 1.12 (upgrade to format v3)",
        "the first commit in format v3 gives ids to all rows between our look at the head and Iceberg's base: a rewrite gives "
        "its rows other ids",
        "the gate compares the first row ids of the pinned snapshot and the base",
        off(
            "core/commits/row_ids.py",
            "    if intent.removed and planned_without and base.first_row_id is not None:\n",
            "    if False:\n",
            "core/commits/test_gate_row_ids.py::test_rewrite_planned_before_rows_had_ids_is_stale",
            "spark/commit/test_gate_identity.py::"
            "test_rewrite_planned_before_another_writers_first_v3_commit_is_stale",
        ),
    ),
    Regression(
        "row-ids-of-a-path-registered-again",
        "reproduced on Iceberg 1.12 (`RewriteFiles.dataSequenceNumber`)",
        "a source is removed and registered again with its old sequence number: its rows have new ids, and a rewrite gives "
        "them the old ones back",
        "a plan carries the first row id of each source, and the gate compares it",
        off(
            "core/commits/planned_files.py",
            '            ("first row id", self.first_row_id, other.first_row_id),\n',
            "",
            "core/commits/test_gate_row_ids.py::test_source_registered_again_with_other_row_ids_is_stale",
            "spark/commit/test_gate_identity.py::"
            "test_source_registered_again_with_its_sequence_number_and_other_row_ids_is_stale",
        ),
    ),
    Regression(
        "lowest-sequence-number-too-high",
        "reproduced on Iceberg 1.12 (`ManifestFilterManager.dropDeleteFilesOlderThan`)",
        "another writer's manifest list says a lowest sequence number that is too high: Iceberg drops a delete that a file "
        "still needs, and its rows come back",
        "the gate opens every manifest whose lowest number was not compared with its entries",
        off(
            "core/commits/manifest_diff.py",
            "        checked = pinned_by_path.get(manifest.path) == manifest\n        if by_itself",
            "        checked = True\n        if by_itself",
            "core/commits/test_manifest_diff.py::"
            "test_manifest_whose_lowest_number_is_too_high_hides_no_file_from_a_vanished_delete",
            "spark/commit/test_gate_identity.py::"
            "test_manifest_list_with_a_lowest_number_that_is_too_high_drops_no_delete",
        ),
    ),
    Regression(
        "lowest-sequence-number-believed",
        "reproduced on Iceberg 1.12 (`ManifestFilterManager.dropDeleteFilesOlderThan`)",
        "a table with such a manifest list is planned for, as if nothing were wrong",
        "measuring and planning compare the number with the live entries",
        off(
            "catalog/manifests/reader.py",
            "    if oldest < manifest.min_sequence_number:\n",
            "    if False:\n",
            "catalog/manifests/test_reader.py::test_live_entry_older_than_the_manifest_list_says_is_refused",
        ),
    ),
    Regression(
        "regrouping-loses-statistics",
        "the review of 0.1.0",
        "rewritten manifests lose bounds, sort order, split offsets, key metadata or the size of a blob: files are read "
        "wrong or not found",
        "the digest of an entry contains them",
        off(
            "catalog/manifests/entries.py",
            "                tuple([of_columns or () for of_columns in statistics]),\n",
            "                (),\n",
            "catalog/manifests/test_entries.py::test_entries_have_bounds_of_all_columns_ordered_by_column",
        ),
    ),
)
