"""The metadata reader of the tries of one commit."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_maint.core.commits import change as module
from iceberg_maint.core.commits.change import MetadataReader, remembering


def test_files_are_read_once_and_live_entries_each_time() -> None:
    reads: list[Any] = []

    def read(*key: Any) -> list[Any]:
        reads.append(key)
        return [key]

    reader = remembering(MetadataReader(read, read, read))
    for _ in range(2):
        assert list(reader.manifest_list("list")) == [("list",)]
        assert list(reader.manifest("m", 1, 2)) == [("m", 1, 2)]
        assert list(reader.manifest("m", 1, 3)) == [("m", 1, 3)]
        assert list(reader.live_entries("whole")) == [("whole",)]  # type: ignore[arg-type]
    assert reads == [("list",), ("m", 1, 2), ("m", 1, 3), ("whole",), ("whole",)]


def test_manifests_beyond_the_bound_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ENTRIES", 3)
    reads: list[str] = []

    def read(path: str, *_: int) -> Any:
        reads.append(path)
        return iter((1, 2))

    reader = remembering(MetadataReader(lambda _: (), read, lambda _: ()))
    for _ in range(2):
        for path in ("a", "b"):
            assert list(reader.manifest(path, 1, 1)) == [1, 2]
    assert reads == ["a", "b", "b"]
