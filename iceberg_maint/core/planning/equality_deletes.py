"""Equality deletes: which data files each applies to, which may be dropped, what applying them needs.

Which data a delete applies to is the rule of `core.model.table_state`; this module applies it to many files
and deletes at once. Which columns may be keys: spec, "Equality Delete Files".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import (
    FileKind,
    LiveFile,
    Scope,
    delete_scope,
    equality_delete_reaches,
    scope_of,
)
from iceberg_maint.core.planning.batch_memory import FIELD_BYTES, MemoryNeed
from iceberg_maint.core.planning.work import EqualityDeleteFile

_VARYING = frozenset({"string", "binary"})
_WIDTH_BYTES = {
    "boolean": 1,
    **dict.fromkeys(("int", "date"), 4),
    **dict.fromkeys(("long", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), 8),
    **dict.fromkeys(_VARYING, 24),
    "uuid": 36,
}
"""Bytes of one value. For types of varying width: a width that is usual for keys. A uuid is text in Spark."""
_FOOTER_BYTES = 4096
"""Bytes of a file that may not be keys."""
_WIDTH_BYTES_OF_SIZED = {"decimal": 16, "fixed": 16}


def can_be_key(column_type: str | None) -> bool:
    """Returns whether rows can be matched by a column of this Iceberg type (None: the column does not exist
    now).

    Floating-point columns cannot: Java, Parquet and SQL disagree on which NaN and zero are equal.
    """
    return column_type is not None and (
        column_type in _WIDTH_BYTES or column_type.split("[")[0].split("(")[0] in _WIDTH_BYTES_OF_SIZED
    )


def key_bytes(column_types: Iterable[str]) -> int:
    """Returns the bytes of one key of these columns, estimated by their types."""
    return sum(
        _WIDTH_BYTES.get(t) or _WIDTH_BYTES_OF_SIZED.get(t.split("[")[0].split("(")[0], 8)
        for t in column_types
    )


def beside_bytes(column_types: Iterable[str]) -> int:
    """Returns the bytes that a row of these columns takes in Spark in addition to the `key_bytes`. Every
    field begins at a multiple of eight. A field of more than eight bytes is stored elsewhere, and a second
    field holds its place."""
    found = 0
    for column_type in column_types:
        width = key_bytes((column_type,))
        found += -width % FIELD_BYTES + (FIELD_BYTES if width > FIELD_BYTES else 0)
    return found


@dataclass(frozen=True, slots=True)
class EqualityDeletes:
    """Live equality delete files by the data they apply to, lowest data sequence number first."""

    everywhere: tuple[LiveFile, ...]
    of_scope: Mapping[Scope, tuple[LiveFile, ...]]

    @classmethod
    def of(cls, specs: Mapping[int, PartitionSpec], live_files: Iterable[LiveFile]) -> EqualityDeletes:
        """The equality deletes among these files."""
        everywhere: list[LiveFile] = []
        of_scope: dict[Scope, list[LiveFile]] = defaultdict(list)
        for file in live_files:
            if file.kind is FileKind.EQUALITY_DELETES:
                scope = delete_scope(file, specs)
                (everywhere if scope is None else of_scope[scope]).append(file)
        return cls(_by_age(everywhere), {scope: _by_age(files) for scope, files in of_scope.items()})

    def unsupported(self, key_types: Mapping[int, str]) -> EqualityDeletes:
        """Returns the deletes whose keys cannot be matched."""

        def kept(files: Iterable[LiveFile]) -> tuple[LiveFile, ...]:
            return tuple(d for d in files if has_unsupported_key(d, key_types))

        return EqualityDeletes(kept(self.everywhere), {s: kept(f) for s, f in self.of_scope.items()})

    def apply_to(self, file: LiveFile) -> bool:
        """Returns whether a delete applies to this data file."""
        newest = _newest(self.of_scope.get(scope_of(file), ()))
        return self.apply_everywhere_to(file) or equality_delete_reaches(newest, file.data_sequence_number)

    def apply_everywhere_to(self, file: LiveFile) -> bool:
        """Returns whether a delete of an unpartitioned spec applies to this data file."""
        return equality_delete_reaches(_newest(self.everywhere), file.data_sequence_number)

    def applying(self, data_files: Iterable[LiveFile]) -> tuple[LiveFile, ...]:
        """Returns the deletes that apply to at least one of these data files, lowest data sequence number
        first."""
        oldest: dict[Scope, int] = {}
        for file in data_files:
            scope, number = scope_of(file), file.data_sequence_number
            oldest[scope] = min(number, oldest.get(scope, number))
        found = list(_above(self.everywhere, min(oldest.values()))) if oldest else []
        for scope, number in oldest.items():
            found += _above(self.of_scope.get(scope, ()), number)
        return _by_age(found)

    def dangling(self, data_files: Iterable[LiveFile]) -> tuple[LiveFile, ...]:
        """Returns the deletes that apply to none of these data files, which must be all data files of the
        table."""
        used = {d.path for d in self.applying(data_files)}
        every = (*self.everywhere, *(d for files in self.of_scope.values() for d in files))
        return _by_age(d for d in every if d.path not in used)


@dataclass(frozen=True, slots=True)
class LiveData:
    """Live data files by scope, lowest data sequence number first. They show which deletes are still
    needed."""

    every: tuple[LiveFile, ...]
    of_scope: Mapping[Scope, tuple[LiveFile, ...]]

    @classmethod
    def of(cls, live_files: Iterable[LiveFile]) -> LiveData:
        """Returns the data files among these files."""
        every: list[LiveFile] = []
        of_scope: dict[Scope, list[LiveFile]] = defaultdict(list)
        for file in live_files:
            if file.kind is FileKind.DATA:
                every.append(file)
                of_scope[scope_of(file)].append(file)
        return cls(_by_age(every), {scope: _by_age(files) for scope, files in of_scope.items()})

    def needed_beside(
        self, deletes: Iterable[LiveFile], paths: frozenset[str], specs: Mapping[int, PartitionSpec]
    ) -> frozenset[str]:
        """Returns the paths of the deletes that apply to a data file other than these."""
        oldest: dict[Scope | None, int | None] = {}
        needed: set[str] = set()
        for delete in deletes:
            scope = delete_scope(delete, specs)
            if scope not in oldest:
                files = self.every if scope is None else self.of_scope.get(scope, ())
                oldest[scope] = next((f.data_sequence_number for f in files if f.path not in paths), None)
            number = oldest[scope]
            if number is not None and equality_delete_reaches(delete.data_sequence_number, number):
                needed.add(delete.path)
        return frozenset(needed)


class PlannedReach:
    """The equality deletes of a batch by what they apply to: how many apply to a data file by scope and
    sequence number, whatever column statistics say."""

    def __init__(self, deletes: Iterable[EqualityDeleteFile]) -> None:
        self._numbers: dict[Scope | None, list[int]] = defaultdict(list)
        for delete in sorted(deletes, key=lambda d: d.data_sequence_number):
            scope = None if delete.everywhere else (delete.spec_id, delete.partition)
            self._numbers[scope].append(delete.data_sequence_number)

    def count(self, scope: Scope, data_sequence_number: int) -> int:
        """Returns the number of deletes that apply to a data file of this scope and sequence number."""
        numbers = (self._numbers.get(None, []), self._numbers.get(scope, []))
        # Those for which `equality_delete_reaches` is true are the tail of each list.
        return sum(len(of) - bisect_right(of, data_sequence_number) for of in numbers)


def has_unsupported_key(delete: LiveFile, key_types: Mapping[int, str]) -> bool:
    """Returns whether the delete's keys cannot be matched: it has no key columns, or one that was dropped, is
    inside a list or map, or has a type that `can_be_key` excludes."""
    return not delete.equality_ids or not all(can_be_key(key_types.get(i)) for i in delete.equality_ids)


def planned_deletes(
    deletes: Iterable[LiveFile], kept: frozenset[str], specs: Mapping[int, PartitionSpec]
) -> tuple[EqualityDeleteFile, ...]:
    """Returns the deletes as a batch contains them. The batch drops all except those in `kept` (paths)."""
    return tuple(
        EqualityDeleteFile(
            path=d.path,
            spec_id=d.spec_id,
            partition=d.partition,
            everywhere=delete_scope(d, specs) is None,
            equality_ids=tuple(sorted(d.equality_ids)),
            data_sequence_number=d.data_sequence_number,
            record_count=d.record_count,
            size_bytes=d.size_bytes,
            drop=d.path not in kept,
        )
        for d in deletes
    )


def memory_need(
    deletes: Sequence[LiveFile], rows: int, key_types: Mapping[int, str], correction: float
) -> MemoryNeed:
    """Returns the memory that is needed to apply these deletes to `rows` data rows. Every key counts as wide
    as the widest."""
    return MemoryNeed(
        keys=sum(d.record_count for d in deletes),
        key_bytes=max(widest_key_bytes(deletes, key_types), _stored_key_bytes(deletes, key_types)),
        rows=rows,
        correction=correction,
    )


def widest_key_bytes(deletes: Iterable[LiveFile], key_types: Mapping[int, str]) -> int:
    """Returns the bytes of the widest key among these deletes."""
    return max((key_bytes(key_types[i] for i in ids) for ids in {d.equality_ids for d in deletes}), default=0)


def _stored_key_bytes(deletes: Iterable[LiveFile], key_types: Mapping[int, str]) -> int:
    """Returns the stored bytes of one key, for the widest keys of varying width. A compressed key is wider in
    memory, never narrower."""
    stored: dict[tuple[int, ...], tuple[int, int]] = {}
    for delete in deletes:
        if any(key_types[i] in _VARYING for i in delete.equality_ids):
            size, count = stored.get(delete.equality_ids, (0, 0))
            size += max(0, delete.size_bytes - _FOOTER_BYTES)
            stored[delete.equality_ids] = size, count + delete.record_count
    return max((size // count for size, count in stored.values() if count), default=0)


def key_work_bytes(data_files: Iterable[LiveFile], deletes: Iterable[LiveFile], width_bytes: int) -> int:
    """Returns the bytes that the search for deleted rows reads: the deletes, and the key columns. A key
    column counts as the widest key, at most as the whole file."""
    keys = sum(min(f.size_bytes, f.record_count * width_bytes) for f in data_files)
    return keys + sum(d.size_bytes for d in deletes)


def _by_age(files: Iterable[LiveFile]) -> tuple[LiveFile, ...]:
    return tuple(sorted(files, key=lambda f: (f.data_sequence_number, f.path)))


def _newest(by_age: Sequence[LiveFile]) -> int:
    return by_age[-1].data_sequence_number if by_age else 0


def _above(by_age: Sequence[LiveFile], number: int) -> Sequence[LiveFile]:
    """Returns the deletes for which `equality_delete_reaches` is true of this data sequence number. They are
    the end of the list, because it is sorted."""
    return by_age[bisect_right(by_age, number, key=lambda d: d.data_sequence_number) :]
