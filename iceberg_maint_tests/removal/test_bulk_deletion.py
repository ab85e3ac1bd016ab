"""The sweep deletes many files by one request, and each file keeps its own checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from iceberg_maint.catalog.local_store import LocalStore
from iceberg_maint.core.removal.orphan_rules import TrashedFile
from iceberg_maint.errors import FenceLostError, IcebergMaintError
from iceberg_maint.removal.store_requests import deleted_in_bulk

pytestmark = pytest.mark.seconds


class BulkStore(LocalStore):
    """Deletes up to three files per request, except those whose names it refuses. `requests` are the files of each."""

    bulk = 3

    def __init__(self, *, refused: tuple[str, ...] = (), lies: bool = False) -> None:
        self.refused, self.lies = refused, lies
        self.requests: list[list[str]] = []
        self.single: list[str] = []

    def delete_bulk(self, paths: Sequence[str]) -> frozenset[str]:
        self.requests.append([Path(p).name for p in paths])
        refused = frozenset(p for p in paths if Path(p).name in self.refused)
        for path in set(paths) - refused:
            if not self.lies:
                super().delete(path)
        return refused

    def delete(self, path: str) -> None:
        self.single.append(Path(path).name)
        if Path(path).name == "denied":
            raise PermissionError(path)
        super().delete(path)


def trashed(folder: Path, *names: str) -> list[TrashedFile]:
    for name in names:
        (folder / name).write_bytes(b"x")
    return [TrashedFile(f"/t/{name}", str(folder / name), 1, 1, "") for name in names]


@pytest.fixture
def trash(tmp_path: Path) -> Path:
    (tmp_path / "trash").mkdir()
    return tmp_path / "trash"


def fates(
    store: BulkStore,
    trash: Path,
    lines: list[TrashedFile],
    *,
    reached: tuple[str, ...] = (),
    lease: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, bool]]:
    pairs = iter([(line, Path(line.path).name in reached) for line in lines])
    results = deleted_in_bulk(pairs, str(trash), store, trash.parent / "rows.db", lease)
    return ((Path(line.path).name, gone) for line, gone in results)


def test_files_go_by_requests_of_the_size_that_the_store_takes(trash: Path) -> None:
    store, lines = BulkStore(), trashed(trash, "a", "b", "c", "d")
    assert dict(fates(store, trash, lines)) == dict.fromkeys("abcd", True)
    assert (store.requests, store.single) == ([["a", "b", "c"], ["d"]], [])
    assert list(trash.iterdir()) == []
    assert list(trash.parent.glob("*.db")) == []


def test_referenced_file_file_of_another_size_and_unlisted_file_are_in_no_request(trash: Path) -> None:
    store, lines = BulkStore(), trashed(trash, "gone", "live", "other", "orphan")
    (trash / "gone").unlink()
    (trash / "other").write_bytes(b"another file")
    assert dict(fates(store, trash, lines, reached=("live",))) == {
        "live": False,
        "other": False,
        "orphan": True,
    }
    assert store.requests == [["orphan"]]
    assert sorted(p.name for p in trash.iterdir()) == ["live", "other"]


def test_file_that_the_request_does_not_delete_is_deleted_by_its_own(trash: Path) -> None:
    store, lines = BulkStore(refused=("b",)), trashed(trash, "a", "b", "c")
    assert dict(fates(store, trash, lines)) == dict.fromkeys("abc", True)
    assert (store.requests, store.single) == ([["a", "b", "c"]], ["b"])


def test_error_of_one_file_comes_after_the_others_are_counted(trash: Path) -> None:
    store, lines = BulkStore(refused=("b", "denied")), trashed(trash, "denied", "a", "b", "d")
    counted: list[tuple[str, bool]] = []
    results = map(counted.append, fates(store, trash, lines))
    with pytest.raises(PermissionError):
        list(results)
    assert counted == [("a", True), ("b", True)]
    assert sorted(p.name for p in trash.iterdir()) == ["d", "denied"]


def test_lost_lease_stops_before_the_next_request(trash: Path) -> None:
    store, lines = BulkStore(), trashed(trash, "a", "b", "c", "d")
    answers = iter((True, False))

    def require() -> None:
        if not next(answers):
            raise FenceLostError("lost")

    with pytest.raises(FenceLostError):
        list(fates(store, trash, lines, lease=require))
    assert store.requests == [["a", "b", "c"]]
    assert [p.name for p in trash.iterdir()] == ["d"]


def test_file_that_is_still_listed_after_its_deletion_is_an_error(trash: Path) -> None:
    with pytest.raises(IcebergMaintError, match=r"ICM-153 .*still lists it"):
        list(fates(BulkStore(lies=True), trash, trashed(trash, "a")))
