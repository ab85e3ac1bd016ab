"""Texts for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.report.formatting import as_invoked

TEXT = "next: iceberg-maint why t, or X=/a dagster dev; ask iceberg-maint."
AS_TYPED = "next: .venv/bin/iceberg-maint why t, or X=/a .venv/bin/dagster dev; ask iceberg-maint."


@pytest.mark.parametrize(
    ("program", "is_on_path", "expected"),
    [
        (".venv/bin/iceberg-maint", False, AS_TYPED),
        (".venv/bin/iceberg-maint", True, TEXT),
        ("/usr/bin/pytest", False, TEXT),
    ],
)
def test_command_is_printed_by_the_path_that_was_typed_if_no_folder_of_path_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, is_on_path: bool, expected: str
) -> None:
    if is_on_path:
        (tmp_path / "iceberg-maint").touch(0o700)
    monkeypatch.setattr("sys.argv", [program])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert as_invoked(TEXT) == expected
