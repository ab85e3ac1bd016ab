"""Mutants of the columnar engine, written by hand: filter, row lineage, proof and splice. Each must turn a test red.

python -m iceberg_maint_tests.qualification.mutants columnar [NUMBER…]
"""

from __future__ import annotations

from iceberg_maint_tests.qualification.mutants.mutant import Mutant

_HERE = "iceberg_maint_tests/columnar"
REWRITE, PROOF, SPLICE, PAGES = (
    f"{_HERE}/test_{name}.py" for name in ("rewrite", "proof", "splice", "page_splice")
)
DECODE, POSITIONS, COMPARE = (
    "columnar/read/decode.py",
    "columnar/read/deletes.py",
    "columnar/check/file_proof.py",
)
PACKING, DECIMALS, READER = (
    "columnar/read/packing.py",
    "columnar/read/decimals.py",
    "columnar/parquet/reader.py",
)
THRIFT = "columnar/parquet/thrift.py"
COPY, STATISTICS, RULES, CHECK = (
    "columnar/splice/page_splice.py", "columnar/splice/splice_check.py", "columnar/splice/splice_rules.py", "columnar/splice/splice_check.py",
)  # fmt: skip
KEPT = f"{_HERE}/test_kept_row_groups.py"
ENCODER, INDEX = "columnar/encode.py", "columnar/check/page_index.py"
SAMPLE = "engines/spark/rewrite/columnar/sample.py"
DRIVER, IN_DRIVER = (
    "engines/spark/rewrite/columnar/job.py",
    "iceberg_maint_tests/spark/rewrite/test_driver_tasks.py",
)


def rewrite(name: str) -> tuple[str, ...]:
    return (f"{REWRITE}::test_{name}",)


def proof(name: str) -> tuple[str, ...]:
    return (f"{PROOF}::test_{name}",)


def splice(name: str) -> tuple[str, ...]:
    return (f"{SPLICE}::test_{name}",)


def pages(name: str) -> tuple[str, ...]:
    return (f"{PAGES}::test_{name}",)


def on_spark(name: str) -> tuple[str, ...]:
    return (f"iceberg_maint_tests/spark/rewrite/test_columnar.py::test_{name}",)


def sample(name: str) -> tuple[str, ...]:
    return (f"iceberg_maint_tests/spark/rewrite/test_independent_sample.py::test_{name}",)


def damaged(name: str) -> tuple[str, ...]:
    return (f"{_HERE}/test_damaged_inputs.py::test_{name}",)


def decimals(name: str) -> tuple[str, ...]:
    return (f"{_HERE}/test_decimals.py::test_{name}",)


def positions(name: str) -> tuple[str, ...]:
    return (f"{_HERE}/test_deleted_positions.py::test_{name}",)


DELETED = rewrite("rows_under_position_deletes_and_deletion_vectors_are_dropped")
TINY = rewrite("tiny_files_of_several_schemas_and_with_deletes_keep_rows_and_order")
LINEAGE = rewrite("row_ids_and_sequence_numbers_are_kept_and_materialised")
STATED = rewrite("input_other_than_stated_is_refused")
VECTOR = rewrite("deletion_vector_with_a_wrong_checksum_or_cardinality_is_refused")
FOOTER = proof("footer_statistics_other_than_those_of_the_rows_are_found")
MANIFEST = proof("metrics_other_than_those_of_the_rows_are_found")
SOURCE = (f"{_HERE}/test_source.py",)
PACKED = (f"{_HERE}/test_packing.py::test_file_of_another_form_is_not_packed",)
RULE = splice("column_that_breaks_a_rule_is_encoded")
WRONG = pages("column_whose_source_states_wrong_statistics_is_encoded")
BOUNDS = proof("bounds_of_a_page_that_exclude_a_row_are_found")
ENTRIES = proof("entries_of_the_page_index_other_than_the_pages_are_found")
MEMORY = (f"{_HERE}/test_memory.py",)
STREAMING = (f"{_HERE}/test_streaming.py",)
WRITER = ("iceberg_maint_tests/core/planning/test_row_writer.py",)

