"""The commit gate's rules, as a function of values.

They hold what Iceberg's own validation does not: apache/iceberg#10312 (a newer equality delete
dropped by a rewrite that keeps the starting sequence number), deletes turned around by a foreign
REPLACE, rows moved into or out of a concurrent delete's scope across specs, a pinned snapshot
that is gone, files other than the intended ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.state import FileKind

Scope = tuple[int, tuple[object, ...]]
"""Spec id and raw partition tuple; the tuple is () for an unpartitioned spec."""


class Rule(StrEnum):
    """The gate's rules by the invariant they hold."""

    TABLE_UUID = "table_uuid"
    FENCE = "fence"
    SCHEMA_OR_SPEC = "schema_or_spec"
    PINNED_SNAPSHOT = "pinned_snapshot"
    REMOVED_FILES = "removed_files"
    ADDED_FILES = "added_files"
    LIVE_COUNT = "live_count"
    SEQUENCE_NUMBER = "sequence_number"
    DROPPED_DELETE = "dropped_delete"
    FOREIGN_REPLACE = "foreign_replace"
    SCOPE = "scope"


STALE_RULES = frozenset({Rule.TABLE_UUID, Rule.SCHEMA_OR_SPEC, Rule.PINNED_SNAPSHOT})
"""Rules whose break means that the plan is out of date, not that something is wrong."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule and the fact that breaks it."""

    rule: Rule
    fact: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One manifest entry the gate looked at, inheritance resolved."""

    path: str
    kind: FileKind
    scope: Scope
    data_sequence_number: int
    referenced_data_file: str | None = None
    content_offset: int | None = None

    @property
    def identity(self) -> tuple[str, int | None]:
        """Path, and for deletion vectors the offset of the blob."""
        return self.path, self.content_offset


@dataclass(frozen=True, slots=True)
class AddedFile:
    """One file of the intent: where it goes and where its rows come from."""

    path: str
    scope: Scope
    sources: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class Intent:
    """What the batch means to change."""

    table_uuid: str
    format_version: int
    snapshot_id: int
    snapshot_sequence_number: int
    schema_id: int
    removed: frozenset[str]
    added: Mapping[str, AddedFile]
    droppable_deletes: frozenset[tuple[str, int | None]] = frozenset()


@dataclass(frozen=True, slots=True)
class Foreign:
    """A snapshot between the pinned one (exclusive) and the base (inclusive)."""

    snapshot_id: int
    operation: str
    changes_deletes: bool


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit is about to do, read from base and new metadata.

    `removed_data`/`added_data`: data entries that vanish from or appear in the live set;
    `removed_deletes`: delete entries that vanish; `live_deletes`: delete entries after the
    commit; `lowest_live`: lowest data sequence number of data live after the commit per scope,
    and under None over the whole table; `live_*_count`: live data entries per the manifest
    lists (None where a v1 writer left counts out).
    """

    table_uuid: str
    schema_id: int
    spec_ids: frozenset[int]
    last_sequence_number: int
    new_sequence_number: int
    pinned_in_base: bool
    pinned_is_ancestor: bool
    foreign: tuple[Foreign, ...]
    removed_data: tuple[Entry, ...]
    added_data: tuple[Entry, ...]
    removed_deletes: tuple[Entry, ...]
    added_deletes: tuple[Entry, ...]
    live_deletes: tuple[Entry, ...]
    unpartitioned_specs: frozenset[int]
    base_live_count: int | None
    new_live_count: int | None
