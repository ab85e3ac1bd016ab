"""Regressions of removing: live files taken for orphans, history that somebody needed."""

from __future__ import annotations

from iceberg_maint_tests.regressions.regression import Regression, known, off

SCAN, TRASH, PUT_BACK, OPERATION, SECOND, PENDING = (
    f"orphans/test_{name}.py::test"
    for name in ("scan", "trash", "restore", "orphan_pass", "second_catalog", "pending_manifests")
)
RETENTION = "core/decisions/test_retention.py::test"
HOLDS = "core/decisions/test_retention_holds.py::test"
EXPIRY = "core/commits/test_expire_snapshots.py::test"

REMOVING = (
    Regression(
        "table-below-another",
        "apache/iceberg#17213, #4265, apache/amoro#4292",
        "one of two tables whose locations nest is cleaned: the other's files are gone",
        "no prefix is cleaned that another table writes to",
        known("orphans", "a table below ours is none", f"{SCAN}_location_of_another_table_is_refused"),
    ),
    Regression(
        "table-that-has-moved-away",
        "apache/iceberg#17213",
        "a table whose location or metadata path is elsewhere by now has left metadata below a location that is cleaned",
        "every folder that another table's metadata file names a file in counts as that table's",
        known(
            "orphans",
            "a neighbour has files where it writes only",
            f"{OPERATION}_metadata_of_another_table_that_stayed_below_ours_stops_the_pass",
        ),
    ),
    Regression(
        "table-in-no-catalog",
        "apache/iceberg#17213",
        "a table that no catalog lists any more lies below a location that is cleaned",
        "the UUID in every metadata file below it is looked at",
        known(
            "orphans",
            "metadata of tables in no catalog is none",
            f"{SCAN}_metadata_of_a_table_in_no_catalog_is_refused",
        ),
    ),
    Regression(
        "table-in-a-second-catalog",
        "apache/iceberg#17213, apache/amoro#4292",
        "the same table is in two catalogs, one of them is not configured and commits: what its pointer reaches goes",
        "metadata files outside the log are compared with the pointer, and newer ones refuse the pass",
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
        "two catalogs commit to one table in turn, or one goes on from a restored pointer: each removes the other's files",
        "a version outside the log that follows another one outside it refuses the pass",
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
        "another catalog commits files that are in the trash of this one by then",
        "before anything is deleted the table's prefixes are listed and compared again",
        known(
            "orphans",
            "a sweep does not ask for a second owner",
            f"{SECOND}_sweep_of_a_table_that_another_catalog_commits_to_deletes_nothing",
        ),
    ),
    Regression(
        "second-owner-in-another-folder",
        "reproduced with PyIceberg",
        "the sweep looks for another catalog's metadata only in the folders of this catalog's log",
        "the sweep lists the table's prefixes before it deletes",
        off(
            "orphans/trash.py",
            "reachability, memo, target.prefixes)",
            "reachability, memo)",
            f"{SECOND}_sweep_with_a_second_owner_in_another_folder_deletes_nothing",
        ),
    ),
    Regression(
        "second-owner-in-a-hidden-folder",
        "reproduced with PyIceberg",
        "another catalog writes its metadata to a folder whose name begins with `_`",
        "metadata names in hidden folders are read",
        off(
            "orphans/path_index.py",
            "(Kept.METADATA_FILE, Kept.HIDDEN),",
            "(Kept.METADATA_FILE, Kept.METADATA_FILE),",
            "orphans/test_second_catalog.py::test_second_owner_with_a_hidden_metadata_folder_is_refused",
        ),
    ),
    Regression(
        "second-owner-older-than-the-log",
        "reproduced with PyIceberg",
        "another catalog's last commit is older than the metadata log, which Iceberg trims",
        "the logs of the oldest versions are followed",
        off(
            "catalog/reachable_files.py",
            "range(_LOGS_FOLLOWED)",
            "range(0)",
            "orphans/test_second_catalog.py::test_second_owner_older_than_the_log_of_the_pointer_is_refused",
        ),
    ),
    Regression(
        "prefix-without-a-slash",
        "apache/iceberg#17448, #16498",
        "`/ns/t` matches the files of `/ns/t_2`",
        "paths are compared below the prefix and a slash",
        known(
            "orphans",
            "a prefix needs no slash",
            "core/model/test_location.py::test_within_means_below_with_a_slash",
        ),
    ),
    Regression(
        "files-outside-the-location",
        "apache/iceberg#12278, #7111",
        "tables share a data path, and whose a file is cannot be told",
        "files elsewhere need a prefix that is declared to be the table's own",
        known(
            "orphans", "files elsewhere need no declaration", f"{SCAN}_files_elsewhere_need_a_declared_prefix"
        ),
    ),
    Regression(
        "two-schemes-of-one-store",
        "apache/iceberg#4194, #4346, apache/amoro#877, #1981",
        "metadata says `s3://`, the listing `s3a://`: every file is an orphan",
        "schemes that differ are refused unless they are declared equal",
        known(
            "orphans",
            "schemes need no mapping",
            f"{SCAN}_scheme_without_mapping_is_refused_and_with_it_matches",
        ),
    ),
    Regression(
        "spellings-of-one-path",
        "apache/iceberg#2890",
        "`//` and `/./` in a path: a live file is not recognised",
        "paths are compared by a key that all spellings have in common",
        known(
            "orphans",
            "dot segments differ",
            "core/model/test_location.py::test_spellings_of_one_path_have_one_key",
        ),
    ),
    Regression(
        "files-in-flight",
        "StarRocks/starrocks#77394, apache/paimon#4779, delta-io/delta#1470",
        "files of a write that takes long are removed before it commits",
        "a file stays until it is older than the policy's age, by the store's clock",
        known(
            "orphans",
            "a file's age does not matter",
            f"{SCAN}_file_younger_than_the_age_by_the_stores_clock_stays",
        ),
    ),
    Regression(
        "age-below-the-floor",
        "delta-io/delta (VACUUM RETAIN 0 HOURS)",
        "somebody sets the age to nothing to see it work",
        "an age below the floor is refused",
        known("orphans", "the floor is no floor", f"{SCAN}_policy_below_the_floor_is_refused"),
    ),
    Regression(
        "clock-that-is-off",
        "earth-mover/icechunk#643, apache/iceberg#17285",
        "ages by a clock that is ahead of the store's",
        "a skew of more than five minutes is refused",
        known("orphans", "ages by this machine's clock", f"{SCAN}_clock_that_is_off_is_refused"),
    ),
    Regression(
        "clock-of-one-machine",
        "issue 12, line 4",
        "a machine's clock is 30 days ahead: 50 of 60 young snapshots and two refs expire",
        "nothing is removed where the clocks of machine, ledger, store and table disagree",
        off(
            "core/decisions/housekeeping.py",
            "    if stop is None and doubt is not None and operation in REMOVING_OPERATIONS:\n",
            "    if False:\n",
            "runner/test_clocks.py::test_force_does_not_expire_by_clocks_that_disagree",
            "runner/test_clocks.py::test_table_updated_in_the_future_keeps_its_snapshots",
        ),
    ),
    Regression(
        "clock-set-before-the-swap",
        "issue 12, line 4",
        "a clock is set between the plan of an expiry and its commit",
        "the commit gate reads all clocks again, the store's included",
        off(
            "runner/housekeeping.py",
            "    clocks = checked_clocks(runtime, state, store=True)\n",
            "    clocks = table_clocks(runtime, state, store=True)\n",
            "spark/commit/test_clocks.py::test_clock_set_after_the_plan_is_told_at_the_gate",
        ),
    ),
    Regression(
        "clock-of-the-store",
        "issue 12, line 4",
        "machine and ledger share a clock that is 30 days ahead",
        "an expiry asks the store for its clock",
        off(
            "core/removal/clock_agreement.py",
            "    if clocks.store_ms is not None:\n",
            "    if False:\n",
            "runner/test_clocks.py::test_store_apart_from_the_machine_and_the_ledger_expires_nothing_and_counts_as_no_failure",
        ),
    ),
    Regression(
        "clock-set-while-files-move",
        "issue 12, line 4",
        "a clock is set while an orphan pass moves files",
        "the clocks are read again whenever the pass asks for its lease",
        off(
            "runner/housekeeping.py",
            "    checked_clocks(runtime, state, store=False)\n",
            "",
            "orphans/test_clocks.py::test_clock_set_while_files_are_moved_stops_the_pass",
        ),
    ),
    Regression(
        "clock-backwards",
        "issue 12, line 4",
        "a clock is put back, and dates of the future are taken for right",
        "the ledger notes the newest time, and nothing is removed before it is reached again",
        off(
            "core/removal/clock_agreement.py",
            "    if clocks.mark.newest_ms - clocks.earliest_ms > MAX_SKEW_MS:\n",
            "    if False:\n",
            "runner/test_clocks.py::test_clock_that_moved_backwards_between_two_runs_expires_nothing_until_it_is_accepted",
        ),
    ),
    Regression(
        "boot-forgotten-by-another-machine",
        "the review of 0.1.0",
        "the boot of a machine that has stored no reading yet is forgotten when another machine stores its first: a clock "
        "that is set between counts as right",
        "only stored readings are forgotten by their age",
        off(
            "ledger/clock_marks.py",
            "clock.c.newest_ms.between(1, newest_ms - _KEPT_MS - 1)",
            "clock.c.newest_ms < newest_ms - _KEPT_MS",
            "ledger/test_clock_marks.py::"
            "test_boot_that_was_kept_without_a_reading_stays_when_another_machine_forgets",
        ),
    ),
    Regression(
        "second-catalog-within-a-minute",
        "apache/iceberg#17213",
        "all commits of a second catalog lie within the tolerance of clocks, so their times do not show another line",
        "a metadata log that names a file outside the table's log shows a second line",
        off(
            "core/removal/unlogged_metadata.py",
            "    if committed := [path for path, _ in entries if path in unlogged]:\n",
            "    if committed := []:\n",
            "core/removal/test_unlogged_metadata.py::test_entry_that_is_itself_outside_our_log_shows_a_second_line",
            "orphans/test_second_owner.py::"
            "test_version_that_follows_one_outside_the_log_within_the_tolerance_of_clocks_is_refused",
        ),
    ),
    Regression(
        "clock-of-everything",
        "issue 12, line 4",
        "machine, ledger and store share one clock, which is set a month ahead",
        "the uptime of the machine tells that its clock was set",
        off(
            "core/removal/clock_agreement.py",
            "        if abs(moved_ms) > MAX_SKEW_MS:\n",
            "        if False:\n",
            "runner/test_clocks.py::test_all_clocks_of_one_machine_set_a_month_ahead_expire_nothing",
        ),
    ),
    Regression(
        "clock-of-the-records",
        "issue 12, line 4",
        "the ledger forgets its records by a clock that is wrong",
        "the ledger forgets nothing while clocks disagree",
        off(
            "runner/maintain.py",
            "    if doubt is not None:\n",
            "    if False:\n",
            "runner/test_clocks.py::test_ledger_forgets_records_only_by_clocks_that_agree",
        ),
    ),
    Regression(
        "stale-metadata",
        "apache/iceberg#14440, #16324, apache/hudi#11600",
        "live files are worked out from cached metadata: what was committed since is an orphan",
        "the metadata is read after the listing and again before anything moves",
        known("orphans", "the metadata is read once", f"{TRASH}_file_committed_since_the_scan_stays"),
    ),
    Regression(
        "caching-catalog",
        "apache/iceberg#14440",
        "a catalog's cache gives the table of an hour ago",
        "a session with a caching catalog is refused",
        off(
            "spark/session/session.py",
            '        if conf.get(f"{key}.cache-enabled", "true").lower() != "false":\n',
            "        if False:\n",
            "spark/session/test_session.py::test_check_conf_unsafe_session_is_refused",
        ),
    ),
    Regression(
        "nothing-is-reachable",
        "apache/paimon#7710",
        "the walk over the metadata finds nothing: all is orphan",
        "every live file must be among those listed",
        known("orphans", "live files need not be listed", f"{SCAN}_live_file_that_is_not_listed_is_refused"),
    ),
    Regression(
        "one-decoder-is-wrong",
        "apache/iceberg#5795, apache/amoro#1959",
        "a kind of file is not counted among the live ones",
        "two decoders must agree before a file moves",
        known("orphans", "one decoder is enough", f"{SCAN}_decoders_that_disagree_are_refused"),
    ),
    Regression(
        "share-too-large",
        "apache/iceberg#4194",
        "a mistake in a path makes most of a table an orphan",
        "more than the usual share waits until a person approves these very files",
        known("orphans", "any share is normal", f"{TRASH}_abnormal_share_needs_the_digest_of_this_very_scan"),
    ),
    Regression(
        "statistics-not-counted",
        "apache/amoro#1959, apache/iceberg-go#835, apache/iceberg#17456",
        "statistics files are removed",
        "all that metadata names is reached",
        known(
            "orphans",
            "statistics are not reached",
            "catalog/test_reachable_files.py::test_every_file_a_writer_left_is_reached",
        ),
    ),
    Regression(
        "old-snapshots-not-walked",
        "apache/iceberg#10982",
        "files that only an older snapshot names are removed",
        "every retained snapshot is walked",
        known(
            "orphans",
            "only the head is walked",
            "catalog/test_reachable_files.py::test_every_file_a_writer_left_is_reached",
        ),
    ),
    Regression(
        "flink-manifests",
        "apache/amoro#930, #1181",
        "manifests that a Flink job keeps for its next checkpoint are removed: it cannot restore",
        "they are told by their names and stay",
        known(
            "orphans",
            "state of Flink jobs may go",
            "core/removal/test_orphans.py::test_name_says_whether_a_file_stays",
        ),
    ),
    Regression(
        "flink-files",
        "apache/amoro#930, #1181",
        "the manifests of a Flink job stay, the files that they name are removed: the job that is restored does not "
        "find them",
        "the pass reads pending manifests and counts their entries as reached",
        known(
            "orphans",
            "files of pending manifests may go",
            f"{PENDING}_files_that_a_pending_manifest_names_are_no_orphans",
            f"{PENDING}_file_in_the_trash_that_a_manifest_names_comes_back",
        ),
    ),
    Regression(
        "flink-files-between-reads",
        "review",
        "a Flink job commits and deletes its manifest between two reads of a pass: its files look orphaned",
        "pending manifests are read before the metadata",
        known(
            "orphans",
            "pending manifests are read after the metadata",
            f"{PENDING}_manifest_that_its_job_commits_and_deletes_after_the_listing_loses_no_file",
        ),
    ),
    Regression(
        "flink-manifest-unreadable",
        "review",
        "a pending manifest that cannot be read is passed over: the files that it names look orphaned",
        "the pass ends with ICM-101 before a file is moved or deleted",
        known(
            "orphans",
            "a manifest that names no file is read",
            f"{PENDING}_pending_manifest_that_cannot_be_read_holds_the_pass",
        ),
    ),
    Regression(
        "flink-position-rolled-back",
        "review",
        "a commit of Flink is rolled back: the manifest that the job commits again counts as committed",
        "a manifest counts as committed where every branch has its checkpoint",
        known(
            "orphans",
            "any snapshot commits a manifest",
            "core/removal/test_pending_manifests.py::test_manifest_committed_by_a_snapshot_that_was_rolled_back_is_pending",
        ),
    ),
    Regression(
        "connect-files",
        "apache/iceberg#12357",
        "files that Kafka Connect has listed in its control topic and not committed are removed while the connector "
        "stands still",
        "the age of a file counts from the last commit of the group",
        known(
            "orphans",
            "ages count from now where Kafka Connect writes",
            f"{PENDING}_age_counts_from_the_last_commit_of_kafka_connect",
        ),
    ),
    Regression(
        "current-metadata-removed",
        "linkedin/openhouse (Operations.deleteOrphanFiles)",
        "the current `metadata.json` is taken for an orphan by its scheme",
        "table metadata never goes",
        known(
            "orphans",
            "metadata files may go",
            "core/removal/test_orphans.py::test_name_says_whether_a_file_stays",
        ),
    ),
    Regression(
        "gone-for-good",
        "linkedin/openhouse, PostHog/posthog#78455",
        "what was removed by mistake cannot be had back",
        "files are put aside and swept days later, when nothing reaches them still",
        known("orphans", "the hold does not matter", f"{TRASH}_sweep_waits_for_the_hold_by_the_stores_clock"),
    ),
    Regression(
        "reached-after-all",
        "StarRocks/starrocks#77394",
        "a slow writer commits a file that was put aside",
        "the sweep proves every path anew and puts back what is reached",
        known(
            "orphans",
            "a sweep proves nothing anew",
            f"{PUT_BACK}_what_is_reached_replaces_nothing_and_is_not_swept",
        ),
    ),
    Regression(
        "reached-before-the-hold-is-over",
        "reproduced here",
        "a slow writer commits a file that was put aside: nobody can read the table until the hold is over, and "
        "passes that miss the file end in quarantine before that",
        "each pass first puts back what is reached, of every mark",
        known(
            "orphans",
            "a live file waits in the trash for the hold",
            f"{OPERATION}_file_committed_after_its_pass_is_back_after_the_next_whatever_the_hold",
        ),
    ),
    Regression(
        "killed-before-it-puts-back",
        "reproduced here",
        "a pass dies between the move of a file that is committed meanwhile and putting it back",
        "the next pass puts it back before it looks at anything else",
        known(
            "orphans",
            "a live file waits in the trash for the hold",
            f"{OPERATION}_file_committed_while_a_pass_dies_is_back_after_the_next",
        ),
    ),
    Regression(
        "deletes-that-only-log",
        "apache/iceberg#7127, #16444",
        "failed deletes are logged and reported as done",
        "counted is what is gone from the store",
        off(
            "orphans/trash.py",
            "done = _deleted(done, line, gone=store.stat(line.trash_path) is None)",
            "done = _deleted(done, line, gone=True)",
            f"{TRASH}_sweep_counts_only_what_is_gone",
        ),
    ),
    Regression(
        "sweep-before-the-expiry",
        "apache/iceberg#3772",
        "orphans are removed while an expiry is still comparing",
        "a sweep waits until nothing is due to expire",
        known(
            "orphans",
            "snapshots need not have expired",
            f"{OPERATION}_nothing_is_swept_while_snapshots_are_to_expire",
        ),
    ),
    Regression(
        "owner-forbids-it",
        "apache/iceberg#2367, #13300, #17791",
        "a table made by SNAPSHOT removes its source's files",
        "`gc.enabled=false` on a table, which SNAPSHOT sets, stops every removal from it",
        known("orphans", "the owner may not forbid it", f"{SCAN}_table_whose_owner_forbids_it_is_refused"),
    ),
    Regression(
        "testing-switch-left-on",
        "Iceberg's DeleteOrphanFilesSparkAction",
        "`spark.testing` turns Iceberg's own check of the age off",
        "a session with it is refused",
        off(
            "spark/session/session.py",
            "    if testing:\n",
            "    if False:\n",
            "spark/session/test_session.py::test_check_conf_unsafe_session_is_refused",
        ),
    ),
    # Expiry.
    Regression(
        "more-expires-than-was-decided",
        "apache/iceberg#13568, apache/amoro#4231",
        "the engine works out anew what may go and takes more",
        "the gate holds the snapshots that go to those of the plan",
        off(
            "core/commits/expire_snapshots.py",
            "    if removed := before.keys() - after.keys() - planned:\n",
            "    if removed := frozenset():\n",
            f"{EXPIRY}_change_beside_the_plan_is_refused",
        ),
    ),
    Regression(
        "branch-head-expired",
        "apache/iceberg-go#1842, apache/iceberg#12200",
        "the head of a branch or a tag expires with its snapshot",
        "the gate leaves no ref without its snapshot",
        off(
            "core/commits/expire_snapshots.py",
            '    if dangling := {int(ref["snapshot-id"]) for ref in expected.values()} & planned:\n',
            "    if missing := frozenset():\n",
            f"{EXPIRY}_ref_on_an_expiring_snapshot_is_refused",
        ),
    ),
    Regression(
        "held-since-the-plan",
        "apache/iceberg#10983",
        "a tag is set or a reader arrives between the plan and the commit",
        "what may expire is worked out anew at the commit",
        off(
            "core/commits/expire_snapshots.py",
            "    if held:\n        yield Violation(Rule.RETENTION",
            "    if False:\n        yield Violation(Rule.RETENTION",
            f"{EXPIRY}_what_came_to_be_held_since_the_plan_is_stale",
        ),
    ),
    Regression(
        "removal-forbidden-meanwhile",
        "apache/iceberg#2367",
        "`gc.enabled` is turned off between the plan and the commit",
        "the gate looks at the property",
        off(
            "core/commits/expire_snapshots.py",
            '    if not gc_enabled(base.get("properties") or {}):\n',
            "    if False:\n",
            f"{EXPIRY}_table_that_is_no_longer_the_planned_one_is_stale",
        ),
    ),
    Regression(
        "staged-rows-expire",
        "reproduced on Iceberg 1.10 (WAP)",
        "a snapshot staged by write-audit-publish expires before it is published: its rows are lost",
        "staged snapshots stay for as long as the policy says",
        off(
            "core/decisions/retention.py",
            "            if wap_id is None or s.snapshot_id in on_branches:\n",
            "            if True:\n",
            f"{HOLDS}_staged_snapshot_stays_with_what_it_was_staged_on",
        ),
    ),
    Regression(
        "checkpoint-expires",
        "apache/iceberg#5846, #12357, apache/amoro#3322",
        "Flink or Kafka Connect does not find its position in the history and commits again what it had committed",
        "each writer's newest position stays",
        off(
            "core/decisions/retention.py",
            "    if _FLINK_CHECKPOINT in summary:\n",
            "    if False:\n",
            f"{HOLDS}_newest_position_of_a_writer_stays_with_the_way_to_it",
        ),
    ),
    Regression(
        "one-position-for-all-writers",
        "apache/iceberg#5846",
        "of two jobs on one table only the position of the busier one stays",
        "a writer is told by job and operator",
        off(
            "core/decisions/retention.py",
            'yield Holder.FLINK, "/".join(summary[k] for k in _FLINK_IDENTITY if k in summary)',
            'yield Holder.FLINK, "flink"',
            f"{HOLDS}_each_writer_has_its_own_newest_position",
        ),
    ),
    Regression(
        "reader-loses-its-place",
        "apache/iceberg#9504, #12639",
        "a streaming reader's offset expires",
        "registered readers hold what they have not read",
        off(
            "core/decisions/retention.py",
            "            Hold(Holder.READER, r.name, r.snapshot_id, _end(r.seen_ms, policy.reader_max_silence_seconds))\n",
            "            Hold(Holder.READER, r.name, r.snapshot_id, 0)\n",
            f"{HOLDS}_reader_holds_until_it_has_been_silent_too_long",
        ),
    ),
    Regression(
        "plan-loses-its-snapshot",
        "apache/iceberg#17202",
        "the snapshot that a running rewrite was planned on expires",
        "plans hold their snapshots",
        off(
            "core/decisions/retention.py",
            "        *(Hold(Holder.RUNNING, name, snapshot_id) for name, snapshot_id in sorted((running or {}).items())),\n",
            "",
            f"{HOLDS}_running_plan_holds_its_snapshot_and_all_since",
        ),
    ),
    Regression(
        "two-retention-settings",
        "delta-io/delta#1589, #140",
        "two settings say how long, and the shorter wins",
        "the longest of all sources holds",
        off(
            "core/decisions/retention.py",
            "        age_ms = max(\n            self._policy.max_snapshot_age_seconds * 1000, _number(self._state, _SNAPSHOT_AGE_PROPERTY) or 0\n        )",
            "        age_ms = self._policy.max_snapshot_age_seconds * 1000",
            f"{RETENTION}_table_property_keeps_more_and_never_less",
        ),
    ),
    Regression(
        "slow-clock",
        "apache/iceberg#1110",
        "a snapshot of a writer whose clock was slow expires out of the middle of a branch",
        "a branch stays whole down to its oldest kept snapshot",
        off(
            "core/decisions/retention.py",
            "chain[: max(ref_min_count, *young, 1)]",
            "[s for n, s in enumerate(chain, 1) if n <= ref_min_count or n in young]",
            f"{RETENTION}_snapshot_of_a_slow_clock_makes_no_hole_in_the_branch",
        ),
    ),
    Regression(
        "session-time-zone",
        "reproduced on Spark 3.5",
        '"an hour ago" is read in the session\'s time zone: the youngest snapshots expire',
        "times are epoch milliseconds, and sessions in another zone than UTC are refused",
        off(
            "spark/session/session.py",
            '        "spark.sql.session.timeZone": ("", "UTC"),\n',
            "",
            "spark/session/test_session.py::test_check_conf_unsafe_session_is_refused",
        ),
    ),
)
