"""What was seen is known to the next look, and only as long as it is there."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint.core.removal.orphan_rules import MetadataVersion
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint.removal.table_ownership import SeenFiles, delete_unused

pytestmark = pytest.mark.seconds

FILES = [StoredFile(f"s3://b/t/{n}.metadata.json", n, 1000 + n) for n in range(3)]


VERSIONS = [MetadataVersion(f.path, "mine", n, 100 + n) for n, f in enumerate(FILES)]


def noted(files: list[StoredFile]) -> list[tuple[StoredFile, MetadataVersion]]:
    """The files with what each says."""
    return [(f, MetadataVersion(f.path, "mine", f.size_bytes, 100 + f.size_bytes)) for f in files]


@contextmanager
def look(memo: Path) -> Iterator[SeenFiles]:
    with closing(SeenFiles(memo)) as seen:
        yield seen


def test_files_are_unseen_until_they_are_added(tmp_path: Path) -> None:
    memo = tmp_path / "memo.db"
    with look(memo) as seen:
        assert seen.versions(FILES) == [None, None, None]
        seen.add(noted(FILES[:2]))
    with look(memo) as seen:
        assert seen.versions(FILES) == [*VERSIONS[:2], None]


@pytest.mark.parametrize(
    "other", [{"path": "s3://b/u/1.metadata.json"}, {"size_bytes": 9}, {"modified_ms": 9}]
)
def test_file_of_another_path_size_or_time_is_another(tmp_path: Path, other: dict[str, object]) -> None:
    with look(tmp_path / "memo.db") as seen:
        seen.add(noted(FILES))
        changed = replace(FILES[1], **other)  # type: ignore[arg-type]
        assert seen.versions([changed]) == [None]


def test_file_without_a_time_is_never_seen(tmp_path: Path) -> None:
    timeless = replace(FILES[0], modified_ms=None)
    with look(tmp_path / "memo.db") as seen:
        seen.add(noted([timeless]))
        assert seen.versions([timeless]) == [None]


def test_what_is_gone_is_forgotten_by_a_look_that_ends(tmp_path: Path) -> None:
    memo = tmp_path / "memo.db"
    with look(memo) as seen:
        seen.add(noted(FILES))
    with look(memo) as seen:
        assert seen.versions(FILES[:1]) == VERSIONS[:1]  # a look that is broken off forgets nothing
    with look(memo) as seen:
        assert seen.versions(FILES[:1]) == VERSIONS[:1]
        seen.forget_others()
    with look(memo) as seen:
        assert seen.versions(FILES) == [VERSIONS[0], None, None]
    with closing(sqlite3.connect(memo)) as db:
        assert db.execute("SELECT count(*) FROM owned").fetchone() == (1,)


def test_damaged_memo_is_begun_again(tmp_path: Path) -> None:
    memo = tmp_path / "memo.db"
    memo.write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    with look(memo) as seen:
        assert seen.versions(FILES) == [None, None, None]


def test_caches_that_no_pass_has_used_for_90_days_are_deleted(tmp_path: Path) -> None:
    now_ms = 1_800_000_000_000
    for name, days in (
        ("metadata-dropped.db", 91),
        ("released-killed.db", 91),
        ("metadata-kept.db", 90),
        ("notes", 91),
    ):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now_ms / 1000 - days * 86_400,) * 2)
    delete_unused(tmp_path, now_ms)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["metadata-kept.db", "notes"]
    delete_unused(tmp_path / "missing", now_ms)


def test_look_that_adds_nothing_counts_as_use(tmp_path: Path) -> None:
    memo = tmp_path / "memo.db"
    with look(memo):
        pass
    os.utime(memo, (1, 1))
    with look(memo):
        pass
    assert memo.stat().st_mtime > 1
