"""Which position deletes of a plan apply to a data file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

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
