"""Which position deletes of a plan apply to a data file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from iceberg_maint.core.model.delete_rule import Scope, position_delete_reaches, scope_of
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.equality_deletes import EqualityDeletes
from iceberg_maint.core.planning.inputs import InputFile, PositionDeleteFile


class AppliedDeletes:
    """The position delete files and deletion vectors of a plan, by the data files that name them."""

    def __init__(self, deletes: Iterable[PositionDeleteFile]) -> None:
        self._by_path: dict[str, list[PositionDeleteFile]] = defaultdict(list)
        for delete in deletes:
            self._by_path[delete.path].append(delete)

    def of_file(self, file: InputFile) -> tuple[PositionDeleteFile, ...]:
        """Returns the deletes of a file, each once. Several deletion vectors share a path: those of other data files are left
        out."""
        return tuple(
            delete
            for path in dict.fromkeys(file.delete_files)
            for delete in self._by_path.get(path, ())
            if delete.referenced_data_file in (None, file.path)
        )


NO_EQUALITY_DELETES = EqualityDeletes((), {})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live data file with the deletes that apply to it at the pinned snapshot.

    `position_deletes` are position delete files and deletion vectors. `all_equality_deletes` are those of the
    table: one shared value, because the pairs of files and deletes would be too many.
    """

    file: LiveFile
    position_deletes: tuple[LiveFile, ...] = ()
    all_equality_deletes: EqualityDeletes = field(default=NO_EQUALITY_DELETES, repr=False, compare=False)

    @property
    def equality_deletes(self) -> tuple[LiveFile, ...]:
        """The equality deletes that apply to the file, lowest data sequence number first."""
        return self.all_equality_deletes.applying((self.file,))

    @property
    def under_equality_deletes(self) -> bool:
        """Whether an equality delete applies to the file."""
        return self.all_equality_deletes.apply_to(self.file)

    @property
    def file_scoped_delete_ratio(self) -> float:
        """The share of the file's rows marked by deletes that name the file (Iceberg's
        `tooHighDeleteRatio`)."""
        marked = sum(d.record_count for d in self.position_deletes if d.referenced_data_file)
        return min(marked, self.file.record_count) / max(1, self.file.record_count)

    @property
    def marking_deletes(self) -> tuple[LiveFile, ...]:
        """The position deletes that may mark a row. A delete file that is older than the commit of the data
        file marks none: it applies by sequence number if a rewrite kept that number, but it can name only
        files that existed."""
        added = self.file.file_sequence_number or 0
        return tuple(d for d in self.position_deletes if d.data_sequence_number >= added)

    @property
    def has_partition_scoped_deletes(self) -> bool:
        """Whether a position delete file that names no single data file may mark a row."""
        return any(d.referenced_data_file is None for d in self.marking_deletes)


def candidates(
    specs: Mapping[int, PartitionSpec], live_files: Iterable[LiveFile]
) -> dict[PartitionKey, tuple[Candidate, ...]]:
    """Returns the data files by partition key, in the given order, each with the deletes that apply to it by
    the rule of `core.model.delete_rule`."""
    files = tuple(live_files)
    equality = EqualityDeletes.of(specs, files)
    by_path: dict[str, list[LiveFile]] = defaultdict(list)
    by_scope: dict[Scope, list[LiveFile]] = defaultdict(list)
    for file in files:
        if file.kind in (FileKind.DATA, FileKind.EQUALITY_DELETES):
            continue
        if file.referenced_data_file is not None:
            by_path[file.referenced_data_file].append(file)
        else:
            by_scope[scope_of(file)].append(file)
    result: dict[PartitionKey, list[Candidate]] = defaultdict(list)
    for file in files:
        if file.kind is not FileKind.DATA:
            continue
        named = by_path.get(file.path, [])
        # A deletion vector replaces all earlier position deletes of its file.
        positional = [d for d in named if d.kind is FileKind.DELETION_VECTOR] or [
            d
            for d in (*named, *by_scope.get(scope_of(file), ()))
            if position_delete_reaches(d.data_sequence_number, file.data_sequence_number)
        ]
        result[file.partition].append(Candidate(file, tuple(positional), equality))
    return {key: tuple(found) for key, found in result.items()}
