"""Mutants of how equality deletes are applied, written by hand: each must turn a test red.

    python -m iceberg_maint_tests.qualification.mutants anti_join [NUMBER…]

Which deletes apply to which files, by which keys, and how the rows found are marked and proved.
"""

from __future__ import annotations

from iceberg_maint_tests.qualification.mutants.mutant import Mutant

_SPARK = "iceberg_maint_tests/spark/deletes"
_RUNNER = "iceberg_maint_tests/loop/test_conversion.py"
_ROUTE = "iceberg_maint_tests/core/planning/test_equality_delete_route.py"
EQUALITY = ("iceberg_maint_tests/core/planning/test_equality_deletes.py",)


GUARDS = f"{_SPARK}/test_membership_guards.py::test"


def membership(test: str) -> tuple[str]:
    return (f"{_SPARK}/test_membership.py::test_{test}",)


def anti_join(test: str) -> tuple[str]:
    return (f"{_SPARK}/test_anti_join.py::test_anti_join_{test}",)


def named_files(test: str) -> tuple[str]:
    return (f"{_SPARK}/test_named_files.py::test_{test}",)


def older(test: str) -> tuple[str, ...]:
    return (f"{_SPARK}/test_convert_older_positions.py::test_{test}",)


def convert(test: str) -> tuple[str]:
    return (f"{_SPARK}/test_convert.py::test_convert_{test}",)


def positions(test: str) -> tuple[str]:
    return (f"iceberg_maint_tests/spark/scan/test_positions.py::test_{test}",)


AGAIN = membership("keys_deleted_again_after_an_insert_are_marked_below_their_latest_delete[broadcast-2]")
FILTERED = IN_PASSES = membership(
    "keys_deleted_again_after_an_insert_are_marked_below_their_latest_delete[filtered-passes-2]"
)
OWN_COMMIT = membership("deletes_of_the_commit_that_adds_the_rows_leave_them")
NULLS = membership("null_keys_equal_null_only")
EVOLVED = membership("deletes_of_an_unpartitioned_spec_apply_everywhere_once_the_spec_evolved")
PARTITIONS = membership("deletes_apply_to_their_own_partition")
SCHEMAS = membership("rows_under_deletes_of_several_schemas_are_marked_once")
BY_FIELD = membership("keys_renamed_promoted_and_added_match_by_field")
BY_POSITION = membership("rows_also_deleted_by_position_are_marked_as_deleted_already")
TYPES = membership("keys_of_every_type_and_format_are_compared")
STRUCTS = membership("nested_keys_tell_null_structs_from_structs_of_null")

