"""What a metadata file outside the log means, by its numbers and by its own log."""

from __future__ import annotations

import pytest

from iceberg_maint.core.removal.orphan_rules import (
    MetadataLog,
    MetadataVersion,
    Standing,
    UnloggedMetadata,
    newest_first,
    second_line,
    sign,
    standing,
    unlogged,
)

LOG = MetadataLog(
    "v9", last_sequence_number=9, last_updated_ms=900_000, oldest_ms=500_000, files=("v5", "v8")
)


@pytest.mark.parametrize(
    ("sequence_number", "updated_ms", "found"),
    [
        (10, 1, Standing.NEWER),
        (9, 900_001, Standing.NEWER),
        (1, 900_001, Standing.NEWER),
        (None, 900_001, Standing.NEWER),
        (9, 900_000, Standing.BESIDE),
        (9, 500_000, Standing.BESIDE),
        (9, 499_999, Standing.OLDER),
        (None, 499_999, Standing.OLDER),
        (10, 499_999, Standing.NEWER),
    ],
)
def test_standing_is_by_sequence_number_and_time(
    sequence_number: int | None, updated_ms: int, found: Standing
) -> None:
    assert standing(MetadataVersion("x", "mine", sequence_number, updated_ms), LOG) is found


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ((), None),
        ((("v5", 500_000), ("v8", 800_000)), None),  # of a commit on v8 that lost its swap
        ((("v8", 800_000), ("v9", 900_000)), None),
        ((("v3", 300_000), ("v5", 500_000), ("w6", 600_000), ("w7", 700_000)), "w6"),
        ((("v3", 300_000), ("v4", 400_000)), None),  # a version that was trimmed from the log
        ((("v3", 300_000), ("v4", 560_000)), None),  # the clocks of two writers
        ((("v3", 300_000), ("w6", 560_001), ("w7", 700_000)), "w6"),
    ],
)
def test_second_line_is_a_committed_version_that_no_log_of_ours_names(
    entries: tuple[tuple[str, int], ...], found: str | None
) -> None:
    assert second_line(entries, LOG, {"v5", "v8", "v9"}) == found


@pytest.mark.parametrize(("unlogged_files", "found"), [((), None), (("v4",), "v4"), (("v6",), None)])
def test_entry_that_is_itself_outside_our_log_shows_a_second_line(
    unlogged_files: tuple[str, ...], found: str | None
) -> None:
    entries = (("v3", 500_100), ("v4", 500_200))
    assert second_line(entries, LOG, (), unlogged_files) == found


def test_sign_names_the_newest_of_the_files() -> None:
    versions = [MetadataVersion(f"v{n}", "mine", 9, n) for n in (1, 3, 2)]
    assert unlogged(versions, 2) == UnloggedMetadata(3, ("v3", "v2"))
    assert sign(unlogged(versions, 2)).startswith(
        "3 metadata files in the table's folder are not in its metadata log, the newest is v3: "
    )
    assert (sign(None), sign(UnloggedMetadata(0, ()))) == ("", "")


def test_newest_version_is_by_sequence_number_then_by_time_then_by_path() -> None:
    numbers = [(3, 1), (2, 9), (2, 8), (2, None), (None, 9)]
    versions = [MetadataVersion(path, "mine", *both) for path, both in zip("abcde", numbers, strict=True)]
    assert newest_first(reversed(versions)) == versions
    alike = [MetadataVersion(path, "mine", 2, 9) for path in "ba"]
    assert newest_first(reversed(alike)) == alike
