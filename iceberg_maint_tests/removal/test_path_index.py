"""Places and spellings of paths: those by the folder are those of the whole path."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from iceberg_maint.core.model.location import Equivalences, parse_location
from iceberg_maint.core.removal.orphan_rules import Kept
from iceberg_maint.core.removal.released_file_rules import ReleasedFile, ReleasedKind
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.released_lists import PrefixSpelling

pytestmark = pytest.mark.seconds

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

    for text in _texts():
        assert _answer(paths._place, text) == _answer(whole, text), text
    paths.close()


def test_spelling_by_folder_is_that_of_the_whole_path() -> None:
    spelling = PrefixSpelling(["file:///a", "s3://b/Ab/"], Equivalences())
    spelled = 0
    for text in _texts():
        answer, whole = _answer(spelling.below, text), _answer(spelling._below, text)
        # An error names the folder or the whole path.
        assert answer == whole or (isinstance(answer, str) and isinstance(whole, str)), text
        spelled += isinstance(answer, tuple)
    assert spelled > 0


def test_files_without_references_are_those_without_a_reached_path_and_without_a_name_elsewhere(
    tmp_path: Path,
) -> None:
    paths = PathTables(tmp_path / "paths.db", ["file:///a"], Equivalences())
    files = [ReleasedFile(f"file:///a/{n}", ReleasedKind.DATA, 1, 7, 9) for n in range(1_203)]
    paths.add_reached(("/a/0", "file:/a/501", "file:///a/1202"), Kept.REACHABLE)
    paths.add_reached(("s3://elsewhere/x/700",), Kept.REACHABLE)

    assert paths.without_references(files) == [
        f for f in files if f.path[10:] not in {"0", "501", "700", "1202"}
    ]
    assert paths.without_references([]) == []
    paths.close()


def test_released_files_without_a_reached_path_are_counted_wherever_they_are(tmp_path: Path) -> None:
    paths = PathTables(tmp_path / "paths.db", ["file:///a"], Equivalences())
    names = ("file:///a/1", "file:///a/2", "file:///b/3")
    paths.index()
    assert paths.unreferenced() == 0
    paths.add_released(ReleasedFile(n, ReleasedKind.DATA, 1, 7, 9) for n in names)
    assert paths.unreferenced() == 3
    paths.add_reached(("/a/1",), Kept.REACHABLE)
    assert paths.unreferenced() == 2
    paths.close()


def test_listed_file_whose_encoded_dots_lead_out_of_the_prefix_stays(tmp_path: Path) -> None:
    paths = PathTables(tmp_path / "paths.db", ["file:///a/t"], Equivalences())
    out, orphan = "/a/t/data/p=%2F..%2F..%2F..%2Fx/1", "/a/t/data/p=x/2"
    paths.add_listed((StoredFile(path, 1, 1), None) for path in (out, orphan))
    paths.add_reached((), Kept.REACHABLE)
    paths.index()
    assert [o.path for o in paths.orphans()] == [orphan]
    assert paths.counts().kept == {Kept.HIDDEN: 1}
    paths.close()


def _texts() -> list[str]:
    texts = {
        text
        for start, first, second in itertools.product(_STARTS, _SEGMENTS, _SEGMENTS)
        for text in (start + first, f"{start}{first}/{second}", f"{start}/{first}/a/{second}")
    }
    return sorted(texts, key=ascii)


def _answer(place: Callable[[str], object], text: str) -> object:
    try:
        return place(text)
    except ValueError as error:
        return str(error)


def test_object_at_which_some_clients_look_for_a_reached_path_is_no_orphan(tmp_path: Path) -> None:
    paths = PathTables(tmp_path / "paths.db", ["s3://b/t"], Equivalences())
    listed = [StoredFile(f"s3://b/t/{name}", 1, 1) for name in ("a", "a#1", "a?x#y", "b", "b#1")]
    paths.add_listed((file, None) for file in listed)
    paths.add_reached(("s3://b/t/a#1", "s3://b/t/c?1"), Kept.REACHABLE)
    paths.index()
    assert [o.path[9:] for o in paths.orphans()] == ["a?x#y", "b", "b#1"]
    assert list(paths.unlisted()) == ["s3://b/t/c?1"]
    assert paths.counts().kept == {Kept.REACHABLE: 1, Kept.NAMED_ELSEWHERE: 1}
    paths.close()


def test_file_that_is_gone_is_closed_without_an_error(tmp_path: Path) -> None:
    paths = PathTables(tmp_path / "paths.db", ["file:///a"], Equivalences())
    (tmp_path / "paths.db").unlink()
    paths.close()
    assert list(tmp_path.iterdir()) == []


def test_listed_file_below_no_prefix_is_refused(tmp_path: Path) -> None:
    paths = PathTables(tmp_path / "paths.db", ["file:///a"], Equivalences())
    with pytest.raises(
        ValueError, match=r"^the listing contains file:///b/1, which is not below a listed prefix$"
    ):
        paths.add_listed([(StoredFile("file:///b/1", 1, 9), None)])
    paths.close()