MUTANTS = (
    # Planned from metadata.
    Mutant("planned: deletes apply to rows of their own commit", "core/planning/equality_deletes.py", "return equality_delete_reaches(_newest(self.everywhere), file.data_sequence_number)", "return _newest(self.everywhere) >= file.data_sequence_number", EQUALITY),
    Mutant("planned: deletes of one number apply to each other's files", "core/planning/equality_deletes.py", "from bisect import bisect_right", "from bisect import bisect_left as bisect_right", EQUALITY),
    Mutant("planned: no spec is unpartitioned", "core/planning/equality_deletes.py", "scope = delete_scope(file, specs)", "scope = scope_of(file)", EQUALITY),
    Mutant("planned: a scope is a partition of any spec", "core/model/table_state.py", "    return file.spec_id, file.partition", "    return 0, file.partition", EQUALITY),
    Mutant("planned: files left behind need no delete", "core/planning/equality_deletes.py", "needed.add(delete.path)", "pass", EQUALITY),
    Mutant("planned: global deletes are needed in their spec only", "core/planning/equality_deletes.py", "scope = delete_scope(delete, specs)", "scope = scope_of(delete)", EQUALITY),
    Mutant("order: rewrites always come first", "core/decisions/table_decision.py", "rewritten_ms is not None and (converted_ms is None or converted_ms < rewritten_ms)", "False", (f"{_RUNNER}::test_conversion_comes_first_once_after_a_run_that_only_rewrote",)),
    Mutant("order: a rewrite before the deletes were due takes the turn", "core/decisions/table_decision.py", "any(ms is None or ms + age_ms <= rewritten_ms for ms in oldest_ms)", "True", ("iceberg_maint_tests/core/decisions/test_step_order.py::test_rewrite_before_deletes_were_due_takes_no_turn",)),
    Mutant("order: native rewrites first", "core/decisions/table_decision.py", "is not RewriteStrategy.COLUMNAR", "is RewriteStrategy.AUTO", ("iceberg_maint_tests/core/decisions/test_step_order.py::test_policy_keeps_the_order_of_operations",)),
    Mutant("order: small files of any writer come first", "core/planning/rewrite_data_files.py", "[group for group, writer in written if writer.columnar]", "[group for group, _ in written]", (f"{_ROUTE}::test_small_files_that_columnar_does_not_write_wait_for_the_conversion",)),
    Mutant("order: every rewrite takes files of a conversion", "core/planning/rewrite_data_files.py", "            if inputs.before_conversion:\n", "            if True:\n", (f"{_RUNNER}::test_operation_alone_leaves_small_files_to_nothing_else",)),
    Mutant("order: the rewrite has two turns", "loop/maintain.py", "steps.remove(Step(Operation.REWRITE_DATA_FILES))", "pass", (f"{_RUNNER}::test_rewrite_has_one_turn_within_the_budget_of_a_run",)),
    Mutant("order: healthy files are rewritten with the small ones", "core/planning/rewrite_data_files.py", "plan_groups(inputs, Rules.of(due, inputs).without_equality_deletes(), found)", "plan_groups(inputs, Rules.of(due, inputs), found)", (f"{_ROUTE}::test_small_files_of_a_conversion_are_rewritten_before_it",)),
    Mutant("planned: every delete goes", "core/planning/equality_deletes.py", "drop=d.path not in kept", "drop=True", EQUALITY),
    Mutant("planned: deletes without keys can be matched", "core/planning/equality_deletes.py", "not delete.equality_ids or not all", "not all", EQUALITY),
    Mutant("planned: one good key column is enough", "core/planning/equality_deletes.py", "not all(can_be_key(key_types.get(i)) for i in delete.equality_ids)", "not any(can_be_key(key_types.get(i)) for i in delete.equality_ids)", EQUALITY),
    Mutant("planned: floating-point keys can be matched", "core/planning/equality_deletes.py", '    "boolean": 1,\n', '    "boolean": 1, "float": 4, "double": 8,\n', EQUALITY),
    Mutant("planned: dropped key columns can be matched", "core/planning/equality_deletes.py", "return column_type is not None and (", "return column_type is None or (", EQUALITY),
    # Which deletes apply to which file.
    Mutant("deletes apply to rows of their own commit", "engines/spark/deletes/key_files.py", "from bisect import bisect_left", "from bisect import bisect_right as bisect_left", OWN_COMMIT),
    Mutant("data files are numbered in any order", "engines/spark/deletes/membership.py", "key=lambda f: (f.sequence_number, f.path))", "key=lambda f: (-f.sequence_number, f.path))", AGAIN),
    Mutant("deletes apply to every older and younger file", "engines/spark/deletes/membership.py", 'matches & (rows["place"] < keys["limit"])', "matches", AGAIN),
    Mutant("the oldest delete of a key counts", "engines/spark/deletes/membership.py", 'F.max("limit").alias("limit")', 'F.min("limit").alias("limit")', AGAIN),
    Mutant("deletes of an unpartitioned spec have a partition", "engines/spark/deletes/key_files.py", 'scope = None if everywhere else f"{spec_id}:{partition}"', 'scope = f"{spec_id}:{partition}"', EVOLVED),
    Mutant("global deletes and those of partitions are one set", "engines/spark/deletes/key_files.py", "by_keys.setdefault((delete.equality_ids, delete.scope is None), [])", "by_keys.setdefault((delete.equality_ids, False), [])", EVOLVED),
    Mutant("keys are compared across partitions", "engines/spark/deletes/key_files.py", "return len({scope for _, _, scope in self.data}) > 1", "return False", PARTITIONS),
    Mutant("all partitions of a spec are one scope", "engines/spark/deletes/key_files.py", 'scope = f"{spec_id}:{partition}"\n                files.append(DataFile', 'scope = f"{spec_id}:"\n                files.append(DataFile', PARTITIONS),
    Mutant("deletes read by the wrong schema are one set", "engines/spark/deletes/key_files.py", "by_keys.setdefault((delete.equality_ids, delete.scope is None), [])", "by_keys.setdefault((deletes[0].equality_ids, delete.scope is None), [])", SCHEMAS),
    # Keys.
    Mutant("NULL equals the empty value", "engines/spark/deletes/keys.py", "    if flags:\n", "    if False:\n", NULLS),
    Mutant("NULL equals nothing", "engines/spark/deletes/keys.py", '            value = F.coalesce(value, F.lit(_EMPTY.get(key.kind, "0")).cast(key.kind))', "            pass", NULLS),
    Mutant("no struct is a struct of NULLs", "engines/spark/deletes/keys.py", "                if optional:\n", "                if optional and depth == len(key.optional):\n", STRUCTS),
    Mutant("metadata that denies NULL keys is believed", "engines/spark/deletes/keys.py", "            if checked:\n", "            if False:\n", membership("null_keys_that_metadata_denies_end_the_job")),
    Mutant("one file without NULL keys speaks for all", "engines/spark/deletes/key_files.py", "frozenset.intersection(*(f.without_null for f in self.files))", "frozenset.union(*(f.without_null for f in self.files))", BY_FIELD),
    Mutant("what metadata does not say is no NULL", "engines/spark/deletes/key_files.py", "if nulls.get(i) == 0", "if nulls.get(i, 0) == 0", TYPES),
    Mutant("NULL counts of a struct's fields are believed", "engines/spark/deletes/membership.py", "never_null = field_id in delete_set.without_null and len(path) == 1", "never_null = field_id in delete_set.without_null", (f"{GUARDS}_null_count_of_a_structs_field_says_nothing_of_the_struct",)),
    # How the join is done.
    Mutant("a row that two sets delete is found twice", "engines/spark/deletes/membership.py", "        if len(pairs) == 1:\n", "        if True:\n", SCHEMAS),
    Mutant("the first pass is the only one", "engines/spark/deletes/membership.py", "for number in range(self.preflight.passes):", "for number in range(1):", IN_PASSES),
    Mutant("each pass takes other rows than keys", "engines/spark/deletes/membership.py", "keys, rows = keys.where(in_pass), rows.where(in_pass)", "keys, rows = keys.where(in_pass), rows.where(~in_pass)", IN_PASSES),
    Mutant("the filter asks for another hash than it was made of", "engines/spark/deletes/membership.py", "F.lit(bytearray(stream.toByteArray())), F.xxhash64(*names))", "F.lit(bytearray(stream.toByteArray())), F.xxhash64(*names, F.lit(1)))", FILTERED),
    Mutant("a row of a file that was not asked for is left out in silence", "engines/spark/deletes/membership.py", 'frame.join(F.broadcast(facts), "file", "left")', 'frame.join(F.broadcast(facts), "file", "inner")', (f"{GUARDS}_row_of_a_file_that_was_not_asked_for_ends_the_job",)),
    Mutant("two paths of one hash are one file", "engines/spark/deletes/membership.py", 'if len({row[0] for row in facts.select("file").collect()}) != len(files):', "if False:", (f"{GUARDS}_two_paths_of_one_hash_are_refused",)),
    # What was deleted before.
    Mutant("no row was deleted before", "engines/spark/deletes/membership.py", 'F.when(F.col("_deleted"), F.lit(1)).otherwise(F.lit(0))', "F.lit(0)", BY_POSITION),
    Mutant("no file has position deletes", "engines/spark/deletes/key_files.py", "deletes != SEPARATOR_WITHIN", "False", BY_POSITION),
    Mutant("rows deleted before are new marks", "engines/spark/deletes/deleted_rows.py", 'rows.where("not _already")', "rows", convert("marks_positions_drops_equality_deletes_and_keeps_data_files")),
    Mutant("older vectors are believed uncounted", "engines/spark/deletes/deleted_rows.py", "    if count(vector_positions) != listed:\n", "    if False:\n", convert("older_vector_that_is_read_in_part_is_refused")),
    Mutant("older position deletes are left out of a vector", "engines/spark/deletes/deleted_rows.py", "        elif deletes:\n", "        elif False:\n", convert("of_a_table_that_became_v3_takes_older_position_deletes_into_its_vectors")),
    Mutant("a vector forgets older positions", "engines/spark/deletes/convert.py", "expected = positions.union((deleted_rows.new, old))", "expected = dict(deleted_rows.new)", convert("marks_positions_drops_equality_deletes_and_keeps_data_files")),
    Mutant("older files that mark other data files go", "engines/spark/deletes/convert.py", "if named == path and len(read) == listed[path, location]:", "if named == path:", older("file_that_says_one_data_file_and_marks_another_too_stays")),
    Mutant("a new file forgets the positions that it takes over", "engines/spark/deletes/convert.py", "            old[path] = old.get(path, BitMap64()) | read\n", "", older("older_files_of_one_data_file_are_merged_and_those_of_an_unmarked_file_stay")),
    Mutant("older files that were taken over stay", "engines/spark/commit/rewrite_files.py", "removed |= {(path, offset) for path, offset in others if path in taken_over}", "pass", older("older_files_of_one_data_file_are_merged_and_those_of_an_unmarked_file_stay")),
    Mutant("the anti-join brings rows deleted by position back", "engines/spark/deletes/convert.py", "positions.union((deleted_rows.new, find_already_deleted(bridge, work, deleted_rows)))", "dict(deleted_rows.new)", anti_join("leaves_the_deleted_rows_out_and_drops_all_deletes")),
    Mutant("files without a match are read without their deletes", "engines/spark/deletes/convert.py", "deletes = [vectors[path]] if path in vectors else kept_deletes(bridge, task)", "deletes = [vectors[path]] if path in vectors else []", anti_join("of_deletes_that_match_no_row_keeps_older_position_deletes_applied")),
    Mutant("Spark believes which data file a delete file marks", "engines/spark/deletes/position_delete_rows.py", '.where("file_path <> stated")', '.where("false")', named_files("merge_and_conversion_are_refused")),
    Mutant("dangling delete files are dropped unread", "engines/spark/deletes/position_delete_rows.py", "and not (known.void and not table", "and not (known.void or not table", named_files("dangling_delete_by_bounds_that_are_cut_is_read_and_kept")),
    Mutant("Arrow believes which data file a delete file marks", "columnar/read/deletes.py", "if reference.data_file is not None and (others", "if False and (others", ("iceberg_maint_tests/columnar/test_damaged_delete_files.py::test_position_delete_file_that_names_another_data_file_than_its_metadata_is_refused",)),
    Mutant("keys before the first split offset are not read", "engines/spark/deletes/key_files.py", '        "key-metadata",\n', '        "key-metadata",\n        "split-offsets",\n', ("iceberg_maint_tests/spark/scan/test_lying_entries.py::test_keys_before_the_first_split_offset_are_applied",)),
    # Positions, written and proved.
    Mutant("positions are read from the wrong end of a byte", "engines/spark/scan/positions.py", 'bitorder="little"', 'bitorder="big"', positions("gather_finds_every_position_once")),
    Mutant("positions beyond the first bitmap are lost", "engines/spark/scan/positions.py", "(place_number & 0xFFFFFFFF) << _BUCKET_BITS", "0", positions("gather_finds_every_position_once")),
    Mutant("the last part's positions count", "engines/spark/scan/positions.py", "joined[path] | positions if path in joined else positions", "positions", convert("marks_positions_drops_equality_deletes_and_keeps_data_files")),
    Mutant("a damaged vector is read", "engines/spark/scan/positions.py", 'if zlib.crc32(body).to_bytes(4, "big") != checksum:', "if False:", positions("parse_of_a_damaged_blob_is_refused")),
    Mutant("anything is a vector", "engines/spark/scan/positions.py", 'if int.from_bytes(length, "big") != len(body) or body[:4] != _MAGIC:', "if False:", positions("parse_of_a_damaged_blob_is_refused")),
    Mutant("positions of one file are as good as of another", "engines/spark/scan/positions.py", 'path.encode() + b"\\0" + body', "body", positions("fingerprint_distinguishes_files_and_positions_and_adds_up")),
    Mutant("as many positions are the same positions", "engines/spark/scan/positions.py", "        if expected != actual:\n", "        if len(expected) != len(actual):\n"
, convert("position_that_is_written_wrong_makes_the_proof_unequal")),
    Mutant("what was found need not be what is written", "engines/spark/deletes/convert.py", "difference=positions.difference(expected, written)", 'difference=""', anti_join("mark_that_is_not_written_makes_the_proof_unequal")),
    Mutant("new and old positions need not add up", "engines/spark/deletes/convert.py", "if not detail and new_count + old_count != count:", "if False:", convert("older_position_that_is_lost_makes_the_proof_unequal")),
    Mutant("marks need not be applied", "engines/spark/write_rows.py", "if not detail and applied and read - kept < applied.deleted_records:", "if False:", anti_join("marks_that_are_not_applied_make_the_proof_unequal")),
    Mutant("deletes that were not planned are left out in silence", "engines/spark/scan/staging.py", "    if unplanned:\n", "    if False:\n", convert("of_fewer_deletes_than_iceberg_applies_is_refused")),
)  # fmt: skip
