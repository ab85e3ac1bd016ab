"""Spells the paths of metadata as storage lists them: with the scheme and authority of the listed prefix."""

from __future__ import annotations

from collections.abc import Iterable

from iceberg_maint.core.model.location import Equivalences, parse_location


class PrefixSpelling:
    """The prefixes of one table. A folder is parsed once for files that follow one another."""

    def __init__(self, prefixes: Iterable[str], same: Equivalences) -> None:
        self._same = same
        self._roots = [(prefix.rstrip("/"), parse_location(prefix, same)) for prefix in prefixes]
        self._folder: str | None = None
        self._spelled: tuple[str, str] | None = None

    def below(self, path: str) -> tuple[str, str] | None:
        """Returns the prefix that the path is below, and the rest of the path. None if only another spelling
        of the folders is below a prefix. Raises ValueError for a path that is not a location."""
        folder, _, name = path.rpartition("/")
        if not folder or folder.endswith("/"):  # `s3:/` of `s3://bucket`
            return self._below(path)
        if folder != self._folder:
            self._folder, self._spelled = folder, self._below(f"{folder}/")
        if self._spelled is None:
            return None
        prefix, rest = self._spelled
        return prefix, rest + name

    def _below(self, path: str) -> tuple[str, str] | None:
        place = parse_location(path, self._same)
        for prefix, root in self._roots:
            folder = root.path.rstrip("/")
            if place.store.casefold() == root.store.casefold() and place.path.startswith(f"{folder}/"):
                return prefix, place.path[len(folder) :]
        return None
