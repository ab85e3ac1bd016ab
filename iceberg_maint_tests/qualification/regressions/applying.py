"""Regressions of applied deletes: equality deletes, position deletes and deletion vectors that apply to too many or
too few rows, or that are dropped too early."""

from __future__ import annotations

from iceberg_maint_tests.qualification.mutants.mutant import Edit
from iceberg_maint_tests.qualification.regressions.regression import Regression, known, off

APPLYING = (
    Regression(
        "global-delete-taken-for-dangling",
        "reproduced on Iceberg 1.10 (`remove-dangling-deletes`)",
        "After the spec has evolved, equality deletes of an unpartitioned spec are dropped as dangling, and "
        "rows come back",
        "Deletes of an unpartitioned spec apply to every partition and spec, in the plan and in the gate",
        known(
            "anti_join",
            "planned: no spec is unpartitioned",
            "core/planning/test_equality_deletes.py::test_deletes_apply_strictly_below_their_number_and_in_their_scope",
        ),
    ),
    Regression(
        "global-delete-needed-elsewhere",
        "Iceberg spec, Scan Planning",
        "A delete of an unpartitioned spec is dropped with the files of its own spec. It still applied to "
        "files of other specs",
        "The gate treats it as a delete that applies to every spec",
        known(
            "gate",
            "deletes of an unpartitioned spec are not global",
            "core/commits/test_delete_scope.py::test_delete_of_another_partition_or_spec_does_not_apply",
        ),
    ),
    Regression(
        "two-snapshots-in-one-derivation",
        "apache/amoro#3348",
        "Dangling deletes are computed from two scans at two snapshots, and a delete that still applies is "
        "dropped",
        "Files are planned and read at one pinned snapshot",
        off(
            "engines/spark/scan/scan.py",
            "table.newScan().useSnapshot(snapshot_id).ignoreResiduals()",
            "table.newScan().ignoreResiduals()",
            "spark/scan/test_staging.py::test_read_staged_sees_the_pinned_snapshot_not_the_current_one",
        ),
    ),
    Regression(
        "delete-of-equal-sequence-number",
        "apache/iceberg-rust#1759",
        "Equality deletes are applied to rows of their own commit, and upserted rows are lost",
        "An equality delete applies only to data with a strictly lower sequence number",
        known(
            "anti_join",
            "deletes apply to rows of their own commit",
            "spark/deletes/test_membership.py::test_deletes_of_the_commit_that_adds_the_rows_leave_them",
        ),
    ),
    Regression(
        "older-delete-of-a-key-wins",
        "risingwavelabs/risingwave#23411",
        "Deletes and data files are combined in the wrong order, and rows are doubled",
        "Of several deletes of one key, the one with the highest sequence number decides for each file",
        known(
            "anti_join",
            "the oldest delete of a key counts",
            "spark/deletes/test_membership.py::test_keys_deleted_again_after_an_insert_are_marked_below_their_latest_delete[broadcast-2]",
        ),
    ),
    Regression(
        "deletes-left-out-of-a-scan",
        "risingwavelabs/risingwave#23411",
        "A planner misses a delete that the reader applies",
        "The deletes of our plan and those of Iceberg's scan are compared before any data is read",
        off(
            "engines/spark/scan/staging.py",
            "        if applied.get(path, set()) != expected:\n",
            "        if False:\n",
            "spark/scan/test_staging.py::test_plan_tasks_other_position_deletes_than_planned_is_refused",
        ),
    ),
    Regression(
        "null-keys",
        "Iceberg spec, Equality Delete Files",
        "NULL in a key matches nothing, or matches the empty value",
        "NULL equals NULL and no other value",
        known(
            "anti_join",
            "NULL equals the empty value",
            "spark/deletes/test_membership.py::test_null_keys_equal_null_only",
        ),
    ),
    Regression(
        "null-struct-is-not-a-struct-of-nulls",
        "Iceberg's StructLikeSet",
        "A key inside a struct deletes rows whose struct is NULL",
        "At every depth, NULL is part of the key",
        known(
            "anti_join",
            "no struct is a struct of NULLs",
            "spark/deletes/test_membership.py::test_nested_keys_tell_null_structs_from_structs_of_null",
        ),
    ),
    Regression(
        "deletes-of-several-key-sets",
        "Iceberg spec, Equality Delete Files",
        "Deletes by several sets of columns are all applied by the columns of the first set",
        "Each set of key columns has its own join",
        known(
            "anti_join",
            "deletes read by the wrong schema are one set",
            "spark/deletes/test_membership.py::test_rows_under_deletes_of_several_schemas_are_marked_once",
        ),
    ),
    Regression(
        "floating-point-keys",
        "Iceberg spec, Equality Delete Files",
        "Java, Parquet and SQL compare NaN and -0.0 in three different ways",
        "Deletes by floating-point columns are refused",
        known(
            "anti_join",
            "planned: floating-point keys can be matched",
            "core/planning/test_equality_deletes.py::test_key_types",
        ),
    ),
    Regression(
        "dropped-key-column",
        "Iceberg spec, Equality Delete Files",
        "A delete by a column that was dropped from the schema is dropped too, and rows come back",
        "Such deletes are reported and stay in the table",
        known(
            "anti_join",
            "planned: dropped key columns can be matched",
            "core/planning/test_equality_deletes.py::test_key_types",
        ),
    ),
    Regression(
        "marks-lost-on-the-way",
        "apache/amoro#1751",
        "A map that was spilled to disk loses equality ids, and rows are doubled",
        "Each position that the join found is compared with each position written",
        known(
            "anti_join",
            "what was found need not be what is written",
            "spark/deletes/test_anti_join.py::test_anti_join_mark_that_is_not_written_makes_the_proof_unequal",
        ),
    ),
    Regression(
        "second-vector-of-a-file",
        "Iceberg spec, Deletion Vectors",
        "A data file with two deletion vectors cannot be read, or the reader applies one of them",
        "The gate refuses a second deletion vector of a data file",
        known(
            "gate",
            "the old vector may stay beside the new",
            "core/commits/test_gate_conversion.py::test_vector_beside_the_old_one_is_refused",
        ),
    ),
    Regression(
        "vector-forgets-older-positions",
        "Iceberg spec, Deletion Vectors",
        "A new deletion vector replaces all older position deletes of its file but holds only the new "
        "positions, and rows come back",
        "The gate refuses a vector that holds fewer positions than the one it replaces",
        known(
            "gate",
            "a poorer vector will do",
            "core/commits/test_gate_conversion.py::test_vector_of_fewer_positions_than_the_old_one_is_refused",
        ),
    ),
    Regression(
        "marks-in-another-partition",
        "apache/iceberg#16957",
        "Scans fail on position deletes in another partition than their data file",
        "The gate requires position deletes in the spec and partition of their data file",
        known(
            "gate",
            "marks may lie anywhere",
            "core/commits/test_gate_conversion.py::test_mark_unlike_the_intended_one_is_refused",
        ),
    ),
    Regression(
        "position-deletes-behind-an-empty-segment",
        "found by `make qualify SUITE=surroundings`",
        "For an unpartitioned spec, `OutputFileFactory.newOutputFile(spec, null)` returns a path with `//`. PyIceberg "
        "cannot open such a position delete file on S3, and with it cannot read the table",
        "Files of an unpartitioned spec are written without the empty segment of a partition",
        off(
            "engines/spark/scan/positions.py",
            "output.newOutputFile() if spec.isUnpartitioned() else output.newOutputFile(spec, partition)",
            "output.newOutputFile(spec, partition)",
            "spark/deletes/test_convert.py::"
            "test_position_deletes_of_an_unpartitioned_table_have_no_empty_segment_in_their_path",
        ),
    ),
    Regression(
        "deletes-that-do-not-fit",
        "apache/iceberg#3909, #10054, #11648",
        "Each task loads all equality deletes into one set in heap and runs out of memory",
        "The program estimates the memory from metadata. If the estimate is above the declared memory it "
        "refuses the batch and reports both numbers",
        off(
            "engines/spark/deletes/keys.py",
            "    except DoesNotFitError as why:\n        raise RefusedError(",
            "    except DoesNotFitError as why:\n        return None\n        raise RefusedError(",
            "spark/deletes/test_convert.py::test_convert_that_needs_more_memory_than_declared_is_refused_before_anything_is_read",
        ),
    ),
    Regression(
        "deletes-by-uuid-left-out",
        "apache/iceberg#14216, reproduced on Iceberg 1.12",
        "Iceberg orders the bounds of UUID columns as signed numbers, so a scan leaves out some equality "
        "deletes by UUID. Iceberg's readers show the deleted rows. An engine that drops these deletes "
        "brings the rows back permanently",
        "Scans apply equality deletes by scope and sequence number alone",
        off(
            "engines/spark/scan/scan.py",
            "    if counts == all_counts:\n",
            "    if True:\n",
            "spark/deletes/equality/test_uuids.py::"
            "test_rows_deleted_by_uuid_stay_deleted_where_icebergs_scan_leaves_the_delete_out[v3-convert]",
        ),
    ),
    Regression(
        "deletes-on-required-fields-of-optional-structs-omitted",
        "reproduced on Iceberg 1.12 (`DeleteFileIndex`)",
        "a scan omits an equality delete by a required field of an optional struct, because the index takes the field "
        "for one without NULL; maintenance drops the delete unapplied and rows come back",
        "scans apply equality deletes by scope and sequence number alone",
        off(
            "engines/spark/scan/scan.py",
            "    if equality_deletes.isEmpty() or tasks.isEmpty():\n",
            "    if True:\n",
            "spark/deletes/equality/test_keys.py::"
            "test_null_struct_around_a_required_key_is_deleted_where_icebergs_scan_omits_the_delete[v3-convert]",
            "spark/scan/test_scan.py::test_delete_with_bounds_that_share_no_key_with_the_data_file_applies",
        ),
    ),
    Regression(
        "delete-dropped-that-a-task-lacks",
        "reproduced on Iceberg 1.12 (`DeleteFileIndex`)",
        "a delete file is dropped although a task that it reaches by scope and sequence number did not apply it",
        "before a batch is written, the deletes of each task are counted by the rule of the plan",
        off(
            "engines/spark/scan/staging.py",
            "        if count != planned[path]:\n",
            "        if False:\n",
            "spark/scan/test_staging.py::"
            "test_plan_tasks_task_without_an_equality_delete_that_reaches_it_is_refused",
        ),
    ),
    Regression(
        "kept-files-copied-into-another-partition",
        "reproduced on Iceberg 1.12",
        "The source column of an old spec is dropped. A commit that merges the manifests of that spec "
        "writes NULL as the partition of the files it keeps. Their deletes no longer apply, and deleted "
        "rows come back",
        "The gate compares such entries one by one. No commit that would copy them is started",
        off(
            "core/commits/manifest_diff.py",
            "m.is_deletes or m.spec_id in self.losing for m",
            "m.is_deletes for m",
            "spark/commit/test_dropped_source.py::"
            "test_commit_that_would_move_kept_files_into_another_partition_is_refused[2-cat]",
        ),
    ),
    Regression(
        "deletes-picked-by-the-filter-of-a-scan",
        "apache/iceberg#12479",
        "The metadata of a delete file covers more columns than its keys. A filter on those columns leaves "
        "the delete out of the scan, and rows come back",
        "The filter that selects the files to rewrite does not filter their deletes, and deletes that a scan omits are added",
        off(
            "engines/spark/scan/scan.py",
            ".ignoreResiduals()\n",
            "\n",
            "spark/scan/test_scan.py::test_delete_with_statistics_of_other_columns_than_its_keys_applies_in_a_pruned_scan",
            also=(
                Edit(
                    "engines/spark/scan/scan.py",
                    "return with_all_equality_deletes(bridge, table, snapshot_id, tasks)",
                    "return tasks",
                ),
            ),
        ),
    ),
    Regression(
        "transform-bound-to-the-identity-of-its-column",
        "apache/iceberg#15502",
        "A column was a partition value itself and is transformed now. Iceberg compares the result of the transform with "
        "the old value, and a partition of the new spec cannot be planned",
        "Scans are not pruned by a transform of a column that is a partition value of another spec",
        off(
            "engines/spark/scan/scan.py",
            'if field.transform != "identity" and field.source_id in identities:',
            "if False:",
            "spark/scan/test_staging.py::test_partitions_filter_of_a_transform_after_the_identity_of_its_column_selects_the_files_of_"
            "its_partition[string-values0-bucket(4, p)]",
        ),
    ),
    Regression(
        "examined-file-registered-again",
        "reproduced on Iceberg 1.12 (`add_files`, undelete recipes)",
        "A data file is removed and registered again while positions to delete are computed for it. The new "
        "position deletes remove rows that no equality delete reaches, or a deletion vector is older than "
        "its file and the table cannot be read",
        "The gate looks for planned files in the manifests added since the plan and compares their entries",
        off(
            "core/commits/gate_rules.py",
            "    for entry in (*change.files.removed, *change.files.arrivals):\n",
            "    for entry in change.files.removed:\n",
            "core/commits/test_gate_identity.py::test_examined_file_registered_again_is_stale",
            "spark/commit/test_gate_identity.py::test_examined_file_registered_again_is_stale",
            "spark/deletes/test_merge_position_deletes_races.py::test_merge_of_a_data_file_that_was_registered_again_is_stale",
        ),
    ),
    Regression(
        "dropped-delete-registered-again",
        "reproduced on Iceberg 1.12",
        "An equality delete is removed and registered again with a higher sequence number. A commit drops "
        "it by its path, and rows that only the higher number reached come back",
        "The gate compares every delete file that the commit removes with the plan",
        off(
            "core/commits/gate_rules.py",
            "    for entry in (*change.files.removed, *change.files.arrivals):\n",
            "    for entry in (e for e in change.files.removed if e.kind is FileKind.DATA):\n",
            "core/commits/test_gate_identity.py::test_dropped_delete_registered_again_is_stale",
            "spark/commit/test_gate_identity.py::test_dropped_equality_delete_registered_again_is_stale",
        ),
    ),
)
