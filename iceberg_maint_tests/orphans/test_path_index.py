"""Places of paths: the place by the folder is the place of the whole path."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from iceberg_maint.core.model.location import Equivalences, parse_location
from iceberg_maint.orphans.path_index import PathTables

_STARTS = ("", "/", "//", "file:", "file:/", "file://", "s3://b", "s3a://B", "s3://b//", "S3://b/", "x")
_SEGMENTS = (
    *("", ".", "..", "a", "Ab", "%41", "%2F", "é", "e\u0301", "\u0301", "ß", "a.b", ".h", "s3:"),
    *("\udc80", "a b?#\n"),
)


def test_place_by_folder_of_any_spelling_is_that_of_the_whole_path(tmp_path: Path) -> None:
    same = Equivalences()
    paths = PathTables(tmp_path / "paths.db", ["file:///a", "s3://b/Ab/"], same)

    def whole(text: str) -> tuple[str, bytes, bool]:
        location = parse_location(text, same)
        below = any(
            location.store.casefold() == store and location.key.startswith(start)
            for store, start in (("file://", b"/a/"), ("s3://b", b"/ab/"))
        )
        return location.store, location.key, below

    texts = {
        text
        for start, first, second in itertools.product(_STARTS, _SEGMENTS, _SEGMENTS)
        for text in (start + first, f"{start}{first}/{second}", f"{start}/{first}/a/{second}")
    }
    for text in sorted(texts, key=ascii):
        assert _answer(paths._place, text) == _answer(whole, text), text
    paths.close()


def _answer(place: Callable[[str], tuple[str, bytes, bool]], text: str) -> object:
    try:
        return place(text)
    except ValueError as error:
        return str(error)