# One mutant, one line: the file is a table.
# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    Mutant("deleted rows stay", DECODE, "if low == high:", "if low <= high:", DELETED),
    Mutant("deleted rows of files that are joined stay", DECODE, "return file.positions is None and not self._has_lineage", "return not self._has_lineage", TINY),
    Mutant("files with row ids are joined", DECODE, "return file.positions is None and not self._has_lineage", "return file.positions is None", rewrite("tiny_files_of_one_schema_keep_their_own_row_ids")),
    Mutant("files of other schemas are joined", DECODE, "file.sources is not other.sources", "False", TINY),
    Mutant("small files are joined with large ones", DECODE, "return file.rows is other.rows", "return True", rewrite("small_files_beside_large_ones_keep_rows_and_order")),
    Mutant("large files of other stored types are joined", DECODE, "return bool(file.rows.schema.equals(other.rows.schema))", "return True", rewrite("small_files_beside_large_ones_keep_rows_and_order")),
    Mutant("only one of two deletes of a file is applied", POSITIONS, "np.unique(np.concatenate(found)) if found", "np.unique(found[0]) if found", DELETED),
    Mutant("the checksum of a vector is not compared", POSITIONS, "if zlib.crc32(content) != crc:", "if False:", VECTOR),
    Mutant("the cardinality of a vector is not compared", POSITIONS, "if reference.record_count is not None and reference.record_count != len(found):", "if False:", VECTOR),
    Mutant("inherited row ids start at zero", DECODE, "first = file.first_row_id + start", "first = start", LINEAGE),
    Mutant("inherited sequence numbers are zero", DECODE, "found.fill_null(scalar_of(file.data_sequence_number))", "found.fill_null(scalar_of(0))", LINEAGE),
    Mutant("row ids of the file are lost", DECODE, "return pc.coalesce(found, pa", "return pc.coalesce(pa.nulls(len(found), pa.int64()), pa", LINEAGE),
    Mutant("the rows of an input are not counted", DECODE, "_check_rows(file, parquet.metadata.num_rows)", "pass", damaged("file_without_a_column_of_the_table_has_the_rows_that_its_manifest_states")),
    Mutant("the bytes of an input are not counted", DECODE, "if size_bytes != file.size_bytes:", "if False:", STATED),
    Mutant("a null in a required column is written", DECODE, "if column.required and found.null_count:", "if False:", rewrite("required_column_with_a_null_is_refused")),
    Mutant("values are not compared", COMPARE, "if not same_values(rows, other):", "if False:", proof("changed_values_are_found")),
    Mutant("floats are compared as numbers", COMPARE, "return bool(_as_bits(rows).equals(_as_bits(other)))", "return bool(rows.equals(other))", proof("sound_file_has_no_difference") + proof("changed_values_are_found")),
    Mutant("field ids are not compared", COMPARE, "if (field.name, field.nullable, field_id(field)) != (other.name, other.nullable, field_id(other)):", "if (field.name, field.nullable) != (other.name, other.nullable):", proof("changed_schema_is_found")),
    Mutant("null counts of the footer are not compared", COMPARE, "if is_stated and stated.nulls != rows.nulls:", "if False:", FOOTER),
    Mutant("lower bounds are not compared", COMPARE, "if rows.lower is not None and lower is not None and not java_order(lower) <= java_order(rows.lower):", "if False:", FOOTER),
    Mutant("upper bounds are not compared", COMPARE, "if rows.upper is not None and upper is not None and not java_order(upper) >= java_order(rows.upper):", "if False:", FOOTER),
    Mutant("counts of the manifest are not compared", COMPARE, "if count != rows:", "if False:", MANIFEST),
    Mutant("split offsets are not compared", COMPARE, "if split_offsets(groups) != self._metrics.split_offsets:", "if False:", proof("split_offsets_other_than_the_row_groups_are_found")),
    Mutant("a spliced output is not compared with its sources", COPY, "if difference(output, form, parts, spliced):", "if False:", pages("output_that_differs_from_its_sources_is_deleted_and_encoded")),
    Mutant("statistics of copied columns are not compared", COPY, "return None if problem else metrics", "return metrics", WRONG),
    Mutant("copied floats have no number of NaN", COPY, "        builder.add_floats({key: [sum_of(p) for p in groups] for key, groups in pages.items()})\n", "", pages("metrics_of_copied_floats_are_those_of_encoded_ones")),
    Mutant("values of columns beside copied ones are not compared", ENCODER, "values=full)", "values=False)", pages("encoded_columns_of_a_splice_are_compared")),
    Mutant("statistics of columns beside copied ones are not compared", ENCODER, "problem = problem or comparison.group_difference(number, rows, values=full)", "problem = problem or (comparison.value_difference(number, rows) if full else '') or comparison.statistics_difference(number, rows)[:0]", pages("encoded_columns_of_a_splice_are_compared")),
    Mutant("all inputs are held", COPY, "                        self._data[self.task.inputs[index].path].release()", "                        pass", pages("large_input_is_spliced_a_row_group_at_a_time")),
    Mutant("checksums of packed pages are not compared", PACKING, "elif zlib.crc32(frame) != _checksum_number(checksum):", "elif False:", PACKED),
    Mutant("stated sizes of packed pages are not compared", PACKING, "if _stated_size(frame) != count:", "if False:", PACKED),
    Mutant("files of other schemas are packed", PACKING, "or not footer_of(contents).startswith(self._start)", "", PACKED),
    Mutant("pages after the first are not packed", PACKING, "if rows is not None and _number(values) != rows:", "if False:", PACKED),
    Mutant("columns of one name become integers", DECODE, " and schema.names.count(field.name) == 1", "", decimals("columns_of_one_name_stay_decimals")),
    Mutant("columns that are no decimals lose their notes", DECIMALS, "not is_decimal or ", "", decimals("notes_of_other_columns_stay")),
    Mutant("decimals of another width lose their notes", DECIMALS, " or get(element, _TYPE) != _PHYSICAL[kind]", "", decimals("notes_of_other_columns_stay")),
    Mutant("columns inside structs get the notes of others", DECIMALS, "is_top = len(to_come) == _TOP and not children", "is_top = not children", decimals("file_of_integers_has_the_bytes_of_a_file_of_decimals")),
    Mutant("decimals are read as integers of another row", DECIMALS, "[2 * values.offset :]", "", decimals("slices_and_nothing_have_their_integers")),
    Mutant("the schema of the last file is that of all", READER, " or not footer_of(contents).startswith(self._start)", "", (f"{_HERE}/test_reader.py",)),
    Mutant("schemas that Arrow stored are not compared", READER, " or stored != self._stored", "", (f"{_HERE}/test_reader.py",)),
    Mutant("strings with many values keep the dictionaries of small files", "columnar/read/source.py", "<= _FEW_VALUES * chunk.values", "<= chunk.values", SOURCE),
    Mutant("texts whose dictionary overflows get one", "columnar/encode.py", "and not _overflows(rows.column(leaf.steps[0]), encoding)", "", SOURCE),
    Mutant("rows that exceed the memory are decoded", "columnar/read/decode.py", "if row_bytes > most_bytes:", "if False:", (f"{_HERE}/test_memory.py::test_row_that_exceeds_the_memory_of_a_task_is_refused_before_it_is_decoded",)),
    Mutant("rows that do not fit by the footer are decoded at once", "columnar/read/decode.py", "sum(size for _, size in _groups(self.parquet))", "0", (f"{_HERE}/test_memory.py::test_texts_that_take_more_than_the_memory_of_a_task_are_streamed_within_it",)),
    Mutant("the indexes of a dictionary take no bytes", "columnar/encode.py", "size_of(dictionary) + len(values) * index_bits // 8 < size", "size_of(dictionary) < size", SOURCE),
    Mutant("numbers that are close together get a dictionary, whatever its size", "columnar/encode.py", "(possible is not None and is_smaller(possible))", "possible is not None", SOURCE),
    Mutant("the whole sample chooses dictionaries, whatever a page holds", "columnar/encode.py", "if size > page_bytes:", "if False:", SOURCE),
    Mutant("a file whose splice failed stays", COPY, "if run.created and not run.complete:", "if False:", pages("interrupted_splice_leaves_no_output")),
    Mutant("files with deletes are spliced", COPY, "any(f.has_deletes for f in task.inputs)", "any(f.has_deletes and not f.has_deletes for f in task.inputs)", pages("deleted_rows_of_a_table_with_plain_columns_only_are_dropped")),
    Mutant("statistics of copied chunks are not compared", STATISTICS, "problem = problem or comparison.column_difference(number, index, found.values, found)", "comparison.column_difference(number, index, found.values, found)", pages("wrong_statistics_of_a_column_without_metrics_are_found")),
    Mutant("rows of a page that are in a second batch are not compared", STATISTICS, "                waiting.append(batch.slice(size))", "                pass", pages("spliced_output_has_the_rows_and_the_metrics_of_an_encoded_one")),
    Mutant("a column that is encoded twice is written", "columnar/splice/splice_file.py", "if path in chunks:", "if False:", splice("column_that_is_encoded_twice_is_an_error")),
    Mutant("bounds of pages are not compared", INDEX, "if not java_order(low) <= java_order(found.lower) or not java_order(high) >= java_order(found.upper):", "if False:", WRONG + BOUNDS),
    Mutant("null counts of pages are not compared", INDEX, "if null_count is not None and null_count != found.nulls and not leaf.repeated:", "if False:", WRONG + ENTRIES),
    Mutant("pages of nulls are not compared", INDEX, "if (is_null == TRUE) == has_values and (has_values or not leaf.repeated):", "if False:", WRONG + ENTRIES),
    Mutant("the page index of encoded columns is not compared", COMPARE, "if difference := index_difference(place, chunk, leaf, group.num_rows, parts):", "if difference := '':", BOUNDS + ENTRIES),
    Mutant("encodings of the levels of a page are not compared", "columnar/parquet/parquet_metadata.py", "if kind == DATA_PAGE and not {get(detail, 3), get(detail, 4)} <= _LEVEL_ENCODINGS:", "if False:", pages("page_whose_header_states_what_arrow_ignores_is_encoded")),
    Mutant("uncompressed sizes of pages are not compared", "columnar/parquet/parquet_metadata.py", "if uncompressed_bytes != get(self.metadata, 6):", "if False:", pages("page_whose_header_states_what_arrow_ignores_is_encoded")),
    Mutant("zeros have no sign in bounds", "columnar/read/leaves.py", "return (value, not np.signbit(value)) if isinstance(value, float) else value", "return value", pages("metrics_of_copied_floats_are_those_of_encoded_ones")),
    Mutant("columns with NaN state bounds", ENCODER, " if without else None", " and None", rewrite("filter_finds_nan_that_a_rewrite_leaves_among_small_numbers")),
    Mutant("pages without a row are written", INDEX, "if leaf.repeated and _has_empty_page(chunk, rows):", "if False:", rewrite("list_of_which_arrow_writes_a_page_without_a_row_is_unsupported")),
    Mutant("a task that ends its process fails the batch", "engines/spark/rewrite/columnar/strategy.py", "if not (crash := _crash(why)):", "if crash := 'crash':", on_spark("batch_whose_task_ends_its_process_is_written_by_native_with_a_note")),
    Mutant("first rows of pages are in any order", INDEX, "or any(b <= a for a, b in pairwise([*starts, rows]))", "", ENTRIES),
    Mutant("statistics of all rows are those of pages in no order", INDEX, "is_sound = pages[0][0] == 0 and all(a < b for a, b in pages)", "is_sound = True", ENTRIES),
    Mutant("statistics of all rows lack the rows before the first page", INDEX, "is_sound = pages[0][0] == 0 and all(a < b for a, b in pages)", "is_sound = all(a < b for a, b in pages)", ENTRIES),
    Mutant("places of pages are not compared", INDEX, "if get(page, 1) != position:", "if False:", ENTRIES),
    Mutant("the end of the last page is not compared", INDEX, "if position != chunk.start + chunk.size:", "if False:", ENTRIES),
    Mutant("rows of page headers are not compared", INDEX, "if [_values_stated(chunk, p) for p in locations] != [b - a for a, b in pairwise([*starts, rows])]:", "if False:", ENTRIES),
    Mutant("the number of pages is not compared", INDEX, "if any(len(column) != len(pages) for column in (*columns, nulls)):", "if False:", ENTRIES),
    Mutant("a shortage of memory is damage", "columnar/storage.py", "    if is_shortage(error):", "    if False:", MEMORY),
    Mutant("a task that ran out of memory is not tried again", "columnar/rewrite.py", "        if not is_shortage(why):\n            raise", "        raise", MEMORY),
    Mutant("the output is held in streaming mode", "columnar/rewrite.py", "size, hold=False)", "size, hold=True)", STREAMING),
    Mutant("a streamed output on storage is not compared with what was written", "columnar/rewrite.py", "if (digest := digest_of(output.chunks())) != sink.digest.hexdigest():", "if not (digest := digest_of(output.chunks())):", (f"{PROOF}::test_output_damaged_on_storage_is_unequal_in_both_modes",)),
    Mutant("a streamed row group is copied before it is compared", "columnar/rewrite.py", "compared = thread.submit(encoder.compared, [group], sink.getvalue())", "compared = thread.submit(ParquetBytes.of, sink.getvalue())", (f"{_HERE}/test_streaming.py::test_later_row_group_with_other_values_is_a_difference",)),
    Mutant("metadata of a copied row group are not compared", "columnar/splice/splice_check.py", "if problem := _copied_metadata(file.chunk(number, index), group.chunks[path]):", "if problem := '':", (f"{SPLICE}::test_planted_damage_of_a_copy_is_a_difference",)),
    Mutant("a slice keeps the dictionary of its table", "columnar/read/leaves.py", "if len(used) == len(dictionary):", "if len(used) <= len(dictionary):", STREAMING),
    Mutant("columns with plain pages keep dictionaries", "columnar/read/source.py", "if not chunk.is_dictionary_encoded:", "if not chunk.has_dictionary:", SOURCE),
    Mutant("page versions are not looked at", "core/planning/row_writer.py", "!= _PAGES:", "!= version:", WRITER),
    Mutant("columns without statistics get some", "core/planning/row_writer.py", '    "write.parquet.stats-enabled.column.": (True, "is written without statistics"),\n', "", WRITER),
    Mutant("row lineage has the mode of other columns", "engines/spark/rewrite/columnar/tasks.py", "    if table.lineage:", "    if False:", on_spark("metrics_of_row_lineage_follow_the_default_of_the_table")),
    Mutant("Spark looks for keys in files that it cannot read", "engines/spark/write_deletes.py", "        native_instead(work.batch, work.table, why)\n", "", on_spark("keys_of_rows_that_spark_cannot_read_must_fit_a_task")),
    Mutant("a shortage of memory in a worker is not looked at", "engines/spark/rewrite/columnar/strategy.py", 'if short := next((r.out_of_memory for r in results if r.out_of_memory), ""):', "if short := '':", on_spark("rows_that_do_not_fit_a_worker_are_written_by_native_with_a_note")),
    Mutant("booleans in runs are copied", RULES, "if wanted.physical_type == BOOLEAN and PLAIN not in get(md, 2)[1]:", "if False:", splice("booleans_as_in_pages_of_version_2_are_encoded")),
    Mutant("chunks of another codec are spliced", RULES, "if get(md, 4) != codec:", "if False:", RULE),
    Mutant("shortened bounds are merged", RULES, "if any(statistics.get(number, (TRUE, None))[0] == FALSE for number in (7, 8)):", "if False:", splice("column_with_shortened_bounds_is_encoded")),
    Mutant("small pages are spliced", RULES, 'return "" if alone or rows >= pages * min_rows_per_page else', 'return "" if alone or rows >= 0 else', RULE),
    Mutant("the bytes of copied pages are not compared", CHECK, "if not _same_bytes(data[position : position + source.size], contents):", "if False:", (SPLICE,)),
    Mutant("an answer that is too short is the file", "machine/files.py", "contents[wanted - len(mark) :].tobytes() == mark", "False", ("iceberg_maint_tests/columnar/test_object_store.py",)),
    # Equality deletes by their keys.
    Mutant("keys: a delete of the same number applies", "columnar/read/deletes.py", "] > sequence_numbers[matched]", "] >= sequence_numbers[matched]", positions("key_that_is_deleted_again_has_its_latest_delete")),
    Mutant("keys: the lowest delete of a key counts", "columnar/read/deletes.py", "np.maximum.at(self._highest, codes, sequence_numbers)", "self._highest[codes[::-1]] = sequence_numbers[::-1]", positions("key_that_is_deleted_again_has_its_latest_delete")),
    Mutant("keys: any column of a key is enough", "columnar/read/deletes.py", "                matched &= found\n", "                matched |= found\n", positions("combination_of_values_of_different_keys_is_no_key")),
    Mutant("keys: null matches no null", "columnar/read/deletes.py", "found = pc.index_in(column, value_set=values)\n    known", "found = pc.index_in(column, value_set=values, skip_nulls=True)\n    known", positions("rows_with_a_deleted_key_are_marked_and_null_equals_null")),
    Mutant("keys: a null struct is a struct of nulls", "columnar/read/deletes.py", "found.append(array.is_valid())", "pass", positions("null_struct_is_not_equal_to_a_struct_of_nulls")),
    Mutant("keys: floating-point keys are compared", "columnar/read/deletes.py", "if column.kind.base in FLOATS:", "if False:", positions("key_of_a_floating_point_type_is_refused")),
    Mutant("positions: positions are of the slice", "columnar/deleted_positions.py", "deleted[bounds[i] : bounds[i + 1]] - starts[i]", "deleted[bounds[i] : bounds[i + 1]]", positions("rows_with_a_deleted_key_are_marked_and_null_equals_null")),
    Mutant("positions: rows that are deleted already are marked", "columnar/deleted_positions.py", "bitmap -= BitMap64(deleted.astype(np.uint64))", "pass", positions("rows_that_are_deleted_already_are_left_out")),
    Mutant("positions: the file's own partition value counts", "columnar/deleted_positions.py", "wanted = {i: v for i, v in self._task.constants.items() if i in field_ids}", "wanted = {}", positions("partition_value_is_that_of_the_manifest_whatever_the_file_holds")),
    Mutant("positions: deletes of other partition values apply", "columnar/deleted_positions.py", "rows = rows.filter(_equals(rows.column(index), *constants[column.field_id]))", "pass", positions("partition_value_is_that_of_the_manifest_whatever_the_file_holds")),
    Mutant("positions: a delete of the partition applies to younger files", "columnar/deleted_positions.py", "            if file.data_sequence_number < newest:\n                yield", "            if True:\n                yield", positions("key_that_is_the_partition_marks_all_rows_of_older_files")),
    Mutant("positions: NULL keys that metadata denies are applied", "columnar/deleted_positions.py", "if column.field_id in delete.without_null and values.null_count:", "if False:", positions("delete_file_with_null_keys_that_its_metadata_denies_is_named")),
    Mutant("positions: a key column that a delete file lacks is null", "columnar/deleted_positions.py", "        if lacking:", "        if False:", positions("delete_file_that_lacks_its_key_column_is_refused")),
    Mutant("positions: a task need not leave out the marked rows", "engines/spark/rewrite/columnar/strategy.py", "    if removed == deleted or (", "    if True or (", ("iceberg_maint_tests/spark/deletes/equality/test_positions_by_arrow.py::test_marks_that_a_columnar_task_does_not_apply_make_the_proof_unequal",)),
    Mutant("positions: a mark may be beyond the file", "columnar/read/deletes.py", "positions[-1] >= file.record_count", "False", ("iceberg_maint_tests/columnar/test_rewrite.py::test_mark_beyond_the_rows_of_a_file_is_refused",)),
    Mutant("statistics of any writer: row groups are not compared", "columnar/check/file_statistics.py", "return problem or _groups_difference(file, table, comparison) or", "return problem or", (f"{_HERE}/test_file_statistics.py",)),
    Mutant("statistics of any writer: the manifest is not compared", "columnar/check/file_statistics.py", "or comparison.end_difference()", "or ''", (f"{_HERE}/test_file_statistics.py::test_wrong_metrics_are_named",)),
    Mutant("statistics of any writer: the last batch counts alone", "columnar/read/leaves.py", "max((p.upper for p in parts if p.upper is not None), key=java_order, default=None)", "parts[-1].upper", (f"{_HERE}/test_file_statistics.py",)),
    Mutant("a NaN bound of a footer is compared", "columnar/check/file_proof.py", "None if isinstance(v, float) and math.isnan(v) else v", "v", (f"{_HERE}/test_file_statistics.py::test_nan_bound_of_a_footer_is_no_bound",)),
    Mutant("the place of a kept dictionary is not compared", CHECK, "if (stated or None) != (expected and expected + shift):", "if False:", (f"{KEPT}::test_place_of_a_dictionary_or_first_page_that_differs_is_found",)),
    Mutant("a merged chunk may have a dictionary", RULES, "if not alone and (get(md, 11)", "if False and (get(md, 11)", (SPLICE,)),
    Mutant("small row groups are kept", COPY, " and len(source.data) >= LEAST_GROUP_BYTES * max(1, len(groups[0]) / _COLUMNS)", "", (f"{KEPT}::test_small_row_groups_are_merged",)),
    Mutant("files of several row groups are kept", COPY, "return len(groups) == 1", "return len(groups) >= 1", (f"{KEPT}::test_file_of_two_row_groups_is_encoded",)),
    Mutant("row groups of small chunks are kept", COPY, " * max(1, len(groups[0]) / _COLUMNS)", "", (f"{KEPT}::test_row_groups_of_small_chunks_are_merged",)),
    Mutant("a decoded column may take more memory than a splice has", COPY, "if max(needed_bytes([self._sources[i] for i in g], spliced) for g in groups) > memory:", "if False:", pages("column_that_takes_more_memory_decoded_than_the_task_has_is_not_decoded_at_once")),
    Mutant("a streamed row group has the rows of a file more", "columnar/row_groups.py", "if decoded_bytes * (rows + file.record_count) > most_bytes * rows:", "if False:", (f"{_HERE}/test_streaming.py::test_row_group_of_whole_files_takes_no_more_than_an_eighth_of_the_memory",)),
    # Damaged inputs.
    Mutant("an index outside of its dictionary is used", READER, "not 0 <= index < size", "False", (f"{_HERE}/test_reader.py::test_index_outside_of_its_dictionary_is_an_error",)),
    Mutant("text that is no UTF-8 is an index outside of its dictionary", READER, "        except pa.ArrowInvalid:", "        except MemoryError:", (f"{_HERE}/test_reader.py::test_text_that_is_no_utf8_is_read_with_its_dictionary",)),
    Mutant("indexes of a row group are not looked at", READER, "return _checked(super().read_row_group(*args, **options))", "return super().read_row_group(*args, **options)", (f"{_HERE}/test_reader.py::test_index_outside_of_its_dictionary_is_an_error",)),
    Mutant("indexes of batches are not looked at", READER, "return map(_checked, super().iter_batches(*args, **options))", "return super().iter_batches(*args, **options)", (f"{_HERE}/test_reader.py::test_index_outside_of_its_dictionary_is_an_error",)),
    Mutant("a file may have fewer rows than its manifest states", DECODE, "if names != []:", "if False:", damaged("file_whose_row_group_has_other_rows_than_its_manifest_states_is_refused")),
    Mutant("the look at many indexes takes negative ones", READER, ".view(np.uint32)", "", (f"{_HERE}/test_reader.py::test_negative_index_is_an_error",)),
    Mutant("a negative index is used", READER, "not 0 <= index <", "not index <", (f"{_HERE}/test_reader.py::test_negative_index_is_an_error",)),
    Mutant("the rows of a file that is read in parts are not counted", DECODE, "        _check_rows(file, start)\n", "", damaged("file_whose_row_group_has_other_rows_than_its_manifest_states_is_refused")),
    Mutant("paths of position deletes may be bytes", "columnar/read/deletes.py", "if _has_form(rows.schema) else None", "", (f"{_HERE}/test_damaged_delete_files.py::test_position_delete_file_whose_paths_are_no_texts_is_refused",)),
    Mutant("a decimal loses its upper half", "columnar/read/decimals.py", "if is_wrong.any():", "if False:", decimals("decimal_that_its_integer_cannot_hold_is_refused")),
    Mutant("a damaged schema is taken for one of integers", "columnar/read/decimals.py", "head(footer, 2, START_OF_FOOTER)", "head(footer, 2)", decimals("footer_with_a_damaged_schema_has_no_integers")),
    Mutant("a chunk of another physical type is copied", RULES, "if get(md, 1) != wanted.physical_type:", "if False:", damaged("chunk_with_another_physical_type_than_its_column_is_not_copied")),
    Mutant("a struct may have other fields than its form", "columnar/parquet/parquet_metadata.py", "return reader.struct(form)", "return reader.struct()", damaged("footer_without_a_field_of_a_column_is_damaged")),
    Mutant("a field of a form may be missing", THRIFT, "if not form.required.keys() <= fields.keys():", "if False:", damaged("page_whose_header_states_no_size_is_damaged")),
    Mutant("an integer may be in place of another field", THRIFT, "if number in rules and kind not in rules[number][0]:", "if False:", damaged("struct_with_other_fields_than_its_form_is_named")),
    Mutant("a text may be in place of another field", THRIFT, "    if kind not in kinds:", "    if False:", damaged("struct_with_other_fields_than_its_form_is_named")),
    Mutant("a list may have other elements than its form", THRIFT, "if size and element not in of_elements:", "if False:", damaged("struct_with_other_fields_than_its_form_is_named")),
    Mutant("an empty list must state the type of its elements", THRIFT, "if size and element not in of_elements:", "if element not in of_elements:", damaged("empty_list_may_state_any_type_of_elements")),
    Mutant("a row group may lack a column", "columnar/parquet/parquet_metadata.py", "if column >= len(chunks):", "if False:", damaged("column_that_a_row_group_lacks_is_damaged")),
    Mutant("a histogram may have another number of levels", "columnar/read/source.py", "if found not in (0, most + 1):", "if False:", (f"{_HERE}/test_size_statistics.py::test_small_file_whose_size_statistics_do_not_fit_is_refused_where_they_end_the_process",)),
    Mutant("numbers may state the bytes of texts", "columnar/read/source.py", "if _TEXT_BYTES in sizes and get(metadata, 1) != BYTE_ARRAY:", "if False:", (f"{_HERE}/test_size_statistics.py::test_small_file_whose_size_statistics_do_not_fit_is_refused_where_they_end_the_process",)),
    Mutant("a small file without a name in UTF-8 ends the task", PACKING, "        UnicodeDecodeError,\n", "", damaged("column_whose_name_is_no_utf8_is_refused_and_its_chunk_is_read_by_its_place")),
    Mutant("a small file with a chunk of an unknown type ends the task", PACKING, "        LookupError,\n", "        IndexError,\n", damaged("chunk_of_an_unknown_type_is_read_as_its_column_says")),
    Mutant("the checksums of pages are not verified", "columnar/parquet/reader.py", "page_checksum_verification=verify", "page_checksum_verification=False", damaged("input_with_a_page_of_another_checksum_is_refused")),
    Mutant("pages are written without checksums", "columnar/encode.py", "write_page_checksum=True", "write_page_checksum=False", damaged("pages_that_are_written_state_their_checksum")),
    Mutant("an imported file's own value of its partition counts", "columnar/read/projection.py", "position = None if column.field_id in constants else by_id.get(column.field_id)", "position = by_id.get(column.field_id)", rewrite("partition_value_is_that_of_the_manifest_whatever_the_file_holds")),
    Mutant("pages of a partition column are copied", "columnar/splice/page_splice.py", " if c.field_id not in partitioned", "", pages("partition_value_of_the_manifest_is_encoded_beside_copied_columns")),
    Mutant("columnar writes a codec that Spark does not read", "core/planning/row_writer.py", "and codec not in CODECS", "and False", WRITER),
    Mutant("Arrow writes pages of 0 rows", "core/model/columns.py", "else 1\n", "else 0\n", ("iceberg_maint_tests/core/decisions/test_unsupported_types.py::test_due_table_is_refused_with_the_property_that_no_writer_takes",)),
    # The sample that Iceberg's reader decodes.
    Mutant("the difference of a sample is none", "engines/spark/rewrite/columnar/strategy.py", "replace(result, difference=sample.difference, sample=sample.text)", "replace(result, sample=sample.text)", ("iceberg_maint_tests/spark/rewrite/test_proof_levels.py::test_fault_on_both_sides_of_arrows_proof_passes_it_and_fails_the_sample",)),
    Mutant("a sample of the inputs has deleted rows", SAMPLE, "deleted=deleted, skipped=skipped", "deleted=None, skipped=skipped", sample("live_rows_and_lineage_of_a_rewrite_are_equal_by_icebergs_reader")),
    Mutant("a sample of the inputs has marked rows", SAMPLE, "            deleted = index\n", "", sample("rows_deleted_by_equality_are_no_rows_of_a_sample")),
    Mutant("a sample of marked rows has deleted ones", SAMPLE, "                index.merge(deleted)\n", "                pass\n", sample("rows_deleted_by_equality_are_no_rows_of_a_sample")),
    Mutant("each sample is of the first row group", SAMPLE, 'number = self._draw.below("row group", len(self._offsets))', "number = 0", sample("later_row_groups_are_compared_with_the_rows_that_deletion_vectors_leave")),
    Mutant("the place of a copied first page is not checked", "columnar/parquet/parquet_metadata.py", "self._check_places(found, has_dictionary=has_dictionary)", "None", (f"{KEPT}::test_kept_chunk_whose_source_states_wrong_metadata_is_encoded",)),
    Mutant("the stated encodings of a copied chunk are not checked", "columnar/parquet/parquet_metadata.py", "if any(not encodings <= stated", "if any(False", (f"{KEPT}::test_kept_chunk_whose_source_states_wrong_metadata_is_encoded",)),
    Mutant("a copied bound may be one that no row has", STATISTICS, "if not problem and (stated.lower, stated.upper)", "if False and (stated.lower, stated.upper)", (f"{KEPT}::test_kept_chunk_whose_source_states_wrong_metadata_is_encoded",)),
    Mutant("an encoded chunk without column index has no offset index", "columnar/splice/splice_file.py", "if offset_index is not None:", "if column_index is not None and offset_index is not None:", (f"{_HERE}/test_page_splice.py::test_texts_too_long_for_a_column_index_are_encoded_beside_spliced_columns",)),
    Mutant("row lineage with nulls to be inherited is copied", "columnar/splice/page_splice.py", "if column in LINEAGE:", "if False:", (f"{_HERE}/test_page_splice.py::test_nulls_of_row_lineage_that_files_have_are_inherited_beside_copied_columns",)),
    # Tasks in the driver's process.
    Mutant("a task begins in the driver after the cancellation", DRIVER, "                if bridge.cancellations != before:\n                    return\n", "", (IN_DRIVER,)),
    Mutant("a cancelled task in the driver is waited for", DRIVER, "            break", "            pass", (IN_DRIVER,)),
    Mutant("results of cancelled tasks in the driver are taken", DRIVER, '    if bridge.cancellations != before:\n        raise CancelledError("the tasks of the batch were cancelled")\n', "", (IN_DRIVER,)),
    Mutant("many values are decoded in the driver", DRIVER, " and values <= MOST_VALUES", "", (IN_DRIVER,)),
    Mutant("large inputs are decoded in the driver", DRIVER, "input_bytes <= MOST_BYTES and ", "", (IN_DRIVER,)),
    Mutant("the declared memory of workers does not hold", "engines/spark/rewrite/columnar/job.py", "        and not _declared(bridge)[0]\n", "", (IN_DRIVER,)),
    Mutant("tasks of an object store run in the driver", "engines/spark/rewrite/columnar/job.py", "        and not io\n", "", (IN_DRIVER,)),
    Mutant("rows of any decoded size are decoded in the driver", "engines/spark/rewrite/columnar/job.py", "in_driver.worker or worker", "worker", (IN_DRIVER,)),
    Mutant("Spark writes the files that the driver wrote", "engines/spark/rewrite/columnar/job.py", "        attempts = 1\n", "", (IN_DRIVER,)),
    Mutant("tasks of a cluster run in the driver", "engines/spark/rewrite/columnar/job.py", "        and bridge.is_local\n", "", (IN_DRIVER,)),
    Mutant("delete files are decoded in the driver", "engines/spark/rewrite/columnar/strategy.py", "None if deletes.files else InDriver", "InDriver", (IN_DRIVER,)),
)
# fmt: on
