"""The commit gate's rules, as a function of values.

They prevent what Iceberg's own validation does not: apache/iceberg#10312 (a rewrite that keeps the
starting sequence number drops a newer equality delete), deletes that a foreign REPLACE replaces, rows
that move into or out of a concurrent delete's scope across specs, an expired pinned snapshot, and files
other than the intended ones. The rules also repeat what Iceberg does validate, so that no rule relies on
a correctly built operation.

The rule which delete applies to which data file: Iceberg spec, "Scan Planning".

No row gets another id (Iceberg spec, "Row Lineage"). A table that is upgraded to format v3 has no row ids before its next
commit, which gives ids to all rows. A rewrite that was planned before that commit writes rows without ids. Its commit
would give them new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from iceberg_maint.core.commits.change import (
    ROW_IDS_SINCE,
    Change,
    Entry,
    Rule,
    Scope,
    TableVersion,
    Violation,
    scope_of,
)
from iceberg_maint.core.commits.delete_scope import DeleteIndex, covers, dropped_deletes
from iceberg_maint.core.commits.intent import GroupIntent, Intent
from iceberg_maint.core.commits.planned_files import PlannedFile, partition_key
from iceberg_maint.core.commits.table_rules import changes_only
from iceberg_maint.core.model.ids import UNPARTITIONED_KEY, PartitionKey
from iceberg_maint.core.model.partition_key import FIRST_SPEC_ID, decode_partition
from iceberg_maint.core.model.table_state import FileKind


def _row_ids(intent: Intent, change: Change) -> Iterator[Violation]:
    """Yields what would give new ids to rows that have ids."""
    base = change.base
    if base.format_version < ROW_IDS_SINCE:
        return
    lineage = change.lineage
    planned_without = lineage.pinned_exists and lineage.pinned_first_row_id is None
    if intent.removed and planned_without and base.first_row_id is not None:
        yield Violation(Rule.ROW_IDS, "rows have had ids only since the pinned snapshot")


_VALIDATED_OPERATIONS = frozenset({"overwrite", "delete"})
"""Snapshot operations whose new deletes a rewrite validates (MergingSnapshotProducer,
VALIDATE_ADDED_DELETE_FILES_OPERATIONS). Iceberg does not check deletes added by any other operation."""


_REGISTERED_AGAIN = frozenset({Rule.IDENTITY, Rule.TABLE_UUID})
_UNKNOWN_BASE = frozenset({Rule.TABLE_UUID, Rule.SPEC, Rule.PINNED_SNAPSHOT})
_UPGRADED = frozenset({Rule.FORMAT_VERSION, Rule.TABLE_UUID})
"""What explains a violation: a file that names another one, a base without what the plan stands on, or a
table of another format version."""


def check(intent: Intent, change: Change) -> tuple[Violation, ...]:
    """Returns every rule the commit would break; () if it may be committed.

    In format v1 all sequence numbers are 0 and there are no delete files: SEQUENCE_NUMBER checks 0 = 0,
    and the rules about deletes have nothing to check.
    """
    violations = (
        *_planned_on(intent, change),
        *_identities(intent, change),
        *changes_only(change.base, change.new, "files"),
        *_files(intent, change),
        *_groups(intent, change),
        *_added_deletes(intent, change),
        *_sequence_numbers(intent, change),
        *_dropped_deletes(intent, change),
        *_foreign_replaces(change),
        *_new_deletes(change),
        *_row_ids(intent, change),
    )
    raced = any(not since.ours for since in change.lineage.since)
    return tuple(replace(v, raced=raced) for v in violations) if raced else violations


def _planned_on(intent: Intent, change: Change) -> Iterator[Violation]:
    base = change.base
    if base.table_uuid != intent.table_uuid:
        yield Violation(
            Rule.TABLE_UUID, f"the table is {base.table_uuid}, the plan was for {intent.table_uuid}"
        )
    if base.format_version != intent.format_version:
        yield Violation(
            Rule.FORMAT_VERSION,
            f"format version is {base.format_version}, was {intent.format_version}",
        )
    if base.schema_id != intent.schema_id:
        yield Violation(Rule.SCHEMA, f"schema is {base.schema_id}, was {intent.schema_id}")
    planned = {s for g in intent.groups for s in (g.spec_id, g.output_spec_id)}
    if missing := planned - base.specs.keys():
        yield Violation(Rule.SPEC, f"the table no longer has partition specs {sorted(missing)}")
    if not change.lineage.pinned_exists:
        yield Violation(Rule.PINNED_SNAPSHOT, f"snapshot {intent.snapshot_id} has expired")
    elif not change.lineage.reaches_pinned:
        yield Violation(Rule.PINNED_SNAPSHOT, f"snapshot {intent.snapshot_id} is no ancestor of main's head")


def _identities(intent: Intent, change: Change) -> Iterator[Violation]:
    """Each path of the plan must still name the file that was planned on. A file that was removed and
    registered again has a new sequence number, so other deletes apply to it. A delete that another writer
    took back must not be applied."""
    planned, specs = intent.planned, change.base.specs
    needed = {(path, None) for path in intent.removed | intent.examined | intent.dropped} | intent.replaced
    if unknown := {path for path, _ in needed - planned.keys()} | intent.unknown:
        yield Violation(Rule.IDENTITY, f"the plan does not say which files {_first_three(unknown)} were")
    keys: dict[Scope, PartitionKey] = {}
    for entry in (*change.files.removed, *change.files.arrivals):
        planned_file = planned.get(entry.identity)
        if planned_file is None:
            continue
        if entry.scope not in keys:
            keys[entry.scope] = partition_key(entry.scope, specs)
        if difference := planned_file.difference(PlannedFile.of_entry(entry, keys[entry.scope])):
            yield Violation(Rule.IDENTITY, f"{entry.path} is another file than was planned on: {difference}")
    if departures := change.files.departures:
        yield Violation(
            Rule.IDENTITY,
            f"delete file {_first_three(p for p, _ in departures)} of the plan is no longer live",
        )


def _files(intent: Intent, change: Change) -> Iterator[Violation]:
    files = change.files
    removed = {e.path for e in files.removed if e.kind is FileKind.DATA}
    if unplanned := removed - intent.removed:
        yield Violation(Rule.REMOVED_FILES, f"would remove {_first_three(unplanned)}, which was not planned")
    if unremoved := intent.removed - removed:
        yield Violation(Rule.REMOVED_FILES, f"would not remove {_first_three(unremoved)}")
    gone = {path for path, _ in files.departures}
    for undropped in (
        intent.dropped - {e.path for e in files.removed},
        {path for path, _ in intent.replaced - {e.identity for e in files.removed}},
    ):
        if undropped:
            cause = _REGISTERED_AGAIN if undropped <= gone else _UNKNOWN_BASE
            yield Violation(
                Rule.REMOVED_FILES, f"would not drop {_first_three(undropped)}", explained_by=cause
            )
    added = {e.identity for e in files.added}
    intended = {(path, None) for path in intent.added} | {d.identity for d in intent.deletes}
    if foreign := added - intended:
        yield Violation(
            Rule.ADDED_FILES, f"would add {_first_three(p for p, _ in foreign)}, which is not of the batch"
        )
    if missing := intended - added:
        yield Violation(Rule.ADDED_FILES, f"would not add {_first_three(p for p, _ in missing)}")
    if not intent.added.isdisjoint(intent.removed):
        yield Violation(Rule.ADDED_FILES, f"adds and removes {_first_three(intent.added & intent.removed)}")
    for path, _ in files.duplicates:
        yield Violation(Rule.KEPT_FILES, f"{path} is live twice")
    for sentence in files.altered:
        yield Violation(Rule.KEPT_FILES, sentence)
    if files.live_before is not None and files.live_after is not None:
        expected = files.live_before - len(intent.removed) + len(intent.added)
        if files.live_after != expected:
            yield Violation(
                Rule.LIVE_COUNT,
                f"{files.live_after} live data files after the commit, expected {expected}",
            )


def _groups(intent: Intent, change: Change) -> Iterator[Violation]:
    """Each group's files must lie in their planned scope. A delete newer than the pinned snapshot must
    apply to both a file and its replacement or to neither: older deletes were applied when the sources
    were read."""
    base = change.base
    removed = {e.path: e for e in change.files.removed if e.kind is FileKind.DATA}
    added = {e.path: e for e in change.files.added}
    newer = [d for d in change.files.new_deletes if d.kind is FileKind.EQUALITY_DELETES]
    for group in intent.groups:
        sources = {removed[p].scope for p in group.removed if p in removed}
        outputs = [added[p] for p in group.added if p in added]
        if len(sources) > 1 or any(scope[0] != group.spec_id for scope in sources):
            yield Violation(
                Rule.REMOVED_FILES,
                f"a group of spec {group.spec_id} contains files of {_first_three(sources)}",
                explained_by=_REGISTERED_AGAIN,
            )
        for output in outputs:
            if output.kind is not FileKind.DATA:
                yield Violation(Rule.ADDED_FILES, f"{output.path} is not a data file")
            elsewhere = group.output_spec_id == group.spec_id and sources - {output.scope}
            if output.scope[0] != group.output_spec_id or elsewhere:
                as_planned = output.scope == _scope_of(group, base)
                yield Violation(
                    Rule.ADDED_FILES,
                    f"{output.path} lies in {output.scope}, its rows in {_first_three(sources)}",
                    explained_by=_REGISTERED_AGAIN if as_planned else frozenset(),
                )
        scopes = {output.scope for output in outputs}
        for delete in newer:
            applies = {covers(delete, s, base.unpartitioned_specs) for s in sources | scopes}
            if scopes and len(applies) > 1:
                yield Violation(
                    Rule.SCOPE,
                    f"equality delete {delete.path} (sequence number {delete.data_sequence_number}, "
                    "after the pinned snapshot) applies to a file or its replacement, not to both",
                )


def _added_deletes(intent: Intent, change: Change) -> Iterator[Violation]:
    """Each added delete must mark positions of one live data file of its group, in that file's spec and
    partition (apache/iceberg#16957: elsewhere it makes scans fail). A data file may have at most one
    deletion vector. A position delete file that an added one takes over must mark no other data file, and not
    more positions."""
    added = {e.identity: e for e in change.files.added}
    removed = {e.identity: e for e in change.files.removed}
    kind = FileKind.POSITION_DELETES if change.base.format_version == 2 else FileKind.DELETION_VECTOR
    vectors: set[str] = set()
    for group in intent.groups:
        scope = _scope_of(group, change.base) if group.deletes else None
        for intended in group.deletes:
            entry, data_file = added.get(intended.identity), intended.data_file
            if entry is None:
                continue
            said = (entry.kind, entry.referenced_data_file, entry.record_count)
            if said != (kind, data_file, intended.record_count) or data_file not in group.examined:
                yield Violation(
                    Rule.ADDED_FILES,
                    f"{entry.path} is not a {kind} with {intended.record_count} positions of a file of the batch: "
                    f"{entry.kind}, {entry.record_count}, {entry.referenced_data_file}",
                    explained_by=_UPGRADED if said[1:] == (data_file, intended.record_count) else frozenset(),
                )
            if entry.scope != scope:
                yield Violation(
                    Rule.ADDED_FILES,
                    f"{entry.path} lies in {entry.scope}, its data file in {scope}",
                    explained_by=_UNKNOWN_BASE if scope is None else frozenset(),
                )
            for path in intended.takes_over:
                older = removed.get((path, None))
                if older is not None and not _is_taken_over(older, entry):
                    yield Violation(
                        Rule.REMOVED_FILES,
                        f"{entry.path} with {entry.record_count} positions of {data_file} takes over {path}: "
                        f"{older.kind}, {older.record_count}, {older.referenced_data_file}",
                    )
            if kind is FileKind.DELETION_VECTOR and data_file is not None:
                if data_file in vectors:
                    yield Violation(Rule.SECOND_VECTOR, f"would add two deletion vectors of {data_file}")
                vectors.add(data_file)
    for entry in change.files.outlived:
        if entry.kind is FileKind.DELETION_VECTOR:
            yield Violation(
                Rule.SECOND_VECTOR,
                f"would add a deletion vector of {entry.referenced_data_file} and not remove {entry.path}",
            )
    if change.files.lost:
        yield Violation(Rule.LOST_FILE, f"{_first_three(change.files.lost)} to be marked is no longer live")


def _is_taken_over(older: Entry, entry: Entry) -> bool:
    facts = (older.kind, older.referenced_data_file, older.scope)
    same = facts == (FileKind.POSITION_DELETES, entry.referenced_data_file, entry.scope)
    return same and older.record_count < entry.record_count


def _scope_of(group: GroupIntent, base: TableVersion) -> Scope | None:
    """Returns the scope of the group's data files. None if its key names no partition of the table."""
    if group.partition == UNPARTITIONED_KEY:
        return group.spec_id, ()
    try:
        spec_id, values = decode_partition(group.partition, base.specs, FIRST_SPEC_ID)
    except ValueError:
        return None
    return scope_of(spec_id, values, base.unpartitioned_specs)


def _sequence_numbers(intent: Intent, change: Change) -> Iterator[Violation]:
    """Every added data file must have the pinned snapshot's sequence number. A lower one applies old
    deletes to newer rows, and a higher one voids deletes added since. An added delete must have the
    commit's own number. If it replaces other deletes, it must have theirs: a higher one could apply to a
    file added since under the same path."""
    replaced_numbers = {d.identity: d.data_sequence_number for d in intent.deletes}
    pinned = intent.snapshot_sequence_number
    for identity, number in replaced_numbers.items():
        if number is not None and number > pinned:
            yield Violation(
                Rule.SEQUENCE_NUMBER,
                f"{identity[0]} replaces deletes with sequence number {number}, which is after the plan's",
            )
    for entry in change.files.added:
        replaced = replaced_numbers.get(entry.identity)
        expected = change.new.sequence_number if replaced is None else replaced
        if entry.kind is FileKind.DATA:
            expected = pinned
        if entry.data_sequence_number != expected:
            yield Violation(
                Rule.SEQUENCE_NUMBER,
                f"{entry.path} has data sequence number {entry.data_sequence_number}, not {expected}",
                explained_by=_UPGRADED if intent.format_version == 1 else frozenset(),
            )


def _dropped_deletes(intent: Intent, change: Change) -> Iterator[Violation]:
    """A delete file that vanishes must not apply to any live data file. A delete that the plan drops was
    examined against the files that the plan knew. If it still applies, it applies to a file that the plan
    did not know."""
    unpartitioned, files = change.base.unpartitioned_specs, change.files
    void = dropped_deletes(files.removed, files.added)
    unplanned = DeleteIndex((d for d in void if not intent.drops(d)), unpartitioned)
    yield from _still_needed(Rule.DROPPED_DELETE, unplanned, files.survivors)
    planned = DeleteIndex((d for d in void if intent.drops(d)), unpartitioned)
    examined = intent.examined
    unknown = [e for e in files.survivors if e.path not in examined]
    yield from _still_needed(Rule.NEEDED_DELETE, planned, unknown)


def _still_needed(rule: Rule, reach: DeleteIndex, survivors: Iterable[Entry]) -> Iterator[Violation]:
    hits = [(delete, data) for data in survivors if (delete := reach.find(data)) is not None]
    if hits:
        delete, data = hits[0]
        more = f" and {len(hits) - 1} more data files" if len(hits) > 1 else ""
        yield Violation(
            rule,
            f"delete file {delete.path} (sequence number {delete.data_sequence_number}) would vanish "
            f"and still applies to {data.path} ({data.data_sequence_number}){more}",
        )


def _foreign_replaces(change: Change) -> Iterator[Violation]:
    """Our own replacing commits drop only deletes that this gate has proved void. They add deletes only
    as replacements, with the same marks and the same sequence number. What they mark since the plan
    counts like new deletes."""
    for since in change.lineage.since:
        changes = (since.adds_deletes or since.removes_deletes) and not since.ours
        if changes and since.operation not in _VALIDATED_OPERATIONS:
            yield Violation(
                Rule.FOREIGN_REPLACE,
                f"snapshot {since.snapshot_id} ({since.operation}) changed delete files since the plan",
            )


def _new_deletes(change: Change) -> Iterator[Violation]:
    """Position deletes and deletion vectors since the pinned snapshot must not mark a file that is
    replaced, or one that gets a deletion vector: the vector would hide them or be the second."""
    positions = [d for d in change.files.new_deletes if d.kind is not FileKind.EQUALITY_DELETES]
    reach = DeleteIndex(positions, change.base.unpartitioned_specs)
    sources = [e for e in change.files.removed if e.kind is FileKind.DATA]
    for entry in change.files.added:
        if entry.kind is FileKind.DELETION_VECTOR and entry.referenced_data_file is not None:
            sources.append(Entry(entry.referenced_data_file, FileKind.DATA, entry.scope, 0, 0))
    for source in sources:
        if (delete := reach.find(source)) is not None:
            yield Violation(
                Rule.NEW_DELETE,
                f"delete file {delete.path} came after the pinned snapshot and applies to {source.path}",
            )


def _first_three(items: Iterable[object]) -> str:
    """Returns up to three items, and the number of the others."""
    listed = sorted(map(str, items))
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + more
