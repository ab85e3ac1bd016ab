"""Regressions of rewrites: rows that compaction lost, doubled or brought back."""

from __future__ import annotations

from iceberg_maint_tests.qualification.regressions.regression import Regression, known, off

SPARK_GATE = "spark/commit/test_gate.py::test_gate"
IDENTITY = "core/commits/test_gate_identity.py::test_"

REWRITING = (
    Regression(
        "newer-equality-delete-dropped",
        "apache/iceberg#10312, trinodb/trino#25603",
        "A rewrite keeps the starting sequence number. Its commit drops an equality delete that another "
        "commit added after the rewrite started, and the deleted rows come back",
        "The gate refuses a commit that drops a delete which still applies to a live file",
        known(
            "gate",
            "a newer equality delete may vanish (apache/iceberg#10312)",
            "core/commits/test_gate.py::test_newer_equality_delete_dropped_as_too_old_is_refused",
            f"{SPARK_GATE}_newer_equality_delete_is_never_dropped",
        ),
    ),
    Regression(
        "no-validation-from-the-start",
        "nimtable/iceberg-compaction#163",
        "The commit is not validated from the snapshot that the rewrite read. Rows whose positions were "
        "deleted since then come back",
        "The gate compares every position delete added after the pinned snapshot with the files that the "
        "commit removes",
        known(
            "gate",
            "newer positions of a source are ignored",
            "core/commits/test_gate.py::test_newer_position_delete_of_a_source_is_stale",
        ),
    ),
    Regression(
        "snapshot-pinned-after-the-read",
        "StarRocks/starrocks#77709",
        "The starting snapshot is taken at the commit, so the validated range is empty",
        "The plan names the snapshot before the first byte is read. The gate validates from that snapshot, "
        "not from the table's head",
        off(
            "core/commits/manifest_diff.py",
            "        if entry.data_sequence_number > intent.snapshot_sequence_number\n    ]",
            "        if entry.data_sequence_number > base.sequence_number\n    ]",
            "core/commits/test_gate.py::test_newer_position_delete_of_a_source_is_stale",
        ),
    ),
    Regression(
        "lowest-sequence-number-of-the-sources",
        "reproduced on Iceberg 1.10",
        "An output gets the sequence number of its oldest source. Deletes then apply to its newer rows, "
        "which they did not apply to before, and rows are lost",
        "The sequence number of an output must be that of the pinned snapshot",
        known(
            "gate",
            "data files may be as old as their sources",
            "core/commits/test_gate.py::test_sequence_number_other_than_the_pinned_is_refused[-1]",
            f"{SPARK_GATE}_lowest_sequence_number_of_the_sources_is_refused",
        ),
    ),
    Regression(
        "sequence-number-of-the-future",
        "reproduced on Iceberg 1.10",
        "An output gets a higher sequence number than the table has. Later deletes do not apply to it",
        "The sequence number of an output must be that of the pinned snapshot",
        known(
            "gate",
            "data files may be of the future",
            "core/commits/test_gate.py::test_sequence_number_other_than_the_pinned_is_refused[100]",
        ),
    ),
    Regression(
        "deletes-turned-round-by-a-replace",
        "apache/amoro (UnKeyedTableCommit)",
        "Another maintainer replaces equality deletes with position deletes in a REPLACE commit. Iceberg's "
        "validation skips such commits, and rows come back",
        "The gate refuses the commit if a foreign REPLACE changed delete files since the plan",
        known(
            "gate",
            "others may turn deletes round by a replace",
            "core/commits/test_gate.py::test_delete_added_by_an_operation_iceberg_does_not_validate_is_refused[replace-rule0]",
        ),
    ),
    Regression(
        "rows-moved-under-a-newer-delete",
        "reproduced on Iceberg 1.12",
        "A rewrite into another spec moves rows into or out of the scope of an equality delete that was "
        "added after the plan",
        "The gate compares each newer delete with the old and the new partition of the rows",
        known(
            "gate",
            "rows may move into and out of a newer delete",
            "core/commits/test_gate.py::test_move_across_specs_under_a_newer_equality_delete",
        ),
    ),
    Regression(
        "manifests-of-v1-have-no-sequence-numbers",
        "apache/iceberg#4513",
        "A table upgraded from v1 loses delete files, because its old entries have no sequence number",
        "Entries of v1 manifests have sequence number 0. Any other entry without one is refused",
        off(
            "catalog/manifests/reader.py",
            "    if status != EntryStatus.ADDED and of_manifest != 0:\n",
            "    if False:\n",
            "catalog/manifests/test_reader.py::test_live_entries_existing_entry_without_sequence_number_is_refused",
        ),
    ),
    Regression(
        "equal-counts-other-rows",
        "airbnb/chronon#1111",
        "A salted shuffle and a task retry lose some rows and write the same number of other rows twice",
        "A fingerprint compares the rows read with the rows written. Equal row counts are not enough",
        off(
            "engines/spark/rewrite/bin_pack.py",
            "difference = None if before == after else",
            "difference = None if before.records == after.records else",
            "spark/rewrite/test_bin_pack.py::test_proof_value_changed_while_writing_is_unequal",
        ),
    ),
    Regression(
        "statistics-of-native",
        "duckdb/duckdb-iceberg#1172, ClickHouse/ClickHouse#117116",
        "Bounds or counts of a written file are not those of its rows. Queries skip the file and miss rows",
        "The statistics of each written file are compared with its rows, by another decoder than the writer's",
        off(
            "engines/spark/write_rows.py",
            "    detail = detail or statistics_difference\n",
            "",
            "spark/rewrite/test_statistics.py::test_wrong_statistics_fail_the_proof_of_native",
        ),
    ),
    Regression(
        "retried-stage-counted-twice",
        "Spark's Observation",
        "Spark's Observation counts the rows of a retried stage twice. A correct rewrite is refused on "
        "every run",
        "The program reads the input a second time before it reports a difference",
        off(
            "engines/spark/rewrite/bin_pack.py",
            '            if values["read_rows"] != planned or (full and row_proof.fingerprint_of(values) != after):\n',
            "            if False:\n",
            "spark/rewrite/test_bin_pack.py::test_observation_that_counted_a_retried_stage_twice_is_looked_at_again",
        ),
    ),
    Regression(
        "plan-changes-under-a-rewrite",
        "apache/iceberg#15006",
        "Adaptive execution splits one file over several tasks, and two deletion vectors are written for it",
        "Sessions with adaptive execution or speculation are refused",
        off(
            "engines/spark/session/session.py",
            '        "spark.sql.adaptive.enabled": ("true", "false"),\n',
            "",
            "spark/session/test_session.py::test_check_conf_unsafe_session_is_refused",
        ),
    ),
    Regression(
        "starting-snapshot-expired",
        "apache/iceberg#17202",
        "The snapshot that the rewrite read expires before the commit. The result is a null pointer, or a "
        "reported success without a commit",
        "The batch is stale and is planned again",
        known(
            "gate",
            "the pinned snapshot need not be an ancestor",
            "core/commits/test_gate.py::test_pinned_snapshot_gone_or_no_ancestor_is_stale",
        ),
    ),
    Regression(
        "rows-picked-out-of-a-file",
        "apache/iceberg#14667",
        "A rewrite takes some rows of a file and leaves the file in the table. Those rows are doubled",
        "The gate requires that the removed files are exactly the planned files",
        known(
            "gate",
            "planned files may stay",
            "core/commits/test_gate.py::test_planned_removal_left_out_is_refused",
        ),
    ),
    Regression(
        "files-nobody-planned",
        "apache/iceberg#16971",
        "A commit includes files of another job",
        "The gate requires that the added files are those of the batch",
        known(
            "gate",
            "files may come that are nobody's",
            "core/commits/test_gate_conversion.py::test_conversion_that_removes_or_adds_a_data_file_is_refused",
        ),
    ),
    Regression(
        "data-file-referenced-twice",
        "apache/iceberg#13763, #17042",
        "Two live entries name the same data file. A rewrite doubles its rows, or fails on every run",
        "Such a table is refused",
        off(
            "engines/spark/scan/staging.py",
            "    if duplicates:\n",
            "    if False:\n",
            "spark/scan/test_staging.py::test_plan_tasks_data_file_referenced_twice_is_refused",
        ),
    ),
    Regression(
        "lineage-lost",
        "apache/iceberg-go#1391, apache/hive#6407",
        "A rewrite of a v3 table gives its rows new row ids",
        "A write without both lineage columns is refused",
        off(
            "engines/spark/rewrite/bin_pack.py",
            '    if missing:\n        raise RefusedError(\n            "ICM-108"',
            '    if False:\n        raise RefusedError(\n            "ICM-108"',
            "spark/rewrite/test_bin_pack.py::test_rewrite_v3_that_would_not_carry_lineage_is_refused",
        ),
    ),
    Regression(
        "values-by-name-or-place",
        "apache/paimon#10091, PeterVanHolland/ducklake-dataframe#40",
        "After a rename or a drop, values are read into other columns",
        "The fingerprint identifies columns by field id",
        off(
            "engines/spark/scan/row_proof.py",
            "seed = field_ids[field.name]",
            "seed = 1 + schema.names.index(field.name)",
            "spark/scan/test_fingerprint.py::test_fingerprint_goes_by_field_id_not_by_name_or_position",
        ),
    ),
    Regression(
        "outputs-in-the-current-spec",
        "apache/iceberg#16189, #12083, #2293",
        "The outputs of old files are written in the table's current spec",
        "The gate requires each output in its planned spec and partition",
        known(
            "gate",
            "outputs may lie in any partition",
            "core/commits/test_gate.py::test_output_elsewhere_than_planned_is_refused",
        ),
    ),
    Regression(
        "schema-evolves-meanwhile",
        "apache/iceberg#16189",
        "Files written by an old schema are committed after the schema has changed",
        "The gate compares the schema and the specs with those of the plan",
        known(
            "gate",
            "another schema is as planned",
            "core/commits/test_gate.py::test_table_unlike_the_planned_one_is_stale",
        ),
    ),
    Regression(
        "table-dropped-and-recreated",
        "apache/iceberg#14337, duckdb/duckdb-iceberg#958",
        "A commit goes to another table of the same name",
        "The gate compares the table's UUID with that of the plan",
        known(
            "gate",
            "a table recreated is the same table",
            "core/commits/test_gate.py::test_table_unlike_the_planned_one_is_stale",
        ),
    ),
    Regression(
        "two-maintainers",
        "apache/amoro#2453, apache/iceberg#3772",
        "Two maintainers undo each other's changes to deletes",
        "Unless the policy allows it, operations on data are refused on a table that another tool maintains",
        off(
            "core/decisions/rules.py",
            "    if policy.foreign_maintainers.mode is ForeignMode.REFUSE:\n",
            "    if False:\n",
            "core/decisions/test_foreign_maintainers.py::test_rewrite_of_files_is_refused_beside_another_maintainer",
        ),
    ),
    Regression(
        "source-registered-again",
        "reproduced on Iceberg 1.12 (`add_files`, undelete recipes)",
        "A source is removed, and the same path is registered again with a higher sequence number than a "
        "delete. Its replacement has a lower one, so the delete applies to it",
        "The gate compares sequence number, rows, bytes, spec and partition of every source with its entry "
        "in the base",
        off(
            "core/commits/gate_rules.py",
            "    for entry in (*change.files.removed, *change.files.arrivals):\n",
            "    for entry in change.files.arrivals:\n",
            f"{IDENTITY}source_with_another_sequence_number_is_stale",
            "spark/commit/test_gate_identity.py::test_sources_registered_again_after_an_equality_delete_are_stale",
            "spark/commit/test_gate_identity.py::test_source_registered_again_above_an_applied_position_delete_is_stale",
        ),
    ),
    Regression(
        "applied-delete-undone",
        "undelete recipes (`RowDelta.removeDeletes`)",
        "A commit removes a delete after the rewrite has applied it. The rows that came back by that commit "
        "are lost",
        "The gate requires that every delete which the rewrite applied is still live",
        off(
            "core/commits/gate_rules.py",
            "    if departures := change.files.departures:\n",
            "    if departures := ():\n",
            f"{IDENTITY}applied_delete_that_is_gone_is_stale",
            "spark/commit/test_gate_identity.py::test_applied_delete_that_was_undone_is_stale",
        ),
    ),
    Regression(
        "stored-batch-of-other-files",
        "found in the review of 0.1.0",
        "A stored batch is resumed after its paths were registered again as other files",
        "A batch is resumed only if every data file and delete file is live and has all planned facts",
        off(
            "core/commits/planned_files.py",
            "    return {*planned_data_files(batch), *planned_delete_files(batch)}\n",
            "    return set()\n",
            "loop/test_crashes.py::test_resume_leaves_out_a_batch_whose_input_was_registered_again",
            "loop/test_crashes.py::test_resume_leaves_out_a_batch_whose_delete_was_undone",
            "spark/commit/test_gate_identity.py::test_stored_batch_whose_sources_were_registered_again_is_stale",
        ),
    ),
    Regression(
        "open-batches-read-the-table-each",
        "found in review",
        "Each of 100 open batches of a table of a million files decodes all its manifests again",
        "An open batch is judged by the manifests that changed since its plan, read once for all batches",
        off(
            "loop/select_batches.py",
            "    changed = changes.since(batch)\n",
            "    changed = None\n",
            "catalog/manifests/test_changed_files.py::test_hundred_open_batches_read_the_changed_manifests_once",
        ),
    ),
    Regression(
        "changed-manifests-of-a-batch-planned-again",
        "found while settling was made faster",
        "An attempt's files are searched only after the pinned snapshot of its batch, which was planned again later under "
        "its id: the files that it committed are not found, and the attempt counts as rejected",
        "The pinned snapshot counts only if the batch has the contents that it had when the files were written",
        off(
            "ledger/attempts.py",
            "            if row is None or row.batch_digest != digest(row.body):\n",
            "            if row is None:\n",
            "ledger/test_attempts.py::test_snapshot_before_files_is_the_pinned_one_until_the_batch_has_other_contents",
        ),
    ),
    Regression(
        "planned-file-listed-twice-since-the-plan",
        "found while open batches were judged faster",
        "A commit since the plan lists the path of a planned file a second time, and the open batch counts as valid",
        "A planned file in a manifest that changed must be in one manifest of each snapshot with the planned facts",
        off(
            "core/commits/planned_files.py",
            "    if removed != added or not planned.issuperset(added) or max(added.values(), default=1) > 1:\n",
            "    if set(removed) - set(added):\n",
            "catalog/manifests/test_changed_files.py::test_open_batch_with_a_planned_file_listed_twice_is_not_valid",
        ),
    ),
    Regression(
        "batch-that-loses-every-try-stays-as-large",
        "found in review",
        "A batch that a fast writer makes lose every try is planned again in the same size",
        "The next plan halves the smallest lost batch; runs that lose none double the limit",
        off(
            "loop/plan_batches.py",
            "        size=limit_after_conflicts(operation, assessment.state, context),\n",
            "",
            "loop/test_maintain.py::test_batch_that_lost_every_try_is_split_at_the_next_plan_and_grows_back",
        ),
    ),
    Regression(
        "damaged-file-holds-the-partitions-of-its-batch",
        "found in review",
        "A damaged file fails its batch again and again, until all partitions of the batch are quarantined",
        "After a failure each partition is planned in a batch of its own",
        off(
            "loop/plan_batches.py",
            "if may_be_too_long(p.partition) or runs_isolated(history.of(p.partition))",
            "if may_be_too_long(p.partition)",
            "loop/test_maintain.py::test_partition_that_fails_its_batch_fails_alone_in_the_next_run",
        ),
    ),
    Regression(
        "batch-that-ends-the-process-is-resumed-whole",
        "found in review",
        "A file that ends the process does so in each run that goes on with its batch, until all partitions of the batch are quarantined",
        "After the second crash in a row the batch is closed and planned again, a partition at a time",
        off(
            "loop/select_batches.py",
            "or _is_to_split(batch, assessment.history)",
            "or False",
            "loop/test_crashes.py::test_batch_that_crashed_twice_is_planned_one_partition_at_a_time",
        ),
    ),
    Regression(
        "expired-credentials-count-against-the-partition",
        "S3's error code `ExpiredToken`",
        "S3 answers expired vended credentials with status 400; the partitions of a long write back off and are quarantined",
        "The answer counts as a failure of the environment",
        off(
            "core/outcomes/failures.py",
            '    "The provided token has expired",\n',
            "",
            "core/outcomes/test_environment.py::test_credentials_connections_and_classes_are_the_environment",
        ),
    ),
    Regression(
        "stored-batch-without-facts",
        "found in the review of 0.1.0",
        "A batch stored by an older version does not name the deletes that it applied, and is resumed",
        "The batch is closed as stale and planned again",
        off(
            "loop/select_batches.py",
            " or unknown_deletes(batch):\n",
            ":\n",
            "loop/test_crashes.py::test_resume_plans_a_batch_again_that_was_stored_without_its_deletes",
        ),
    ),
    Regression(
        "column-that-nothing-reads",
        "reproduced on Iceberg 1.12 (`time`)",
        "a table has a column that Spark cannot read; every partition fails, backs off and is quarantined",
        "operations on data are refused at the decision, with the path of the column",
        off(
            "core/decisions/rules.py",
            "    return Stop(Verdict.REFUSE, Reason.UNSUPPORTED_TYPE, evidence)\n",
            "    return None\n",
            "core/decisions/test_unsupported_types.py::test_due_table_is_refused_with_the_names_of_the_columns[False]",
            "cli/test_waits.py::test_tables_and_why_and_run_name_the_column_that_nothing_reads",
        ),
    ),
    Regression(
        "bounds-that-no-row-has",
        "duckdb/duckdb-iceberg#1172, ClickHouse/ClickHouse#117116",
        "A written file states bounds that its rows lie outside of, and queries with a condition lose these rows",
        "A columnar rewrite compares the bounds and null counts of footer and manifest with the rows",
        known(
            "columnar",
            "upper bounds are not compared",
            "columnar/test_proof.py::test_footer_statistics_other_than_those_of_the_rows_are_found",
        ),
    ),
    Regression(
        "nan-among-small-numbers",
        "found in review",
        "Bounds leave NaN out, and Spark and DuckDB, which order it above all numbers, skip its rows in `x > 5`",
        "A columnar rewrite states no bounds in the footer of a column of floats that has NaN",
        known(
            "columnar",
            "columns with NaN state bounds",
            "columnar/test_rewrite.py::test_filter_finds_nan_that_a_rewrite_leaves_among_small_numbers[double-table]",
        ),
    ),
    Regression(
        "zeros-of-both-signs",
        "found in review",
        "An upper bound is -0.0 although a row has 0.0, and Iceberg skips the file in `x = 0.0`",
        "Bounds of floats are ordered as in Java, in rows, footer, page index and manifest",
        known(
            "columnar",
            "zeros have no sign in bounds",
            "columnar/test_page_splice.py::test_metrics_of_copied_floats_are_those_of_encoded_ones[a page of each zero-double]",
        ),
    ),
    Regression(
        "struct-added-with-required-fields",
        "found in review",
        "A struct with a required field is added to a table. Columnar rewrites of older files fail at each attempt",
        "The required fields of a struct that a file lacks are filled below its null",
        off(
            "columnar/read/schema.py",
            "        return _nulls(column, length)\n    kind",
            "        return pa.nulls(length, arrow_type(column))\n    kind",
            "columnar/test_rewrite.py::test_struct_with_required_fields_that_a_file_lacks_is_null",
        ),
    ),
    Regression(
        "error-of-arrow-fails-the-batch",
        "found in review",
        "Arrow cannot rewrite the rows of a batch, and the batch fails at each attempt although Spark can rewrite them",
        "Such a batch is unsupported by `columnar`, and `native` writes it",
        off(
            "engines/spark/rewrite/columnar/worker.py",
            "    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as why:",
            "    except ZeroDivisionError as why:",
            "spark/rewrite/test_columnar_parts.py::test_rows_that_arrow_cannot_rewrite_are_unsupported",
        ),
    ),
    Regression(
        "copied-bounds-of-a-page",
        "found in the review of the splice",
        "Pages are copied with bounds that were wrong in their source",
        "The copied pages are decoded, and footer, manifest and page index are compared with the rows",
        known(
            "columnar",
            "statistics of copied columns are not compared",
            "columnar/test_page_splice.py::test_column_whose_source_states_wrong_statistics_is_encoded",
        ),
    ),
    Regression(
        "rows-under-deletes-copied",
        "found in the review of the splice",
        "All columns of a file are copied, and the rows that its deletes delete come back",
        "A task with deletes is encoded as a whole",
        known(
            "columnar",
            "files with deletes are spliced",
            "columnar/test_page_splice.py::test_deleted_rows_of_a_table_with_plain_columns_only_are_dropped",
        ),
    ),
    Regression(
        "file-that-hangs-holds-the-fleet",
        "found in an audit, with a named pipe for a file of a hung file system",
        "Python cannot interrupt the opening of the file. `observe` stops at the table until it is killed, and looks at no "
        "table after it",
        "Tables are read by threads that are waited for a limited time. What is late is unknown (ICM-179)",
        off(
            "machine/bounded_calls.py",
            "            if not call.has_ended and (is_over or now >= call.started + self.limits.call_seconds):\n",
            "            if False:\n",
            "loop/test_fleet_reading.py::test_pointer_that_does_not_come_leaves_its_table_unknown",
        ),
    ),
    Regression(
        "catalog-that-is-late-forgets-its-tables",
        "found in an audit",
        "A catalog does not list its tables in time, and the stored health of all of them is deleted as that of dropped ones",
        "A list that is late is an error of the catalog, and only a catalog that answers drops tables",
        off(
            "loop/fleet/known_tables.py",
            "            errors[name] = late_catalog(name, listed, context.catalogs.within_seconds)\n",
            "            continue\n",
            "loop/test_fleet_reading.py::test_catalog_whose_list_does_not_come_is_an_error_and_forgets_no_table",
        ),
    ),
    Regression(
        "run-that-hangs-answers-no-time",
        "found in an audit",
        "The main thread is in a call that does not return. Neither the time of the table nor SIGTERM end the run, and its "
        "lease is renewed without end",
        "A watchdog ends the process and its JVM. The next run settles what was open, as after SIGKILL",
        off(
            "loop/guards.py",
            "        if not over.wait(seconds):\n",
            "        if False:\n",
            "cli/test_hanging_tables.py::"
            "test_call_that_nothing_interrupts_ends_the_process_after_the_time_of_the_table",
        ),
    ),
    Regression(
        "run-that-hangs-answers-no-signal",
        "found in an audit",
        "Python runs the handler of SIGTERM between two instructions of the main thread, and this one is in a call that does "
        "not return",
        "A thread reads the signal from the pipe of the interpreter, and ends the process after a minute",
        off(
            "loop/guards.py",
            "                    if not over.wait(GRACE_SECONDS):\n",
            "                    if False:\n",
            "cli/test_hanging_tables.py::test_call_that_nothing_interrupts_ends_the_process_after_a_signal",
        ),
    ),
    Regression(
        "index-outside-of-its-dictionary",
        "found in an audit",
        "A damaged page has an index outside of its dictionary. PyArrow does not look at the indexes of a column that keeps its "
        "dictionary: the rewrite writes a file that no reader reads, a position delete file loses deletes, or the process ends",
        "Every column that keeps its dictionary is read with a check of its indexes",
        known(
            "columnar",
            "an index outside of its dictionary is used",
            "columnar/test_reader.py::test_index_outside_of_its_dictionary_is_an_error",
            "columnar/test_damaged_delete_files.py::"
            "test_position_delete_file_with_an_index_outside_of_its_dictionary_is_refused",
        ),
    ),
    Regression(
        "row-group-with-fewer-rows",
        "found in an audit",
        "A damaged footer states the rows of the manifest, and its row groups have fewer: a splice takes the file for an empty one",
        "The rows that were decoded are counted against the manifest",
        known(
            "columnar",
            "a file may have fewer rows than its manifest states",
            "columnar/test_damaged_inputs.py::"
            "test_file_whose_row_group_has_other_rows_than_its_manifest_states_is_refused",
        ),
    ),
    Regression(
        "position-delete-paths-as-bytes",
        "found in an audit",
        "The paths of a position delete file are bytes, by its schema. They equal the path of no data file, and the deleted rows come back",
        "The types of paths and positions are compared with those of the spec",
        known(
            "columnar",
            "paths of position deletes may be bytes",
            "columnar/test_damaged_delete_files.py::"
            "test_position_delete_file_whose_paths_are_no_texts_is_refused",
        ),
    ),
    Regression(
        "decimal-beyond-its-integer",
        "found in an audit",
        "A file has a decimal as bytes with more digits than its type. The rewrite takes the lower 64 bits, which both sides of the proof have",
        "A decimal that its integer cannot hold is refused",
        known(
            "columnar",
            "a decimal loses its upper half",
            "columnar/test_decimals.py::test_decimal_that_its_integer_cannot_hold_is_refused",
        ),
    ),
    Regression(
        "inherited-row-ids-copied",
        "found in an audit",
        "Pages are copied of files that have the columns of row lineage, as after a copy-on-write merge. Their nulls are inherited from the output then: rows get new ids and sequence numbers",
        "The columns of row lineage are encoded, with the values that the rows have",
        known(
            "columnar",
            "row lineage with nulls to be inherited is copied",
            "columnar/test_page_splice.py::"
            "test_nulls_of_row_lineage_that_files_have_are_inherited_beside_copied_columns",
        ),
    ),
    Regression(
        "damaged-page-rewritten",
        "found in an audit",
        "A bit of a page is damaged in storage and the page can be decoded. A rewrite writes the damaged values, with new bounds and an equal proof",
        "The checksums of pages are verified, and pages are written with checksums",
        known(
            "columnar",
            "the checksums of pages are not verified",
            "columnar/test_damaged_inputs.py::test_input_with_a_page_of_another_checksum_is_refused",
        ),
    ),
    Regression(
        "imported-partition-value-of-the-file",
        "found in an audit",
        "An imported file has a column of its partition too, with other values. A rewrite writes these and their bounds; Spark reads the partition value and prunes the file by the bounds, so a filter loses rows",
        "The value of an identity-partitioned column is that of the manifest",
        known(
            "columnar",
            "an imported file's own value of its partition counts",
            "columnar/test_rewrite.py::test_partition_value_is_that_of_the_manifest_whatever_the_file_holds",
        ),
    ),
    Regression(
        "codec-that-no-reader-of-the-table-has",
        "found in an audit",
        "A table's codec is brotli. A rewrite by another library writes it, and Spark, which has no such codec, cannot read the table any more",
        "A codec that Spark does not read is written by Spark or not at all",
        known(
            "columnar",
            "columnar writes a codec that Spark does not read",
            "core/planning/test_row_writer.py::"
            "test_file_group_that_does_not_qualify_is_native_with_the_reason",
        ),
    ),
    Regression(
        "pages-of-no-rows",
        "found in an audit",
        "A table's limit of rows in a page is 0. Arrow's writer does not end and takes all memory; with -1 the process ends",
        "A number that Iceberg's writer does not take is refused by name",
        known(
            "columnar",
            "Arrow writes pages of 0 rows",
            "core/decisions/test_unsupported_types.py::"
            "test_due_table_is_refused_with_the_property_that_no_writer_takes",
        ),
    ),
)
