"""Regressions of commits: an unknown result, a second commit of one operation, a commit without the lease."""

from __future__ import annotations

from iceberg_maint_tests.qualification.regressions.regression import Regression, known, off

COMMIT = "spark/commit/test_rewrite_files.py::test_commit"
PUBLISH = "spark/commit/test_publish_waits.py"

COMMITTING = (
    Regression(
        "unknown-taken-for-failed",
        "apache/iceberg#4686, #2317, #12792",
        "The answer to a commit is lost. The commit counts as failed, and its files are deleted although "
        "the table refers to them",
        "A commit is rejected only if it lost the swap. Any other error after the swap was tried gives "
        "UNKNOWN",
        off(
            "engines/spark/commit/retry.py",
            "    if gate.error is not None and lost:\n",
            "    if gate.error is not None:\n",
            f"{COMMIT}_that_throws_something_else_is_unknown",
        ),
    ),
    Regression(
        "other-installation-taken-for-own",
        "two ledgers on one lake",
        "Two installations with different ledgers take the commits of each other for their own. Both rewrite the "
        "same files again and again, and the higher fence of one ends the runs of the other",
        "Snapshot summaries carry the id of the ledger. A rewrite under another id is foreign maintenance, and its "
        "fence does not count",
        off(
            "core/model/table_state.py",
            "    return TOKEN_PROPERTY in summary and summary.get(INSTALLATION_PROPERTY, installation) == installation\n",
            "    return TOKEN_PROPERTY in summary\n",
            "core/decisions/test_foreign_maintainers.py::test_commit_of_another_installation_is_foreign_and_names_it",
            "loop/test_stops.py::test_rewrite_of_another_installation_refuses_the_table_by_default",
            "loop/test_stops.py::test_higher_fence_of_another_installation_ends_no_lease",
        ),
    ),
    Regression(
        "committed-though-it-threw",
        "apache/iceberg#12818, #6778, #15050",
        "A commit times out after its swap succeeded, and is made a second time",
        "The program looks for the attempt's token in the table before it reports a result",
        off(
            "engines/spark/commit/retry.py",
            "        snapshot_id = find_commit(access.load(name), base)\n",
            "        snapshot_id = None\n",
            f"{COMMIT}_that_throws_after_the_swap_is_committed_by_its_token",
        ),
    ),
    Regression(
        "success-without-a-commit",
        "apache/amoro#4290, apache/iceberg#17202",
        "A catalog reports success without having committed",
        "After every reported success the table must contain the attempt's token",
        off(
            "engines/spark/commit/retry.py",
            "    if snapshot_id is not None:\n        return CommitResult(CommitStatus.COMMITTED",
            "    if snapshot_id is not None or error is None:\n        return CommitResult(CommitStatus.COMMITTED",
            f"{COMMIT}_that_is_only_said_to_be_done_is_unknown",
        ),
    ),
    Regression(
        "swap-still-in-flight",
        "apache/iceberg#15530, #11814",
        "A swap counts as lost while the catalog still processes it, and its metadata is deleted",
        "An attempt is rejected only after main has moved past its base",
        off(
            "core/outcomes/record.py",
            "bases = {s.snapshot_id for s in chain[1:]}",
            "bases = {s.snapshot_id for s in chain}",
            "core/outcomes/test_settle.py::test_settle_head_still_at_base_is_unknown",
        ),
    ),
    Regression(
        "token-overlooked",
        "pierrezemb (commit_unknown_result)",
        "A retried commit takes effect twice, because the program does not look for the first one",
        "An attempt is committed if any snapshot of the table carries its token",
        off(
            "core/outcomes/record.py",
            "    if committed is not None:\n",
            "    if False:\n",
            "core/outcomes/test_settle.py::test_settle_token_in_head_is_committed_there",
        ),
    ),
    Regression(
        "history-expired-behind-an-attempt",
        "apache/iceberg#17202",
        "The history that would show the commit has expired. The attempt is rejected although its commit "
        "can still arrive",
        "An attempt is rejected only if its commit can no longer arrive",
        off(
            "core/outcomes/record.py",
            "    history_is_visible = head.parent_id is None or len(state.ancestors()) > 1\n",
            "    history_is_visible = True\n",
            "core/outcomes/test_settle.py::test_settle_no_trace_where_history_may_just_not_be_shown_is_unknown",
        ),
    ),
    Regression(
        "operation-committed-twice",
        "apache/iceberg#9227",
        "`commit()` is called again on the same operation object. The table becomes unreadable, or another "
        "commit is lost",
        "The gate lets each operation commit once",
        known(
            "gate",
            "an operation commits as often as it likes",
            "spark/commit/test_gate.py::test_gate_takes_one_commit_only",
        ),
    ),
    Regression(
        "zombie-commits",
        "dagster-io/dagster#15325, #16535",
        "A worker that was considered dead commits beside its successor",
        "The gate checks the lease at the swap",
        known("gate", "a lost lease commits", f"{COMMIT}_without_the_lease_raises_before_the_swap"),
    ),
    Regression(
        "zombie-writes-its-state",
        "dagster-io/dagster#33962",
        "Two daemons launch the same run, and both write its outcome",
        "Every write to the ledger requires the owner and the fence of the lease",
        off(
            "ledger/leases.py",
            "    if holds(conn, required):\n",
            "    if True:\n",
            "ledger/test_leases.py::test_every_write_of_a_lost_lease_is_refused_and_changes_nothing",
        ),
    ),
    Regression(
        "lease-of-the-dead-lives-for-ever",
        "dagster-io/dagster#33643",
        "A crashed worker blocks its table until a person intervenes",
        "Leases expire by the database's clock",
        off(
            "ledger/leases.py",
            "            if row is not None and row.live and row.owner != owner:\n",
            "            if row is not None and row.owner is not None and row.owner != owner:\n",
            "ledger/test_leases.py::test_lease_expired_is_given_to_another[sqlite]",
        ),
    ),
    Regression(
        "fence-given-out-again",
        "a ledger restored from a backup",
        "After the restore of an old ledger the same fence is issued twice. The commit of a late worker "
        "then looks like that of its successor",
        "The next fence is higher than the newest fence in the table's own history",
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
        "A process dies after its commit and before it records the commit. No record of the commit exists",
        "The attempt is recorded before the swap",
        known("gate", "the swap is not recorded first", f"{COMMIT}_that_cannot_be_recorded_is_not_tried"),
    ),
    Regression(
        "commit-without-effect-for-ever",
        "apache/amoro#3391, trinodb/trino#25208",
        "A batch that changes nothing is planned again in every cycle",
        "A commit without gain ends as COMMITTED, and its partitions back off",
        off(
            "loop/execute.py",
            "    status = OutcomeStatus.IMPROVED if better else OutcomeStatus.COMMITTED\n",
            "    status = OutcomeStatus.IMPROVED\n",
            "loop/test_maintain.py::test_useless_commit_is_reported_and_backs_off",
        ),
    ),
    Regression(
        "unequal-rows-committed",
        "airbnb/chronon#1111",
        "A rewrite is committed although the rows written differ from the rows read",
        "A batch is committed only if its proof is equal",
        off(
            "loop/execute.py",
            "    if not written.proof.equal:\n",
            "    if False:\n",
            "loop/test_maintain.py::test_unequal_proof_commits_nothing",
        ),
    ),
    Regression(
        "kill-button-kills-nothing",
        "dagster-io/dagster#15026",
        "An executor retries a run that a person has terminated",
        "An interrupt ends the run and releases its batch for the next run",
        off(
            "loop/execute.py",
            '            self._hand_back(why, "stopped before its commit")\n            raise\n',
            '            return AttemptResult(OutcomeStatus.FAILED, Reason.ERROR, "interrupted")\n',
            "loop/test_stops.py::test_terminated_while_writing_hands_the_batch_back",
        ),
    ),
    Regression(
        "stored-batch-in-mode-advise",
        "found in review",
        "A batch of an earlier run is committed in mode advise, or beside another maintainer, because no partition is due",
        "Each rule that stops new work also stops stored batches, due or not",
        off(
            "core/decisions/rules.py",
            "    return halt(operation, situation) or _first(rules, operation, situation)\n",
            "    return halt(operation, situation)\n",
            "loop/test_stops.py::test_stored_batches_of_a_table_without_due_work_stop_by_the_same_rules",
            "core/decisions/test_decide.py::test_rule_that_stops_new_work_stops_stored_batches_of_a_table_without_due_work",
        ),
    ),
    Regression(
        "commit-recorded-twice",
        "found in review",
        "A run stands still until another takes its lease. Both record its commits, and reports count them twice",
        "A run that lost its lease adds no record of batches that the ledger has under its id",
        off(
            "loop/record.py",
            "    if reason is Reason.LEASE_HELD and _is_recorded(outcome, results.assessment.state.uuid, run):\n",
            "    if False:\n",
            "loop/test_stops.py::test_batches_of_a_run_that_lost_its_lease_are_recorded_once",
        ),
    ),
    Regression(
        "pool-slot-never-freed",
        "dagster-io/dagster#33643, #32560",
        "A crashed run keeps the slot of its pool, and the table is not maintained again",
        "A Dagster instance that does not free slots after a run has ended is refused",
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
        "A run whose worker is gone keeps the status STARTED. Nothing reports it, and no other run of the "
        "table starts",
        "A sensor fails a run whose heartbeats have stopped",
        off(
            "defs/runs/upkeep.py",
            "        return self.ticks >= _TICKS and now_ms - self.since_ms >= limit_seconds * 1000\n",
            "        return False and limit_seconds\n",
            "defs/test_lost_runs.py::test_run_that_goes_silent_is_failed_and_forgotten_with_a_reason_to_read",
        ),
    ),
    Regression(
        "success-turned-into-failure",
        "dagster-io/dagster#8729",
        "A monitor of dead runs fails a run that has just succeeded",
        "The sensor reads the status of the run again before it fails it",
        off(
            "defs/runs/upkeep.py",
            "    if run is not None and run.status is dg.DagsterRunStatus.STARTED:\n",
            "    if run is not None:\n",
            "defs/test_lost_runs.py::test_run_that_ended_by_itself_keeps_its_end",
        ),
    ),
    Regression(
        "lock-free-hive",
        "apache/iceberg#11814",
        "Hive tables without locks lose commits",
        "A catalog or table with `engine.hive.lock-enabled=false` is refused",
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
        "The commits of a Hadoop catalog are not atomic across processes",
        "Hadoop catalogs are refused",
        off(
            "engines/spark/session/session.py",
            '        if conf.get(f"{key}.type") == "hadoop":\n',
            "        if False:\n",
            "spark/session/test_session.py::test_check_conf_unsafe_session_is_refused",
        ),
    ),
    Regression(
        "manifest-entries-lose-their-numbers",
        "hyparam/icebird#39, apache/iceberg#16304",
        "Rewritten manifests lose sequence numbers or row ids, so other deletes apply to their files",
        "The gate compares all live entries before and after, with all their fields",
        off(
            "core/commits/manifest_rules.py",
            "    if change.before != change.after:\n",
            "    if False:\n",
            "core/commits/test_rewrite_manifests.py::test_entry_that_is_not_what_it_was_is_refused",
        ),
    ),
    Regression(
        "manifest-is-missing",
        "apache/iceberg#3466, #10129",
        "A rewrite of manifests fails again and again on a manifest that a writer has replaced",
        "The batch is stale and is planned again",
        off(
            "core/commits/manifest_rules.py",
            "    if missing := planned - old.keys():\n",
            "    if missing := frozenset():\n",
            "core/commits/test_rewrite_manifests.py::test_manifest_that_is_gone_makes_the_plan_stale",
        ),
    ),
    Regression(
        "branch-cannot-be-published",
        "reproduced on Iceberg 1.12 (`fast_forward`)",
        "main is compacted while a branch is ahead of it: the branch cannot be fast-forwarded, and the audited work is done again",
        "work that commits to main waits while a branch descends from main's head",
        off(
            "core/decisions/rules.py",
            "    return Stop(Verdict.DEFER, Reason.PENDING_PUBLISH, wait.evidence(), wait.until_ms)\n",
            "    return None\n",
            "core/decisions/test_publish_waits.py::test_due_work_on_data_waits_and_names_the_branch[False]",
            f"{PUBLISH}::test_what_is_pending_is_published_after_the_run_that_waited[branch]",
        ),
    ),
    Regression(
        "branch-loses-its-way-to-main",
        "reproduced on Iceberg 1.12 (`fast_forward`)",
        "an expiry removes snapshots between main's head and the branch's, and `fast_forward` finds no ancestor",
        "the snapshots of a branch that is waited for are held",
        off(
            "core/decisions/snapshot_retention.py",
            "        *history.publishable(publishing),\n",
            "",
            "core/decisions/test_retainers.py::test_branch_that_can_be_published_keeps_its_way_to_main_until_the_wait_ends",
            f"{PUBLISH}::test_branch_of_many_commits_is_published_after_an_expiry",
        ),
    ),
    Regression(
        "staged-overwrite-cannot-be-picked",
        "reproduced on Iceberg 1.12 (`cherrypick_snapshot`)",
        "main is compacted while an overwrite is staged on its head: the snapshot cannot be cherry-picked any more",
        "work that commits to main waits while a staged change that is no append can be picked",
        off(
            "core/model/other_writers.py",
            "        if _ends_with_a_commit(s, head_id, on_main)\n",
            "        if False\n",
            "core/model/test_pending_publishes.py::test_staged_change_is_pending_while_it_can_be_picked[overwrite-3-summary0-True]",
            f"{PUBLISH}::test_what_is_pending_is_published_after_the_run_that_waited[overwrite]",
            f"{PUBLISH}::test_what_is_pending_is_published_after_the_run_that_waited[dynamic-overwrite]",
        ),
    ),
    Regression(
        "branch-appears-after-the-plan",
        "reproduced on Iceberg 1.12 (`fast_forward`)",
        "a branch gets its first commit between the plan and the commit of a rewrite, and cannot be fast-forwarded",
        "the gate reads branches and staged snapshots of the metadata that the commit builds on",
        off(
            "engines/spark/commit/gate.py",
            "        return waiting or check(",
            "        return check(",
            f"{PUBLISH}::test_branch_that_appears_after_the_plan_keeps_the_commit_from_main[rewrite]",
        ),
    ),
    Regression(
        "branch-appears-before-manifests-are-swapped",
        "reproduced on Iceberg 1.12 (`fast_forward`)",
        "the same between the plan and the commit of regrouped manifests",
        "the gate of that commit reads them, too",
        off(
            "engines/spark/commit/housekeeping.py",
            "        if waiting := check_publishes(context.publish_wait(pending_publishes(bridge, base))):\n",
            "        if waiting := ():\n",
            f"{PUBLISH}::test_branch_that_appears_after_the_plan_keeps_the_commit_from_main[regroup]",
        ),
    ),
    Regression(
        "environment-counted-against-a-partition",
        "our trial on Glue",
        "Credentials are missing for an hour: partitions end in back-off and quarantine, and stay there after the fix",
        "Failures of the environment do not count towards quarantine",
        off(
            "loop/attempts/attempt.py",
            "    if attempt_result.reason in OF_MACHINE:\n",
            "    if False:\n",
            "loop/test_maintain.py::test_failure_of_the_environment_does_not_count_against_the_partition",
            "loop/test_maintain.py::test_commit_that_the_environment_fails_does_not_count_against_the_partition",
        ),
    ),
    Regression(
        "cluster-without-executors",
        "our trial on a standalone cluster",
        "A cluster starts no executor: the run waits without end, or ends with a page of Java's stack",
        "A session on a cluster runs a job of one row first, within a limit of time",
        off(
            "engines/spark/session/executors.py",
            "        job.result(wait_seconds - quiet_seconds)\n",
            "        job.result()\n",
            "spark/session/test_executors.py::test_cluster_without_an_executor_is_an_error_with_its_fix_and_the_job_is_cancelled",
        ),
    ),
    Regression(
        "python-of-executors-ignored",
        "our trial on a standalone cluster",
        "`spark.pyspark.python` is ignored outside `spark-submit`: executors run the `python3` of their path, and no batch is columnar",
        "Python workers of a cluster run the configured interpreter",
        off(
            "engines/spark/rewrite/columnar/job.py",
            "    return configured or default\n",
            "    return default\n",
            "spark/rewrite/test_columnar_parts.py::test_workers_of_a_cluster_run_the_configured_interpreter",
        ),
    ),
    Regression(
        "executors-without-a-package",
        "our run on a standalone cluster without the archive",
        "The check of executors imports less than a task does: without PyArrow every columnar batch fails, none is written by Spark",
        "The check imports every package that a task may import, and the batch is written by `native` with a note",
        off(
            "engines/spark/rewrite/columnar/job.py",
            "        import iceberg_maint.columnar.rewrite\n        import iceberg_maint.columnar.storage  # noqa: F401\n",
            "",
            "spark/rewrite/test_columnar_parts.py::test_worker_without_a_package_of_the_engine_names_it",
        ),
    ),
    Regression(
        "driver-elsewhere",
        "the judgement of Spark Connect",
        "A session of Spark Connect or a driver in cluster mode starts work that the gate cannot check",
        "A driver that is not this process is refused by ICM-164 before Spark starts",
        off(
            "engines/spark/session/session_checks.py",
            '    if master.startswith("sc://"):\n',
            '    if master.startswith("no://"):\n',
            "spark/session/test_driver.py::test_driver_in_another_process_is_refused",
        ),
    ),
    Regression(
        "stale-hides-corrupt",
        "the review of 0.1.0",
        "a commit that breaks a stale rule and corrupts a file beside it is planned again as stale, and no report names it",
        "a violation that no stale rule explains is refused",
        off(
            "core/commits/change.py",
            "    return all(v.is_stale or not stale.isdisjoint(v.explained_by) for v in violations)\n",
            "    return bool(stale)\n",
            "core/commits/test_gate.py::test_stale_rule_excuses_only_the_violations_that_it_explains",
            "spark/commit/test_gate_identity.py::"
            "test_source_registered_again_does_not_excuse_a_removal_outside_the_plan",
        ),
    ),
    Regression(
        "row-ids-given-twice",
        "reproduced on Iceberg 1.12 (upgrade to format v3)",
        "the first commit in format v3 gives ids to all rows between our look at the head and Iceberg's base: a rewrite gives "
        "its rows other ids",
        "the gate compares the first row ids of the pinned snapshot and the base",
        off(
            "core/commits/gate_rules.py",
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
    Regression(
        "fast-writer-wins-every-try",
        "found in review",
        "A writer that commits every second wins every try: each one reads the manifests of the table between its "
        "base and its swap",
        "After a lost try the operation is applied and checked once before the commit loads its base. Files that were "
        "read are kept in memory",
        off(
            "engines/spark/commit/rewrite_files.py",
            "                if has_lost:\n",
            "                if False:\n",
            "spark/commit/test_rewrite_files.py::"
            "test_commit_after_a_lost_swap_reads_one_manifest_list_between_base_and_swap",
        ),
    ),
    Regression(
        "conflict-stops-an-unpartitioned-table",
        "found in review",
        "One lost batch stops all other batches of its partition in the run, and four are a quarantine",
        "A run counts a conflict once per partition, at its end, and only if it committed nothing there",
        off(
            "loop/attempts/attempt.py",
            "(Reason.STALE, Reason.CONFLICT)",
            "(Reason.STALE,)",
            "loop/test_maintain.py::"
            "test_conflict_of_a_batch_leaves_the_other_batches_of_its_partition_and_counts_once",
        ),
    ),
    Regression(
        "callback-server-closes-a-waiting-connection",
        "found in review",
        "Java's finalizer connects to Python while a commit stops its callbacks. py4j closes the connection while its "
        "reader waits, and the commit never returns",
        "The server adds no connection after the connections it has are shut down",
        off(
            "engines/spark/jvm/bridge.py",
            "        with server.lock:\n            server.is_shutdown = True\n",
            "        if True:\n",
            "spark/jvm/test_bridge.py::test_callback_server_closes_while_another_client_connects",
        ),
    ),
)
