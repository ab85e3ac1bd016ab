"""Violations of the commit gate, and which of them mean that a plan is out of date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """The gate's rules by the invariant they protect. docs/design/decisions/gate-checks.md explains each."""

    TABLE_UUID = "table_uuid"
    FORMAT_VERSION = "format_version"
    SCHEMA = "schema"
    SPEC = "spec"
    PINNED_SNAPSHOT = "pinned_snapshot"
    IDENTITY = "identity"
    NEW_DELETE = "new_delete"
    NEEDED_DELETE = "needed_delete"
    LOST_FILE = "lost_file"
    ROW_IDS = "row_ids"
    METADATA = "metadata"
    REMOVED_FILES = "removed_files"
    ADDED_FILES = "added_files"
    KEPT_FILES = "kept_files"
    LIVE_COUNT = "live_count"
    SEQUENCE_NUMBER = "sequence_number"
    DROPPED_DELETE = "dropped_delete"
    SECOND_VECTOR = "second_vector"
    FOREIGN_REPLACE = "foreign_replace"
    SCOPE = "scope"
    RETENTION = "retention"
    SNAPSHOTS = "snapshots"
    REFS = "refs"
    MANIFESTS = "manifests"
    ENTRIES = "entries"
    PENDING_PUBLISH = "pending_publish"


STALE_RULES = frozenset(
    {
        Rule.TABLE_UUID,
        Rule.FORMAT_VERSION,
        Rule.SCHEMA,
        Rule.SPEC,
        Rule.PINNED_SNAPSHOT,
        Rule.IDENTITY,
        Rule.NEW_DELETE,
        Rule.NEEDED_DELETE,
        Rule.LOST_FILE,
        Rule.ROW_IDS,
        Rule.RETENTION,
        Rule.PENDING_PUBLISH,
    }
)
"""Rules whose break means that the plan is out of date, not that something is wrong."""

RACED_RULES = frozenset({Rule.DROPPED_DELETE, Rule.SCOPE, Rule.FOREIGN_REPLACE, Rule.MANIFESTS})
"""Rules that another writer's commit since the plan can break. Then the operation is planned again as
well. Without such a commit the plan itself was wrong."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule and the fact that breaks it. `raced`: another writer committed since the plan.

    `explained_by` are rules whose staleness is the cause of this fact: a source that another writer moved to
    another partition lies outside its group as well.
    """

    rule: Rule
    fact: str
    raced: bool = False
    explained_by: frozenset[Rule] = frozenset()

    @property
    def is_stale(self) -> bool:
        """Whether the operation should be planned again."""
        return self.rule in STALE_RULES or (self.raced and self.rule in RACED_RULES)


def is_stale(violations: Sequence[Violation]) -> bool:
    """Returns whether the plan is out of date: other writers can have broken each broken rule, or a stale rule
    explains it. A violation that staleness does not explain means that something is wrong."""
    stale = {v.rule for v in violations if v.is_stale}
    return all(v.is_stale or not stale.isdisjoint(v.explained_by) for v in violations)
