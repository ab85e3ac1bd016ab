"""Metadata files outside a table's log, retained against the log as it is when they have been read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint.catalog.local_store import LocalStore
from iceberg_maint.core.removal.orphan_rules import MetadataLog, UnloggedMetadata
from iceberg_maint.errors import RefusedError
from iceberg_maint.removal.second_owner import check_folders
from iceberg_maint_tests.support.removal.layouts import LAYOUTS, Lake

pytestmark = pytest.mark.seconds


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return LAYOUTS[0].build(tmp_path)


class Logs:
    """The logs that the catalog points at, one per look; the last one again and again."""

    def __init__(self, *logs: MetadataLog) -> None:
        self._logs = list(logs)

    def log(self) -> MetadataLog:
        return self._logs.pop(0) if len(self._logs) > 1 else self._logs[0]


class Reads(LocalStore):
    """Notes which files are read."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        self.names.append(path.rpartition("/")[2])
        return super().read(path, most_bytes)


def log_of(lake: Lake, *files: Path, sequence_number: int = 2, updated_ms: int = 2_000) -> MetadataLog:
    """A log from the time 1000 on, whose pointer is the layout's metadata file."""
    pointer = f"file://{folder(lake)}/00009-last.metadata.json"
    return MetadataLog(pointer, sequence_number, updated_ms, 1_000, tuple(f"file://{p}" for p in files))


def folder(lake: Lake) -> Path:
    return Path(lake.folder / "warehouse/db/t/metadata")


def version(lake: Lake, name: str, sequence_number: int, updated_ms: int, *log: tuple[Path, int]) -> Path:
    """Writes a version of the table; `log` is its metadata log."""
    document = json.loads((folder(lake) / "00009-last.metadata.json").read_text())
    document |= {
        "last-sequence-number": sequence_number,
        "last-updated-ms": updated_ms,
        "metadata-log": [{"metadata-file": f"file://{p}", "timestamp-ms": ms} for p, ms in log],
    }
    place = folder(lake) / f"{name}.metadata.json"
    place.write_text(json.dumps(document))
    return place


def check(lake: Lake, *logs: MetadataLog, store: LocalStore | None = None) -> UnloggedMetadata:
    memo = Path(lake.folder) / "memo.db"
    return check_folders(lake.target(), store or LocalStore(), Logs(*logs), memo)  # type: ignore[arg-type]


def test_commit_that_ended_after_the_listing_is_not_newer(lake: Lake) -> None:
    place = version(lake, "00010", 3, 3_000)
    with pytest.raises(RefusedError, match=r"ICM-111 .*00010.metadata.json \(last sequence number 3, "):
        check(lake, log_of(lake))
    committed = replace(log_of(lake, sequence_number=3, updated_ms=3_000), location=f"file://{place}")
    assert check(lake, log_of(lake), log_of(lake), committed) == UnloggedMetadata(0, ())


def test_commit_that_lost_to_one_after_the_listing_is_beside(lake: Lake) -> None:
    place = version(lake, "00010", 3, 3_000)
    since = log_of(lake, sequence_number=3, updated_ms=3_001)
    assert check(lake, log_of(lake), log_of(lake), since) == UnloggedMetadata(1, (f"file://{place}",))


def test_newest_of_the_newer_versions_is_named(lake: Lake) -> None:
    for n in (3, 5, 4):
        version(lake, f"0001{n}", n, 1_000 * n)
    with pytest.raises(RefusedError, match=r"3 metadata files of this table .*00015.metadata.json"):
        check(lake, log_of(lake))


def test_version_that_follows_one_of_another_line_is_refused(lake: Lake) -> None:
    base = version(lake, "00008", 1, 1_500)
    theirs = version(lake, "00009-theirs", 2, 1_600, (base, 1_500))
    assert check(lake, log_of(lake, base)) == UnloggedMetadata(1, (f"file://{theirs}",))
    version(lake, "00010-theirs", 2, 1_700, (base, 1_500), (theirs, 1_600))
    with pytest.raises(RefusedError, match=r"00010-theirs.metadata.json is a version .*00009-theirs"):
        check(lake, log_of(lake, base))


def test_version_that_follows_one_outside_the_log_within_the_tolerance_of_clocks_is_refused(
    lake: Lake,
) -> None:
    """All times lie within a minute, so no time tells the two lines apart."""
    theirs = version(lake, "00008-theirs", 1, 1_100)
    assert check(lake, log_of(lake)) == UnloggedMetadata(1, (f"file://{theirs}",))
    version(lake, "00009-theirs", 2, 1_200, (theirs, 1_100))
    with pytest.raises(RefusedError, match=r"00009-theirs.metadata.json is a version .*00008-theirs"):
        check(lake, log_of(lake))


def test_logs_of_the_hundred_newest_files_only_are_read_again(lake: Lake) -> None:
    for n in range(101):
        version(lake, f"{n:05d}", 1, 1_500 + n)
    check(lake, log_of(lake))
    store = Reads()
    assert check(lake, log_of(lake), store=store).files == 101
    assert store.names == [f"{n:05d}.metadata.json" for n in range(100, 0, -1)]


def test_versions_beside_the_log_are_counted_and_the_five_newest_are_named(lake: Lake) -> None:
    places = [version(lake, f"00008-{n}", 1, 1_500 + n) for n in range(6)]
    newest = tuple(f"file://{place}" for place in reversed(places[1:]))
    assert check(lake, log_of(lake)) == UnloggedMetadata(6, newest)


def test_versions_in_the_log_are_not_read(lake: Lake) -> None:
    base, store = version(lake, "00008", 1, 1_500), Reads()
    assert check(lake, log_of(lake, base), store=store) == UnloggedMetadata(0, ())
    assert store.names == []


def test_folders_of_the_log_are_listed_too(lake: Lake) -> None:
    elsewhere = Path(lake.folder / "warehouse/db/t/moved")
    elsewhere.mkdir()
    place = version(lake, "00010", 3, 3_000).rename(elsewhere / "00010.metadata.json")
    assert check(lake, log_of(lake)) == UnloggedMetadata(0, ())
    with pytest.raises(RefusedError, match=str(place)):
        check(lake, log_of(lake, elsewhere / "00007.metadata.json"))
