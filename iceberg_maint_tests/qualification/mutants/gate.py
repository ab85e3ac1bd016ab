"""Mutants of the commit gate, written by hand: each must turn a test red.

python -m iceberg_maint_tests.qualification.mutants gate [NUMBER…]
"""

from __future__ import annotations

from iceberg_maint_tests.qualification.mutants.mutant import Mutant

_CORE = "iceberg_maint_tests/core/commits"
REWRITE, CONVERSION, DROP, MERGE, MODEL, DIFFERENCE, REACH, IDENTITY, ROW_IDS = (
    (f"{_CORE}/test_{name}.py",)
    for name in (
        *(
            "gate",
            "gate_conversion",
            "gate_drop",
            "gate_merge",
            "gate_model",
            "manifest_diff",
            "delete_scope",
        ),
        "gate_identity",
        "gate_row_ids",
    )
)
ATTESTED = (f"{_CORE}/test_attestation.py",)
EVERY = (*REWRITE, *CONVERSION, *DROP, *MERGE, *DIFFERENCE)
_SPARK = "iceberg_maint_tests/spark/commit"
COMMIT = f"{_SPARK}/test_rewrite_files.py::test_commit"

MUTANTS = (
    # What the plan was made on.
    Mutant("a table recreated is the same table", "core/commits/gate_rules.py", "if base.table_uuid != intent.table_uuid:", "if False:", REWRITE),
    Mutant("an upgraded table is as planned", "core/commits/gate_rules.py", "if base.format_version != intent.format_version:", "if False:", REWRITE),
    Mutant("another schema is as planned", "core/commits/gate_rules.py", "if base.schema_id != intent.schema_id:", "if False:", REWRITE),
    Mutant("specs that are gone are as planned", "core/commits/gate_rules.py", "if missing := planned - base.specs.keys():", "if missing := frozenset():", REWRITE),
    Mutant("the pinned snapshot need not be an ancestor", "core/commits/gate_rules.py", "elif not change.lineage.reaches_pinned:", "elif False:", REWRITE),
    # Whether paths name the files that were planned on.
    Mutant("what is removed may be any file of its path", "core/commits/gate_rules.py", "    for entry in (*change.files.removed, *change.files.arrivals):", "    for entry in change.files.arrivals:", IDENTITY),
    Mutant("what is examined may be any file of its path", "core/commits/gate_rules.py", "    for entry in (*change.files.removed, *change.files.arrivals):", "    for entry in change.files.removed:", IDENTITY),
    Mutant("applied deletes may be gone", "core/commits/gate_rules.py", "    if departures := change.files.departures:", "    if departures := ():", IDENTITY),
    Mutant("a plan need not know its files", "core/commits/gate_rules.py", "    if unknown := {path for path, _ in needed - planned.keys()} | intent.unknown:", "    if unknown := intent.unknown:", IDENTITY),
    Mutant("a plan need not know its deletes", "core/commits/gate_rules.py", "    if unknown := {path for path, _ in needed - planned.keys()} | intent.unknown:", "    if unknown := {path for path, _ in needed - planned.keys()}:", IDENTITY),
    Mutant("a file of another number is the same", "core/commits/planned_files.py", '("data sequence number", self.data_sequence_number, other.data_sequence_number)', '("data sequence number", 0, 0)', IDENTITY),
    Mutant("a file of other rows is the same", "core/commits/planned_files.py", '("rows", self.record_count, other.record_count)', '("rows", 0, 0)', IDENTITY),
    Mutant("a file of another size is the same", "core/commits/planned_files.py", '("bytes", self.size_bytes, other.size_bytes)', '("bytes", 0, 0)', IDENTITY),
    Mutant("files merely moved to other manifests are gone", "core/commits/manifest_diff.py", "    return sorted(departed - arrived, key=lambda i: (i[0], i[1] or 0))", "    return sorted(departed, key=lambda i: (i[0], i[1] or 0))", IDENTITY),
    # What the commit changes beside its files.
    Mutant("the parent may be any snapshot", "core/commits/table_rules.py", "if new.parent_id != base.snapshot_id:", "if False:", REWRITE),
    Mutant("a commit may change the schema along", "core/commits/table_rules.py", "if base_facts != (new.table_uuid, new.format_version, new.schema_id, new.specs):", "if False:", REWRITE),
    # Which files go and come.
    Mutant("files may go that were not planned", "core/commits/gate_rules.py", "if unplanned := removed - intent.removed:", "if unplanned := frozenset():", EVERY),
    Mutant("planned files may stay", "core/commits/gate_rules.py", "if unremoved := intent.removed - removed:", "if unremoved := frozenset():", EVERY),
    Mutant("deletes to be dropped may stay", "core/commits/gate_rules.py", "        intent.dropped - {e.path for e in files.removed},\n", "        frozenset(),\n", EVERY),
    Mutant("deletes to be replaced may stay", "core/commits/gate_rules.py", "        {path for path, _ in intent.replaced - {e.identity for e in files.removed}},\n", "        frozenset(),\n", EVERY),
    Mutant("any delete can be taken over", "core/commits/gate_rules.py", "if older is not None and not _is_taken_over(older, entry):", "if False:", CONVERSION),
    Mutant("a shared delete can be taken over", "core/commits/gate_rules.py", "facts = (older.kind, older.referenced_data_file, older.scope)", "facts = (older.kind, entry.referenced_data_file, older.scope)", CONVERSION),
    Mutant("more positions can be taken over", "core/commits/gate_rules.py", "return same and older.record_count < entry.record_count", "return same", CONVERSION),
    Mutant("files may come that are nobody's", "core/commits/gate_rules.py", "if foreign := added - intended:", "if foreign := frozenset():", EVERY),
    Mutant("written files may be left out", "core/commits/gate_rules.py", "if missing := intended - added:", "if missing := frozenset():", EVERY),
    Mutant("a file may be live twice", "core/commits/gate_rules.py", "for path, _ in files.duplicates:", "for path, _ in ():", EVERY),
    Mutant("kept files may change", "core/commits/gate_rules.py", "for sentence in files.altered:", "for sentence in ():", EVERY),
    Mutant("files are not counted", "core/commits/gate_rules.py", "if files.live_after != expected:", "if False:", REWRITE),
    # Where they lie.
    Mutant("a group may be of two partitions", "core/commits/gate_rules.py", "if len(sources) > 1 or any(scope[0] != group.spec_id for scope in sources):", "if False:", REWRITE),
    Mutant("outputs may be of any spec", "core/commits/gate_rules.py", "if output.scope[0] != group.output_spec_id or elsewhere:", "if elsewhere:", EVERY),
    Mutant("outputs may lie in any partition", "core/commits/gate_rules.py", "if output.scope[0] != group.output_spec_id or elsewhere:", "if output.scope[0] != group.output_spec_id:", EVERY),
    Mutant("rows may move into and out of a newer delete", "core/commits/gate_rules.py", "if scopes and len(applies) > 1:", "if False:", REWRITE),
    Mutant("deletes reach no other spec", "core/commits/delete_scope.py", "return is_global or delete.scope == scope", "return delete.scope == scope", REWRITE),
    # Marks that are added.
    Mutant("marks may be other than written", "core/commits/gate_rules.py", "if said != (kind, data_file, intended.record_count) or data_file not in group.examined:", "if data_file not in group.examined:", CONVERSION),
    Mutant("files may be marked that were not examined", "core/commits/gate_rules.py", "if said != (kind, data_file, intended.record_count) or data_file not in group.examined:", "if said != (kind, data_file, intended.record_count):", CONVERSION),
    Mutant("marks may lie anywhere", "core/commits/gate_rules.py", "            if entry.scope != scope:", "            if False:", CONVERSION),
    Mutant("a data file may get two vectors", "core/commits/gate_rules.py", "if data_file in vectors:", "if False:", CONVERSION),
    Mutant("the old vector may stay beside the new", "core/commits/gate_rules.py", "    for entry in change.files.outlived:", "    for entry in ():", CONVERSION),
    Mutant("files that are gone may be marked", "core/commits/gate_rules.py", "if change.files.lost:", "if False:", CONVERSION),
    # Sequence numbers.
    Mutant("any sequence number will do", "core/commits/gate_rules.py", "if entry.data_sequence_number != expected:", "if False:", EVERY),
    Mutant("data files may be as old as their sources", "core/commits/gate_rules.py", "if entry.data_sequence_number != expected:", "if entry.data_sequence_number > expected:", REWRITE),
    Mutant("data files may be of the future", "core/commits/gate_rules.py", "if entry.data_sequence_number != expected:", "if entry.data_sequence_number < expected:", REWRITE),
    Mutant("deletes newer than the plan may be merged", "core/commits/gate_rules.py", "if number is not None and number > pinned:", "if False:", MERGE),
    # Deletes that vanish.
    Mutant("a newer equality delete may vanish (apache/iceberg#10312)", "core/commits/gate_rules.py", "    yield from _still_needed(Rule.DROPPED_DELETE, unplanned, files.survivors)\n", "", REWRITE),
    Mutant("planned drops need no proof", "core/commits/gate_rules.py", "    yield from _still_needed(Rule.NEEDED_DELETE, planned, unknown)\n", "", DROP),
    Mutant("files that came late count as examined", "core/commits/gate_rules.py", "[e for e in files.survivors if e.path not in examined]", "[]", DROP),
    Mutant("files that were examined still need a delete", "core/commits/gate_rules.py", "[e for e in files.survivors if e.path not in examined]", "list(files.survivors)", (*DROP, *CONVERSION)),
    Mutant("a vector goes though its file stays", "core/commits/delete_scope.py", "renewed.get(e.referenced_data_file, -1) < e.record_count", "False", REACH),
    Mutant("a poorer vector will do", "core/commits/delete_scope.py", "renewed.get(e.referenced_data_file, -1) < e.record_count", "e.referenced_data_file not in renewed", REACH),
    Mutant("deletes of removed files count as needed", "core/commits/delete_scope.py", "        and e.referenced_data_file not in removed_data\n", "", REACH),
    # Row ids.
    Mutant("rows may get ids a second time", "core/commits/gate_rules.py", "if intent.removed and planned_without and base.first_row_id is not None:", "if False:", ROW_IDS),
    Mutant("row ids may be given from any number on", "core/commits/table_rules.py", "if new.first_row_id != base.next_row_id:", "if False:", ROW_IDS),
    Mutant("row ids may be given twice", "core/commits/table_rules.py", "if new.next_row_id < base.next_row_id + rows:", "if False:", ROW_IDS),
    Mutant("a file of other row ids is the same", "core/commits/planned_files.py", '("first row id", self.first_row_id, other.first_row_id)', '("first row id", None, None)', ROW_IDS),
    Mutant("a plan of v3 need not know row ids", "core/commits/planned_files.py", "if f.first_row_id is None)", "if False)", ROW_IDS),
    Mutant("kept files may get other row ids", "core/commits/manifest_diff.py", "    if before.first_row_id is None:\n        after", "    if True:\n        before, after = before._replace(first_row_id=None), after._replace(first_row_id=None)\n        after", ROW_IDS),
    Mutant("entries inherit no row ids", "core/commits/manifest_diff.py", "if row_id is None and next_row_id is not None and status is not deleted:", "if False:", ROW_IDS),
    # What others did since the plan.
    Mutant("others may turn deletes round by a replace", "core/commits/gate_rules.py", "if changes and since.operation not in _VALIDATED_OPERATIONS:", "if False:", REWRITE),
    Mutant("our own merges count as another's", "core/commits/gate_rules.py", "(since.adds_deletes or since.removes_deletes) and not since.ours", "(since.adds_deletes or since.removes_deletes)", REWRITE),
    Mutant("appends add no deletes", "core/commits/gate_rules.py", 'frozenset({"overwrite", "delete"})', 'frozenset({"overwrite", "delete", "append"})', REWRITE),
    Mutant("newer positions of a source are ignored", "core/commits/gate_rules.py", "        if (delete := reach.find(source)) is not None:", "        if (delete := None) is not None:", REWRITE),
    Mutant("newer positions under a new vector are ignored", "core/commits/gate_rules.py", "            sources.append(Entry(entry.referenced_data_file, FileKind.DATA, entry.scope, 0, 0))", "            pass", CONVERSION),
    Mutant("whatever others can have done is staleness", "core/commits/change.py", "all(v.is_stale or not stale.isdisjoint(v.explained_by) for v in violations)", "any(v.is_stale for v in violations)", REWRITE),
    Mutant("one stale rule explains every violation", "core/commits/change.py", "not stale.isdisjoint(v.explained_by)", "bool(stale)", REWRITE),
    Mutant("staleness explains nothing", "core/commits/change.py", "v.is_stale or not stale.isdisjoint(v.explained_by)", "v.is_stale", REWRITE),
    Mutant("a wrong plan is staleness", "core/commits/change.py", "return self.rule in STALE_RULES or (self.raced and self.rule in RACED_RULES)", "return self.rule in STALE_RULES or self.rule in RACED_RULES", REWRITE),
    # Which delete applies to which file.
    Mutant("equality deletes apply to rows of their own commit", "core/commits/delete_scope.py", "if delete is not None and sequence_number < delete.data_sequence_number:", "if delete is not None and sequence_number <= delete.data_sequence_number:", REACH),
    Mutant("positions do not apply to files of their own commit", "core/commits/delete_scope.py", "if shared is not None and sequence_number <= shared.data_sequence_number:", "if shared is not None and sequence_number < shared.data_sequence_number:", REACH),
    Mutant("deletes of an unpartitioned spec are not global", "core/commits/delete_scope.py", "            if delete.kind is FileKind.EQUALITY_DELETES and delete.scope[0] in unpartitioned:", "            if False:", REACH),
    Mutant("the oldest of a scope's deletes counts", "core/commits/delete_scope.py", "if current is None or current.data_sequence_number < delete.data_sequence_number:", "if current is None or current.data_sequence_number > delete.data_sequence_number:", REACH),
    Mutant("manifests are searched for global deletes only", "core/commits/delete_scope.py", "oldest < self._newest_keys.get(manifest.spec_id, -1)", "False", REACH),
    Mutant("manifests are not searched for global deletes", "core/commits/delete_scope.py", "if self._everywhere is not None and oldest < self._everywhere.data_sequence_number:", "if False:", REACH),
    Mutant("manifests are not searched for files by path", "core/commits/delete_scope.py", "            or oldest <= self._newest_of_file\n", "", REACH),
    Mutant("floats of partitions are compared as numbers", "core/commits/change.py", 'struct.pack(">d", v) if isinstance(v, float) else v', "v", REACH),
    Mutant("void fields are partitions", "core/commits/change.py", "    if spec_id in unpartitioned:\n        return spec_id, ()\n", "", REACH),
    # How the change is read.
    Mutant("the lowest number of any manifest is believed", "core/commits/manifest_diff.py", "        checked = pinned_by_path.get(manifest.path) == manifest\n        if by_itself", "        checked = True\n        if by_itself", DIFFERENCE),
    Mutant("a manifest kept under other facts is the same", "core/commits/manifest_diff.py", "if old[path] != now[path]:", "if False:", DIFFERENCE),
    Mutant("what the commit says is believed uncounted", "core/commits/manifest_diff.py", "_accounted(written) == _live_counts(gone)", "True", DIFFERENCE),
    Mutant("kept entries are not compared", "core/commits/manifest_diff.py", "if not _is_same(before[identity], after[identity]):", "if False:", DIFFERENCE),
    Mutant("a manifest's counts are not compared with its list's", "core/commits/manifest_diff.py", "if number is not None and number != counts[status]:", "if False:", DIFFERENCE),
    Mutant("no newer deletes are looked for", "core/commits/manifest_diff.py", "manifest.is_deletes and manifest.sequence_number > intent.snapshot_sequence_number", "False", REWRITE),
    Mutant("manifests the plan did not know are known", "core/commits/manifest_diff.py", "if files is None or not checked:", "if files is None:", DROP),
    Mutant("known manifests are never opened", "core/commits/manifest_diff.py", "SPOT_CHECK_FILES = 10_000", "SPOT_CHECK_FILES = 0", DROP),
    Mutant("vectors go by their file, not by their place in it", "core/commits/change.py", "return self.path, self.content_offset", "return self.path, None", MERGE),
    # The swap itself.
    Mutant("the rules are not asked", "engines/spark/commit/gate.py", "        if self.violations:", "        if False:", (f"{_SPARK}/test_gate.py::test_gate_newer_equality_delete_is_never_dropped",)),
    Mutant("an operation commits as often as it likes", "engines/spark/commit/gate.py", "        if self._used:", "        if False:", (f"{_SPARK}/test_gate.py::test_gate_takes_one_commit_only",)),
    Mutant("a lost lease commits", "engines/spark/commit/gate.py", "        if not self._context.lease_is_held():", "        if False:", (f"{COMMIT}_without_the_lease_raises_before_the_swap",)),
    Mutant("the swap is not recorded first", "engines/spark/commit/gate.py", "        self._context.record_try(self.base_snapshot_id, str(base.metadataFileLocation()))\n", "", (f"{COMMIT}_that_cannot_be_recorded_is_not_tried",)),
    Mutant("a snapshot that has expired is an ancestor", "engines/spark/commit/gate.py", "return Lineage(pinned_exists, False, tuple(since.values()), pinned_row_id)", "return Lineage(True, True, tuple(since.values()), pinned_row_id)", (f"{_SPARK}/test_gate.py::test_gate_expired_start_snapshot_is_stale",)),
    Mutant("a foreign replace is anybody's", "engines/spark/commit/gate.py", "ours=made_by(summary, installation),", "ours=True,", (f"{_SPARK}/test_gate.py::test_gate_equality_delete_converted_by_foreign_replace_is_refused",)),
    # Commits of other tools, judged from metadata.
    Mutant("a kept entry may have another number", "core/commits/attestation.py", '    "data_sequence_number",\n    "partition",', '    "partition",', ATTESTED),
    Mutant("a kept entry may lie in another partition", "core/commits/attestation.py", '    "partition",\n    "record_count",', '    "record_count",', ATTESTED),
    Mutant("a file may become live twice", "core/commits/attestation.py", "            if len(is_) > len(was):", "            if False:", ATTESTED),
    Mutant("a number of the future is as good as any", "core/commits/attestation.py", "            if number > self.after.sequence_number:", "            if False:", ATTESTED),
    Mutant("a file may have two vectors", "core/commits/attestation.py", "counts[p] > 1", "counts[p] > 9", ATTESTED),
    Mutant("rows may be fewer", "core/commits/live_rows.py", "            if before[0] > after[1] or after[0] > before[1]:", "            if after[0] > before[1]:", ATTESTED),
    Mutant("rows may be more", "core/commits/live_rows.py", "            if before[0] > after[1] or after[0] > before[1]:", "            if before[0] > after[1]:", ATTESTED),
    Mutant("a vector marks no row", "core/commits/live_rows.py", "            most += max(0, records - vector)", "            most += records", ATTESTED),
    Mutant("a dropped delete that reaches a live file is no hazard", "core/commits/attestation.py", "        if hits:\n            delete, file = hits[0]", "        if False:\n            delete, file = hits[0]", ATTESTED),
    Mutant("rows may move under a newer delete", "core/commits/live_rows.py", "            if delete is None or all(", "            if True or all(", ATTESTED),
    Mutant("deletes that reach kept files are not sought", "core/commits/attestation.py", "        if not changed:\n            return []\n", "        if changed:\n            return []\n", ATTESTED),
    Mutant("bounds that differ are no hazard", "core/commits/attestation.py", "            if was != is_:\n                end", "            if False:\n                end", ATTESTED),
)  # fmt: skip
