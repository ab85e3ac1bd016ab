"""Regressions of removal: live files removed as orphans, snapshots expired that a reader or writer needed."""

from __future__ import annotations

from iceberg_maint_tests.qualification.regressions.regression import Regression, known, off

SCAN, TRASH, PUT_BACK, OPERATION, SECOND, PENDING = (
    f"removal/test_{name}.py::test"
    for name in ("scan", "trash", "restore", "remove_orphans", "second_catalog", "pending_manifests")
)
BULK, PASSES = "removal/test_bulk_deletion.py::test", "removal/test_remove_orphans.py::test"
RELEASED, RELEASE = "removal/test_released.py::test", "loop/test_release.py::test"
IN_PLACE = "removal/test_in_place.py::test"
TIME = "removal/test_time_limit.py::test"
RETENTION = "core/decisions/test_retention.py::test"
HOLDS = "core/decisions/test_retainers.py::test"
REST = "spark/commit/test_rest_requirements.py::test"
EXPIRY = "core/commits/test_expire_snapshots.py::test"

STORE = "catalog/test_file_store.py::test"
_RECURSIVE = "FileSelector(root, allow_not_found=True, recursive=True)"
_ONE_FOLDER = "FileSelector(root, allow_not_found=True)"

REMOVING = (
    Regression(
        "table-below-another",
        "apache/iceberg#17213, #4265, apache/amoro#4292",
        "The locations of two tables nest. The cleanup of one removes the files of the other",
        "A prefix that another table writes to is refused",
        known("orphans", "a table below ours is none", f"{SCAN}_location_of_another_table_is_refused"),
    ),
    Regression(
        "table-that-has-moved-away",
        "apache/iceberg#17213",
        "A table has moved its location or metadata path. Its older metadata files remain below a location "
        "that is cleaned",
        "Every folder of a file named in another table's metadata file belongs to that table",
        known(
            "orphans",
            "a neighbour has files where it writes only",
            f"{OPERATION}_metadata_of_another_table_that_stayed_below_ours_stops_the_pass",
        ),
    ),
    Regression(
        "table-in-no-catalog",
        "apache/iceberg#17213",
        "A table that no catalog lists lies below a location that is cleaned",
        "The pass reads the table UUID in every metadata file below the location",
        known(
            "orphans",
            "metadata of tables in no catalog is none",
            f"{SCAN}_metadata_of_a_table_in_no_catalog_is_refused",
        ),
    ),
    Regression(
        "table-in-a-second-catalog",
        "apache/iceberg#17213, apache/amoro#4292",
        "Two catalogs list the same table. The one that is not configured commits, and the files of its "
        "commits are removed",
        "The pass compares metadata files outside the log with the pointer. A newer one refuses the pass",
        known(
            "orphans",
            "a newer version in another catalog is none",
            f"{SECOND}_table_that_another_catalog_commits_to_is_refused",
            f"{SECOND}_catalog_restored_to_an_older_pointer_is_refused",
        ),
    ),
    Regression(
        "two-lines-of-commits",
        "apache/iceberg#17213, apache/amoro#4292",
        "Two catalogs commit to one table in turn, or one continues from a restored pointer. Each removes "
        "the other's files",
        "A metadata version outside the log that follows another version outside the log refuses the pass",
        known(
            "orphans",
            "a line of commits beside ours is none",
            f"{SECOND}_two_catalogs_that_commit_in_turn_are_refused",
            f"{SECOND}_restored_catalog_that_has_gone_on_is_refused_for_the_line_it_left",
        ),
    ),
    Regression(
        "second-owner-at-the-sweep",
        "apache/iceberg#17213, apache/amoro#4292",
        "Another catalog commits files after this one has moved them to the trash",
        "Before it deletes a file, the sweep lists the table's prefixes and compares the metadata files "
        "again",
        known(
            "orphans",
            "a sweep does not ask for a second owner",
            f"{SECOND}_sweep_of_a_table_that_another_catalog_commits_to_deletes_nothing",
        ),
    ),
    Regression(
        "second-owner-in-another-folder",
        "reproduced with PyIceberg",
        "The sweep looks for metadata of another catalog only in the folders of this catalog's log",
        "The sweep lists all prefixes of the table before it deletes a file",
        off(
            "removal/sweep.py",
            "reachability, memo, target.prefixes)",
            "reachability, memo)",
            f"{SECOND}_sweep_with_a_second_owner_in_another_folder_deletes_nothing",
        ),
    ),
    Regression(
        "second-owner-in-a-hidden-folder",
        "reproduced with PyIceberg",
        "Another catalog writes its metadata to a folder whose name begins with `_`",
        "The pass reads the names of metadata files in hidden folders too",
        off(
            "removal/path_index.py",
            "(Kept.METADATA_FILE, Kept.HIDDEN),",
            "(Kept.METADATA_FILE, Kept.METADATA_FILE),",
            "removal/test_second_catalog.py::test_second_owner_with_a_hidden_metadata_folder_is_refused",
        ),
    ),
    Regression(
        "second-owner-older-than-the-log",
        "reproduced with PyIceberg",
        "The last commit of another catalog is older than the metadata log, which Iceberg trims",
        "The pass also reads the logs of the oldest metadata versions",
        off(
            "catalog/reachable_files.py",
            "range(_LOGS_FOLLOWED)",
            "range(0)",
            "removal/test_second_catalog.py::test_second_owner_older_than_the_log_of_the_pointer_is_refused",
        ),
    ),
    Regression(
        "prefix-without-a-slash",
        "apache/iceberg#17448, #16498",
        "The prefix `/ns/t` matches the files of `/ns/t_2`",
        "A path is below a prefix only if a slash follows the prefix",
        known(
            "orphans",
            "a prefix needs no slash",
            "core/model/test_location.py::test_within_means_below_with_a_slash",
        ),
    ),
    Regression(
        "files-outside-the-location",
        "apache/iceberg#12278, #7111",
        "Several tables share a data path, and nothing shows which table a file belongs to",
        "A prefix outside the location must be declared as the table's own",
        known(
            "orphans", "files elsewhere need no declaration", f"{SCAN}_files_elsewhere_need_a_declared_prefix"
        ),
    ),
    Regression(
        "two-schemes-of-one-store",
        "apache/iceberg#4194, #4346, apache/amoro#877, #1981",
        "The metadata says `s3://` and the listing says `s3a://`. Every file looks like an orphan",
        "Different schemes are refused unless the configuration declares them equal",
        known(
            "orphans",
            "schemes need no mapping",
            f"{SCAN}_scheme_without_mapping_is_refused_and_with_it_matches",
        ),
    ),
    Regression(
        "spellings-of-one-path",
        "apache/iceberg#2890",
        "A path contains `//` or `/./`, and a live file is not recognised",
        "Paths are compared by a key that is the same for all spellings",
        known(
            "orphans",
            "dot segments differ",
            "core/model/test_location.py::test_spellings_of_one_path_have_one_key",
        ),
    ),
    Regression(
        "files-in-flight",
        "StarRocks/starrocks#77394, apache/paimon#4779, delta-io/delta#1470",
        "Files of a long write are removed before the write commits",
        "A file stays until it is older than the policy's age by the store's clock",
        known(
            "orphans",
            "a file's age does not matter",
            f"{SCAN}_file_younger_than_the_age_by_the_stores_clock_stays",
        ),
    ),
    Regression(
        "age-below-the-floor",
        "delta-io/delta (VACUUM RETAIN 0 HOURS)",
        "A user sets the age to zero to try the removal",
        "An age below the minimum is refused",
        known("orphans", "the floor is no floor", f"{SCAN}_policy_below_the_floor_is_refused"),
    ),
    Regression(
        "clock-that-is-off",
        "earth-mover/icechunk#643, apache/iceberg#17285",
        "The age of files is computed by a clock that is ahead of the store's clock",
        "A difference of more than five minutes refuses the pass",
        known("orphans", "ages by this machine's clock", f"{SCAN}_clock_that_is_off_is_refused"),
    ),
    Regression(
        "clock-of-one-machine",
        "found in review",
        "The clock of a machine is 30 days ahead. 50 of 60 young snapshots and two refs expire",
        "Nothing is removed while the clocks of the machine, the ledger, the store and the table disagree",
        off(
            "core/decisions/rules.py",
            "    if situation.skew is None or operation not in REMOVING_OPERATIONS:\n",
            "    if True:\n",
            "loop/test_clocks.py::test_force_does_not_expire_by_clocks_that_disagree",
            "loop/test_clocks.py::test_table_updated_in_the_future_keeps_its_snapshots",
        ),
    ),
    Regression(
        "clock-set-before-the-swap",
        "found in review",
        "A clock is set between the plan of an expiry and its commit",
        "The gate reads all clocks again, including the store's",
        off(
            "loop/attempts/housekeeping_attempt.py",
            "    clocks = checked_clocks(context, state, store=True)\n",
            "    clocks = table_clocks(context, state, store=True)\n",
            "spark/commit/test_clocks.py::test_clock_set_after_the_plan_is_reported_at_the_gate",
        ),
    ),
    Regression(
        "clock-of-the-store",
        "found in review",
        "The machine and the ledger share a clock that is 30 days ahead",
        "An expiry also reads the store's clock",
        off(
            "core/removal/clock_skew.py",
            "    if clocks.store_ms is not None:\n",
            "    if False:\n",
            "loop/test_clocks.py::test_store_apart_from_the_machine_and_the_ledger_expires_nothing_and_counts_as_no_failure",
        ),
    ),
    Regression(
        "clock-set-while-files-move",
        "found in review",
        "A clock is set while an orphan scan moves files",
        "The pass reads the clocks again at each check of its lease",
        off(
            "loop/attempts/housekeeping_attempt.py",
            "    checked_clocks(context, state, store=False)\n",
            "",
            "removal/test_clocks.py::test_clock_set_while_files_are_moved_stops_the_pass",
        ),
    ),
    Regression(
        "clock-backwards",
        "found in review",
        "A clock was ahead and is set back. The program accepts the times that it recorded before as correct",
        "The ledger stores the newest time. Nothing is removed until the clocks reach that time again",
        off(
            "core/removal/clock_skew.py",
            "    if clocks.earlier.newest_ms - clocks.earliest_ms > MAX_SKEW_MS:\n",
            "    if False:\n",
            "loop/test_clocks.py::test_clock_that_moved_backwards_between_two_runs_expires_nothing_until_it_is_accepted",
        ),
    ),
    Regression(
        "boot-forgotten-by-another-machine",
        "the review of 0.1.0",
        "the boot of a machine that has stored no reading yet is forgotten when another machine stores its first: a clock "
        "that is set between counts as right",
        "only stored readings are forgotten by their age",
        off(
            "ledger/leases.py",
            "clock.c.newest_ms.between(1, newest_ms - _KEPT_MS - 1)",
            "clock.c.newest_ms < newest_ms - _KEPT_MS",
            "ledger/test_clock_readings.py::"
            "test_boot_that_was_kept_without_a_reading_stays_when_another_machine_forgets",
        ),
    ),
    Regression(
        "second-catalog-within-a-minute",
        "apache/iceberg#17213",
        "all commits of a second catalog lie within the tolerance of clocks, so their times do not show another line",
        "a metadata log that names a file outside the table's log shows a second line",
        off(
            "core/removal/orphan_rules.py",
            "    if committed := [path for path, _ in entries if path in unlogged]:\n",
            "    if committed := []:\n",
            "core/removal/test_unlogged_metadata.py::test_entry_that_is_itself_outside_our_log_shows_a_second_line",
            "removal/test_second_owner.py::"
            "test_version_that_follows_one_outside_the_log_within_the_tolerance_of_clocks_is_refused",
        ),
    ),
    Regression(
        "clock-of-everything",
        "found in review",
        "The machine, the ledger and the store share one clock, and it is set a month ahead",
        "The uptime of the machine shows that its clock was set",
        off(
            "core/removal/clock_skew.py",
            "        if abs(moved_ms) > MAX_SKEW_MS:\n",
            "        if False:\n",
            "loop/test_clocks.py::test_all_clocks_of_one_machine_set_a_month_ahead_expire_nothing",
        ),
    ),
    Regression(
        "clock-of-the-records",
        "found in review",
        "The ledger deletes old records by a wrong clock",
        "The ledger deletes no records while the clocks disagree",
        off(
            "loop/maintain.py",
            "    if skew is not None:\n",
            "    if False:\n",
            "loop/test_clocks.py::test_ledger_forgets_records_only_by_clocks_that_agree",
        ),
    ),
    Regression(
        "stale-metadata",
        "apache/iceberg#14440, #16324, apache/hudi#11600",
        "Live files are computed from cached metadata. Files committed after that look like orphans",
        "The pass reads the metadata after the listing, and again before it moves a file",
        known("orphans", "the metadata is read once", f"{TRASH}_file_committed_since_the_scan_stays"),
    ),
    Regression(
        "caching-catalog",
        "apache/iceberg#14440",
        "The cache of a catalog returns the table as it was an hour ago",
        "A session with a caching catalog is refused",
        off(
            "engines/spark/session/session.py",
            '        if conf.get(f"{key}.cache-enabled", "true").lower() != "false":\n',
            "        if False:\n",
            "spark/session/test_session.py::test_check_conf_unsafe_session_is_refused",
        ),
    ),
    Regression(
        "nothing-is-reachable",
        "apache/paimon#7710",
        "The walk over the metadata finds no file, so every file looks like an orphan",
        "The pass requires every live file in the listing",
        known("orphans", "live files need not be listed", f"{SCAN}_live_file_that_is_not_listed_is_refused"),
    ),
    Regression(
        "one-decoder-is-wrong",
        "apache/iceberg#5795, apache/amoro#1959",
        "The live files leave out one kind of file",
        "Two decoders must agree before a file is moved",
        known("orphans", "one decoder is enough", f"{SCAN}_decoders_that_disagree_are_refused"),
    ),
    Regression(
        "share-too-large",
        "apache/iceberg#4194",
        "A mistake in a path makes most files of a table look like orphans",
        "A share above the limit waits until a person approves exactly these files",
        known("orphans", "any share is normal", f"{TRASH}_abnormal_share_needs_the_digest_of_this_very_scan"),
    ),
    Regression(
        "statistics-not-counted",
        "apache/amoro#1959, apache/iceberg-go#835, apache/iceberg#17456",
        "Statistics files are removed",
        "Every file that the metadata names is reachable",
        known(
            "orphans",
            "statistics are not reached",
            "catalog/test_reachable_files.py::test_every_file_a_writer_left_is_reached",
        ),
    ),
    Regression(
        "old-snapshots-not-walked",
        "apache/iceberg#10982",
        "Files that only an older snapshot names are removed",
        "The pass reads every retained snapshot",
        known(
            "orphans",
            "only the head is walked",
            "catalog/test_reachable_files.py::test_every_file_a_writer_left_is_reached",
        ),
    ),
    Regression(
        "flink-manifests",
        "apache/amoro#930, #1181",
        "Manifests that a Flink job keeps for its next checkpoint are removed, and the job cannot restore",
        "The pass recognises them by their names and keeps them",
        known(
            "orphans",
            "state of Flink jobs may go",
            "core/removal/test_orphans.py::test_name_says_whether_a_file_stays",
        ),
    ),
    Regression(
        "flink-files",
        "apache/amoro#930, #1181",
        "The manifests of a Flink job stay, but the files that they name are removed. The restored job does "
        "not find them",
        "The pass reads pending manifests and counts their entries as reachable",
        known(
            "orphans",
            "files of pending manifests may go",
            f"{PENDING}_files_that_a_pending_manifest_names_are_no_orphans",
            f"{PENDING}_file_in_the_trash_that_a_manifest_names_comes_back",
        ),
    ),
    Regression(
        "flink-files-between-reads",
        "found in review",
        "A Flink job commits and deletes its manifest between two reads of a pass. Its files look like "
        "orphans",
        "The pass reads pending manifests before the metadata",
        known(
            "orphans",
            "pending manifests are read after the metadata",
            f"{PENDING}_manifest_that_its_job_commits_and_deletes_after_the_listing_loses_no_file",
        ),
    ),
    Regression(
        "flink-manifest-unreadable",
        "found in review",
        "A pending manifest that cannot be read is skipped. The files that it names look like orphans",
        "The pass ends with ICM-101 before it moves or deletes a file",
        known(
            "orphans",
            "a manifest that names no file is read",
            f"{PENDING}_pending_manifest_that_cannot_be_read_holds_the_pass",
        ),
    ),
    Regression(
        "flink-position-rolled-back",
        "found in review",
        "A commit of Flink is rolled back. Its manifest counts as committed, but the job will commit it "
        "again",
        "A manifest counts as committed only if every branch contains its checkpoint",
        known(
            "orphans",
            "any snapshot commits a manifest",
            "core/removal/test_pending_manifests.py::test_manifest_committed_by_a_snapshot_that_was_rolled_back_is_pending",
        ),
    ),
    Regression(
        "connect-files",
        "apache/iceberg#12357",
        "Kafka Connect has listed files in its control topic and not committed them. They are removed while "
        "the connector is stopped",
        "The age of a file counts from the last commit of the connector group",
        known(
            "orphans",
            "ages count from now where Kafka Connect writes",
            f"{PENDING}_age_counts_from_the_last_commit_of_kafka_connect",
        ),
    ),
    Regression(
        "current-metadata-removed",
        "linkedin/openhouse (Operations.deleteOrphanFiles)",
        "The current `metadata.json` looks like an orphan because of its scheme",
        "The pass never removes table metadata files",
        known(
            "orphans",
            "metadata files may go",
            "core/removal/test_orphans.py::test_name_says_whether_a_file_stays",
        ),
    ),
    Regression(
        "gone-for-good",
        "linkedin/openhouse, PostHog/posthog#78455",
        "Files removed by mistake cannot be restored",
        "Files move to a trash folder. A sweep deletes them days later, if they are still unreachable",
        known(
            "orphans",
            "the retention does not matter",
            f"{TRASH}_sweep_waits_for_the_hold_by_the_stores_clock",
        ),
    ),
    Regression(
        "reached-after-all",
        "StarRocks/starrocks#77394",
        "A slow writer commits a file after it was moved to the trash",
        "The sweep proves again that each path is unreachable, and restores the files that are reachable",
        known(
            "orphans",
            "a sweep does not prove again",
            f"{PUT_BACK}_what_is_reached_replaces_nothing_and_is_not_swept",
        ),
    ),
    Regression(
        "reached-before-the-hold-is-over",
        "reproduced here",
        "A slow writer commits a file after it was moved to the trash. Readers of the table fail until the "
        "hold ends, and passes that miss the file put the table into quarantine",
        "Each pass first restores the reachable files of all trash batches",
        known(
            "orphans",
            "a live file waits in the trash for the retention",
            f"{OPERATION}_file_committed_after_its_pass_is_back_after_the_next_whatever_the_hold",
        ),
    ),
    Regression(
        "killed-before-it-puts-back",
        "reproduced here",
        "A pass moves a file that a writer commits at the same time, and dies before it restores the file",
        "The next pass restores the file before it does anything else",
        known(
            "orphans",
            "a live file waits in the trash for the retention",
            f"{OPERATION}_file_committed_while_a_pass_dies_is_back_after_the_next",
        ),
    ),
    Regression(
        "deletes-that-only-log",
        "apache/iceberg#7127, #16444",
        "Failed deletes are only logged, and the files are reported as deleted",
        "A file counts as deleted only if the store no longer has it",
        off(
            "removal/sweep.py",
            "    return store.stat(line.trash_path) is None",
            "    return True",
            f"{TRASH}_sweep_counts_only_what_is_gone",
        ),
    ),
    Regression(
        "sweep-before-the-expiry",
        "apache/iceberg#3772",
        "Orphans are removed while an expiry still compares files",
        "A sweep waits until no snapshot is due to expire",
        known(
            "orphans",
            "snapshots need not have expired",
            f"{OPERATION}_nothing_is_swept_while_snapshots_are_to_expire",
        ),
    ),
    Regression(
        "owner-forbids-it",
        "apache/iceberg#2367, #13300, #17791",
        "A table created by SNAPSHOT removes the files of its source table",
        "`gc.enabled=false`, which SNAPSHOT sets, stops every removal from a table",
        known("orphans", "the owner may not forbid it", f"{SCAN}_table_whose_owner_forbids_it_is_refused"),
    ),
    Regression(
        "testing-switch-left-on",
        "Iceberg's DeleteOrphanFilesSparkAction",
        "`spark.testing` turns off Iceberg's own check of the age",
        "A session with `spark.testing` is refused",
        off(
            "engines/spark/session/session.py",
            "    if testing:\n",
            "    if False:\n",
            "spark/session/test_session.py::test_check_conf_unsafe_session_is_refused",
        ),
    ),
    # Expiry.
    Regression(
        "more-expires-than-was-decided",
        "apache/iceberg#13568, apache/amoro#4231",
        "The engine computes the snapshots to expire a second time and removes more than were decided",
        "The gate refuses to remove a snapshot that is not in the plan",
        off(
            "core/commits/expiry_rules.py",
            "    if removed := before.keys() - after.keys() - planned:\n",
            "    if removed := frozenset():\n",
            f"{EXPIRY}_change_beside_the_plan_is_refused",
        ),
    ),
    Regression(
        "branch-head-expired",
        "apache/iceberg-go#1842, apache/iceberg#12200",
        "The head snapshot of a branch or tag expires",
        "The gate refuses a change that leaves a ref without its snapshot",
        off(
            "core/commits/expiry_rules.py",
            '    if dangling := {int(ref["snapshot-id"]) for ref in expected.values()} & planned:\n',
            "    if missing := frozenset():\n",
            f"{EXPIRY}_ref_on_an_expiring_snapshot_is_refused",
        ),
    ),
    Regression(
        "held-since-the-plan",
        "apache/iceberg#10983",
        "A tag is set or a reader is registered between the plan and the commit",
        "The commit computes again which snapshots may expire",
        off(
            "core/commits/expiry_rules.py",
            "    if held:\n        yield Violation(Rule.RETENTION",
            "    if False:\n        yield Violation(Rule.RETENTION",
            f"{EXPIRY}_what_came_to_be_held_since_the_plan_is_stale",
        ),
    ),
    Regression(
        "removal-forbidden-meanwhile",
        "apache/iceberg#2367",
        "`gc.enabled` is turned off between the plan and the commit",
        "The gate reads the property again",
        off(
            "core/commits/expiry_rules.py",
            '    if not gc_enabled(base.get("properties") or {}):\n',
            "    if False:\n",
            f"{EXPIRY}_table_that_is_no_longer_the_planned_one_is_stale",
        ),
    ),
    Regression(
        "staged-rows-expire",
        "reproduced on Iceberg 1.10 (WAP)",
        "A snapshot staged by write-audit-publish expires before it is published, and its rows are lost",
        "Staged snapshots stay for the time that the policy sets",
        off(
            "core/model/other_writers.py",
            "        if wap_id is None or s.snapshot_id in on_branches:\n",
            "        if True:\n",
            f"{HOLDS}_staged_snapshot_stays_with_what_it_was_staged_on",
        ),
    ),
    Regression(
        "checkpoint-expires",
        "apache/iceberg#5846, #12357, apache/amoro#3322",
        "Flink or Kafka Connect does not find its position in the history and commits the same data a "
        "second time",
        "The newest position of each writer stays",
        off(
            "core/decisions/snapshot_retention.py",
            "    if _FLINK_CHECKPOINT in summary:\n",
            "    if False:\n",
            f"{HOLDS}_newest_position_of_a_writer_stays_with_the_way_to_it",
        ),
    ),
    Regression(
        "one-position-for-all-writers",
        "apache/iceberg#5846",
        "Two jobs write to one table, and only the newer position of the two stays",
        "A writer is identified by job and operator",
        off(
            "core/decisions/snapshot_retention.py",
            'yield RetainerKind.FLINK, "/".join(summary[k] for k in _FLINK_IDENTITY if k in summary)',
            'yield RetainerKind.FLINK, "flink"',
            f"{HOLDS}_each_writer_has_its_own_newest_position",
        ),
    ),
    Regression(
        "reader-loses-its-place",
        "apache/iceberg#9504, #12639",
        "The offset of a streaming reader expires",
        "A registered reader holds the snapshots that it has not read",
        off(
            "core/decisions/snapshot_retention.py",
            "                _end(r.seen_ms, policy.reader_max_silence_seconds),\n",
            "                0,\n",
            f"{HOLDS}_reader_with_an_age_holds_until_it_has_been_silent_too_long",
        ),
    ),
    Regression(
        "paused-writer-commits-twice",
        "apache/iceberg#5846, apache/amoro#3322",
        "a Flink job is paused for longer than a week; its position expires and the job commits its data twice",
        "no position of a writer lapses unless the policy sets an age",
        off(
            "core/policy/housekeeping.py",
            "    writer_state_max_age_seconds: int | None = key(\n        None,\n"
            '        "age at which the last snapshot',
            "    writer_state_max_age_seconds: int | None = key(\n        7 * DAY_SECONDS,\n"
            '        "age at which the last snapshot',
            f"{HOLDS}_position_of_a_writer_never_lapses_without_an_age",
            "spark/commit/test_expire_snapshots.py::test_streaming_writers_find_their_state_after_a_full_cycle[2]",
        ),
    ),
    Regression(
        "silent-reader-loses-its-place",
        "apache/iceberg#9504, #12639",
        "a registered reader reports nothing for a week; what it has not read expires",
        "no reader lapses unless the policy sets an age",
        off(
            "core/policy/housekeeping.py",
            "    reader_max_silence_seconds: int | None = key(\n        None,\n",
            "    reader_max_silence_seconds: int | None = key(\n        7 * DAY_SECONDS,\n",
            f"{HOLDS}_reader_holds_for_ever_however_silent",
            "spark/commit/test_expire_snapshots.py::test_reader_that_is_silent_for_a_month_keeps_what_it_has_not_read",
        ),
    ),
    Regression(
        "plan-loses-its-snapshot",
        "apache/iceberg#17202",
        "The snapshot that a running rewrite was planned on expires",
        "A running plan holds its snapshot",
        off(
            "core/decisions/snapshot_retention.py",
            "        *work,\n",
            "",
            f"{HOLDS}_running_plan_or_red_commit_holds_its_snapshot_and_all_since",
        ),
    ),
    Regression(
        "two-retention-settings",
        "delta-io/delta#1589, #140",
        "Two settings give the retention, and the shorter one wins",
        "The longest retention of all sources applies",
        off(
            "core/decisions/snapshot_retention.py",
            "        age_ms = max(\n            self._policy.max_snapshot_age_seconds * 1000, _number(self._state, _SNAPSHOT_AGE_PROPERTY) or 0\n        )",
            "        age_ms = self._policy.max_snapshot_age_seconds * 1000",
            f"{RETENTION}_table_property_keeps_more_and_never_less",
        ),
    ),
    Regression(
        "slow-clock",
        "apache/iceberg#1110",
        "A writer's clock was slow. Its snapshot expires from the middle of a branch",
        "A branch keeps every snapshot from its head to its oldest kept snapshot",
        off(
            "core/decisions/snapshot_retention.py",
            "chain[: max(ref_min_count, *young, 1)]",
            "[s for n, s in enumerate(chain, 1) if n <= ref_min_count or n in young]",
            f"{RETENTION}_snapshot_of_a_slow_clock_makes_no_hole_in_the_branch",
        ),
    ),
    Regression(
        "session-time-zone",
        "reproduced on Spark 3.5",
        '"An hour ago" is read in the session\'s time zone, and the youngest snapshots expire',
        "Times are epoch milliseconds. Sessions in another time zone than UTC are refused",
        off(
            "engines/spark/session/session.py",
            '        "spark.sql.session.timeZone": ("", "UTC"),\n',
            "",
            "spark/session/test_session.py::test_check_conf_unsafe_session_is_refused",
        ),
    ),
    Regression(
        "key-with-an-empty-segment",
        "our trial on S3",
        "A key contains `//`: S3 returns a folder as its own subfolder, and the listing by folders does not end",
        "One recursive listing per prefix; a file with `//` in its path stays",
        off(
            "catalog/arrow_store.py",
            _RECURSIVE,
            _ONE_FOLDER,
            f"{STORE}_key_with_an_empty_segment_is_listed_once_by_one_request",
        ),
    ),
    Regression(
        "folders-without-objects",
        "our trial on GCS",
        "GCS returns no subfolders without objects of their own: a pass finds no file, and reports 0 orphans",
        "One recursive listing per prefix; a listing that lacks a reachable file is refused",
        off(
            "catalog/arrow_store.py",
            _RECURSIVE,
            _ONE_FOLDER,
            f"{STORE}_file_below_a_folder_without_an_object_of_its_own_is_listed",
        ),
    ),
    Regression(
        "released-file-that-is-live",
        "found in review",
        "a manifest that stays holds a file of a removed manifest",
        "the live files of all retained manifests are read before a released file is moved",
        known(
            "orphans",
            "released files need no proof",
            f"{RELEASED}_released_files_are_those_that_the_removed_snapshots_alone_reference",
        ),
    ),
    Regression(
        "released-path-written-again",
        "found in review",
        "a writer uses the path of a released file again and has not committed",
        "a released file has the size that its manifest states and is no younger than its snapshot",
        known(
            "orphans",
            "a released path is a file",
            f"{RELEASED}_file_written_again_at_a_released_path_waits_for_an_orphan_pass",
        ),
    ),
    Regression(
        "released-file-misread",
        "found in review",
        "a decoder misses entries of a manifest that stays",
        "a second decoder reads the metadata before a released file is moved",
        known(
            "orphans",
            "one decoder is enough for released files",
            f"{RELEASED}_release_waits_where_two_decoders_disagree",
        ),
    ),
    Regression(
        "released-file-of-two-owners",
        "found in review",
        "another catalog commits to the table, and its files are released by this one",
        "metadata files outside the log refuse the removal of released files",
        known(
            "orphans",
            "released files have one owner",
            f"{RELEASED}_release_of_a_table_with_a_second_owner_waits",
        ),
    ),
    Regression(
        "released-during-the-moves",
        "found in review",
        "a writer registers a file while released files are moved",
        "the metadata are read again after the moves, and files that they reference are restored",
        known(
            "orphans",
            "what is registered during the moves of released files stays away",
            f"{RELEASED}_file_that_is_registered_during_the_moves_is_restored",
        ),
    ),
    Regression(
        "held-in-place-and-registered-again",
        "found in review",
        "a released file stays at its path during the retention, and a writer registers it again",
        "the current metadata are read before the deletion, and what they reference stays",
        known(
            "orphans",
            "files retained in place are proved once",
            f"{IN_PLACE}_file_registered_again_during_the_hold_in_place_stays",
        ),
    ),
    Regression(
        "registered-during-the-deletion-in-place",
        "found in review",
        "a writer registers a file while files that were retained in place are deleted",
        "the catalog's pointer is looked at before every 1,000 files, and a changed table is read again",
        known(
            "orphans",
            "what is registered during the deletion in place is gone",
            f"{IN_PLACE}_file_registered_during_the_deletion_in_place_stays",
        ),
    ),
    Regression(
        "held-in-place-and-released-again",
        "found in review",
        "a file is registered again, and a second expiry releases it: the older mark deletes it before the second hold",
        "a file of a younger mark waits for the retention of that mark",
        known(
            "orphans",
            "a release of this run does not hold its files",
            f"{IN_PLACE}_file_released_again_waits_for_the_younger_hold",
        ),
    ),
    Regression(
        "release-lost-in-a-crash",
        "found in review",
        "the process dies after the commit of an expiry, and nothing knows its files",
        "the release is stored before the commit",
        known(
            "orphans",
            "a release is stored after the commit",
            f"{RELEASE}_release_is_stored_before_the_commit_with_the_snapshots_that_go",
        ),
    ),
    Regression(
        "release-cut-off-by-a-crash",
        "found in review",
        "the process dies while released files are moved, and manifests that name the others are gone",
        "files that name others go last, and the release stays until all are moved",
        known(
            "orphans",
            "lists go before what they name",
            f"{RELEASED}_removal_that_is_killed_at_any_change_is_finished_by_the_next",
        ),
    ),
    Regression(
        "released-with-a-lost-ref",
        "found in review",
        "an expiry takes a tag with it, and its files go",
        "no file of an expiry that is held for a person is removed",
        known(
            "orphans",
            "files of a lost expiry may go",
            f"{RELEASE}_expiry_that_lost_a_ref_releases_no_file",
        ),
    ),
    Regression(
        "released-by-an-unknown-commit",
        "found in review",
        "it is unknown whether an expiry has committed, and its files are removed",
        "no file of an unsettled expiry is removed",
        known(
            "orphans",
            "files of an unsettled expiry may go",
            f"{RELEASE}_unsettled_expiry_keeps_its_files_from_an_orphan_pass",
        ),
    ),
    Regression(
        "released-files-ask-a-person",
        "found in review",
        "the first expiry of a table makes most files orphans, and the pass waits for a person",
        "files of a stored release do not count into the share that needs an approval",
        known(
            "orphans",
            "released files are orphans",
            f"{RELEASED}_stored_release_is_no_share_of_orphans",
        ),
    ),
    Regression(
        "known-ref-moved-beside-an-expiry-on-rest",
        "found in review; apache/iceberg-go#672",
        "A tag moves to an expiring snapshot between the check and the request. The REST catalog removes it",
        "The request of an expiry requires every known ref where the gate saw it",
        off(
            "engines/spark/commit/table_operations.py",
            "requirements_of(ids, ids.refs if all_refs else ())",
            "requirements_of(ids)",
            f"{REST}_known_tag_that_moves_to_an_expiring_snapshot_stays",
        ),
    ),
    Regression(
        "schema-changed-beside-a-commit-on-rest",
        "found in review",
        "Schema, spec or sort order change between the check and the request. The REST catalog does not compare "
        "them",
        "Each request requires their ids as the gate saw them",
        off(
            "engines/spark/commit/table_operations.py",
            "    requirements = _parsed(bridge, requirements_of(ids, ids.refs if all_refs else ()))\n",
            "    requirements = bridge.list(())\n",
            f"{REST}_commit_is_refused_where_schema_spec_or_sort_order_changed",
        ),
    ),
    Regression(
        "ref-lost-where-no-log-shows-it",
        "found in review",
        "An expiry on a REST catalog removes a new tag. The metadata have no log, so nothing shows it, and the "
        "files of the tag's snapshot move",
        "Without a metadata log, an expiry on a REST catalog stores no release",
        off(
            "loop/attempts/housekeeping_attempt.py",
            '        if not catalog.checks_commit_base and not document.get("metadata-log"):\n',
            "        if False:\n",
            f"{RELEASE}_expiry_whose_commit_no_metadata_log_will_show_releases_nothing",
        ),
    ),
    Regression(
        "vended-credentials-expire-in-a-pass",
        "found in review",
        "A REST catalog vends credentials for an hour. An orphan scan takes longer and fails at each attempt",
        "The FileIO of a table with vended credentials loads the table again before they expire",
        off(
            "catalog/rights.py",
            "            if self._now_ms() >= self._due_ms:\n",
            "            if False:\n",
            "catalog/test_vended_credentials.py::"
            "test_store_of_a_long_pass_takes_new_credentials_before_the_old_ones_expire",
        ),
    ),
    Regression(
        "manifest-moved-beside-its-files",
        "found in review",
        "Released files move many at once. The process dies: a manifest is in the trash, and files that only it names "
        "are not",
        "Files that move at once are of one kind, and kinds move one after the other",
        off(
            "removal/trash.py",
            "lease.require, progress, _kind)",
            "lease.require, progress)",
            f"{RELEASED}_files_that_name_others_move_after_all_of_them_where_many_move_at_once",
        ),
    ),
    Regression(
        "lease-lost-while-many-files-move",
        "found in review",
        "Files move many at once, and the lease is checked once before all of them",
        "The lease is checked before each group of files that move at once",
        off(
            "removal/store_requests.py",
            "                require_lease()\n",
            "                pass\n",
            "removal/test_parallel.py::test_lost_lease_stops_before_the_next_group",
        ),
    ),
    Regression(
        "copy-by-parts-is-not-whole",
        "found in review",
        "An object above 5 GiB is copied in parts, the copy is not whole, and the object is deleted",
        "The object is deleted only after a copy of its size, any other copy is deleted",
        off(
            "catalog/arrow_store.py",
            "        if copied_bytes != size_bytes:\n",
            "        if False:\n",
            "catalog/test_large_objects.py::test_copy_by_parts_of_another_size_leaves_the_object_and_no_copy",
        ),
    ),
    Regression(
        "bulk-deletion-of-a-live-file",
        "found in review",
        "The sweep deletes 1,000 files per request, and one of them is referenced by now or is another file",
        "A file that metadata reference, or whose size differs from the manifest, is in no request",
        off(
            "removal/store_requests.py",
            "if not reached and size == line.size_bytes]",
            "if True]",
            f"{BULK}_referenced_file_file_of_another_size_and_unlisted_file_are_in_no_request",
        ),
    ),
    Regression(
        "lease-lost-during-bulk-deletions",
        "found in review",
        "A run that lost its lease goes on to delete 1,000 files per request",
        "The lease is checked before each request",
        off(
            "removal/store_requests.py",
            "    require_lease()\n    refused",
            "    refused",
            f"{BULK}_lost_lease_stops_before_the_next_request",
        ),
    ),
    Regression(
        "bulk-deletion-without-effect",
        "found in review",
        "The store answers that it deleted a file and still has it, and the sweep deletes the manifest that names it",
        "The folder is listed again before the manifest is deleted",
        off(
            "removal/store_requests.py",
            "            if listing.is_gone(file.path):\n",
            "            if False:\n",
            f"{BULK}_file_that_is_still_listed_after_its_deletion_is_an_error",
        ),
    ),
    Regression(
        "files-of-a-table-that-cannot-be-read",
        "found in review",
        "A table cannot be read and has written below another table since it was last read",
        "Files that are younger than the last look at a table that cannot be read stay",
        off(
            "removal/orphan_scan.py",
            "        if owner.current_until_ms is not None:\n",
            "        if False:\n",
            f"{PASSES}_files_newer_than_the_last_claim_of_an_unreadable_table_stay[400-0]",
        ),
    ),
    Regression(
        "unreadable-table-that-moved",
        "found in review",
        "A table that cannot be read has a metadata file outside the locations that are known of it",
        "Such a table refuses the passes of all tables",
        off(
            "catalog/location_owners.py",
            'f"{folder}/".startswith(',
            'True or f"{folder}/".startswith(',
            f"{PASSES}_unreadable_neighbour_that_moved_since_its_last_claim_stops_the_pass",
        ),
    ),
    Regression(
        "listing-of-an-earlier-pass",
        "found in review",
        "A pass lists files and stops. They are committed before the next pass, which moves what the first one listed",
        "The pass that moves reads the metadata after the last file is listed, and judges all files by them",
        off(
            "removal/orphan_scan.py",
            "        started_ms = min(started_ms, listing.begin(started_ms))\n",
            "        started_ms = min(started_ms, listing.begin(started_ms))\n"
            "        was = globals().setdefault(target.state.uuid, list(reachability.paths()))\n"
            "        reachability.paths = lambda: iter(was)\n"
            "        reachability.second_opinion = lambda most: iter(())\n",
            f"{TIME}_file_committed_between_two_passes_of_a_listing_stays",
        ),
    ),
    Regression(
        "age-during-a-long-listing",
        "found in review",
        "A file of a write under way passes the minimum age while a listing is continued over several passes",
        "Ages count from the begin of the listing",
        off(
            "removal/orphan_scan.py",
            "        started_ms = min(started_ms, listing.begin(started_ms))\n",
            "        listing.begin(started_ms)\n",
            f"{TIME}_file_that_grew_old_during_a_listing_stays",
        ),
    ),
    Regression(
        "commit-while-a-pass-stops",
        "found in review",
        "A file is committed after its move, and the pass stops for time before its end",
        "A pass that stops restores the files that were committed since",
        off(
            "removal/trash.py",
            "            stopped = why\n",
            "            raise\n",
            f"{TIME}_file_committed_while_a_stopped_pass_moves_is_put_back",
        ),
    ),
    Regression(
        "gap-in-a-stored-listing",
        "found in review",
        "A part of a stored listing is torn, is lost or belongs to another table",
        "A stored listing that is not whole is deleted, and the pass lists all files",
        off(
            "removal/stored_listing.py",
            "self.resumed = bool(self._parts) and self._is_usable(now_ms)",
            "self.resumed = bool(self._parts)",
            f"{TIME}_stored_listing_that_is_not_whole_is_discarded",
        ),
    ),
    Regression(
        "audit-record-comes-back",
        "found while retention was built",
        "The ledger keeps records whose entries retention removed from the audit log. The next run appends them again, "
        "with new numbers and times",
        "Records older than the first entry of a log that was pruned are not appended",
        off(
            "integrations/audit/log.py",
            "if known else [r for r in records if r.ended_ms >= since_ms]",
            "if known else records",
            "audit/test_retention.py::test_ledger_with_older_records_only_appends_none_of_them",
        ),
    ),
    Regression(
        "decision-of-before-the-work",
        "found while tables were assessed",
        "An operation decides on an assessment that an earlier operation of the same run has made out of date",
        "An operation that takes the lease drops the assessment that the others shared",
        off(
            "loop/maintain.py",
            "    cache.forget()\n",
            "",
            "loop/test_assessment.py::test_operation_after_work_is_assessed_again",
        ),
    ),
    Regression(
        "first-failures-are-not-counted",
        "a trial with a real Prometheus",
        "A table fails three times and never before. Its counter appears with a value, `increase()` does not count that "
        "value, and the alert on repeated failures stays silent",
        "A counter that is new in a process that is scraped is zero for 75 seconds",
        off(
            "integrations/telemetry/samples.py",
            "self._totals.copy(self._zero_until)",
            "self._totals.copy()",
            "telemetry/test_ledger_totals.py::test_counter_that_appears_later_is_zero_until_every_scrape_has_seen_it",
        ),
    ),
    Regression(
        "audit-retention-hides-a-cut",
        "found in review",
        "A writer cuts the front of the audit log. The next retention excuses the missing entries by its own entry",
        "Retention keeps everything if entries before the first one are gone that no retention removed",
        off(
            "integrations/audit/folder.py",
            "    _check_front(folder, names)\n",
            "",
            "audit/test_retention.py::test_front_that_was_cut_is_not_made_right_by_the_next_retention",
        ),
    ),
    Regression(
        "audit-forged-retention",
        "found in review",
        "An entry of retention names a later entry than itself, and `audit verify` excuses every missing entry, or ends "
        "with a traceback because it names no number",
        "Only an entry that names an earlier one excuses missing entries",
        off(
            "integrations/audit/chain.py",
            " and type(first_kept) is int and 1 < first_kept < entry.sequence",
            "",
            "audit/test_retention.py::test_retention_entry_that_names_a_later_entry_or_no_number_excuses_nothing",
        ),
    ),
)
