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


def test_command_of_a_module_is_printed_as_the_script_beside_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/x/iceberg_maint/__main__.py", "why"])
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert as_invoked("iceberg-maint why t") == "iceberg-maint why t"
    (tmp_path / "iceberg-maint").touch(0o700)
    assert as_invoked("iceberg-maint why t") == f"{tmp_path}/iceberg-maint why t"


def test_command_is_printed_with_the_configuration_that_was_given_unless_it_names_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/pytest"])
    text = (
        "`iceberg-maint why t` or 'iceberg-maint doctor --config b.yaml'\nask iceberg-maint, or dagster dev"
    )
    assert as_invoked(text, Path("my lake.yaml")) == (
        "`iceberg-maint --config 'my lake.yaml' why t` or 'iceberg-maint doctor --config b.yaml'\n"
        "ask iceberg-maint, or dagster dev"
    )
