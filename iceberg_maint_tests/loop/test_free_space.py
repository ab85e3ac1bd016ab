"""What is free on the file systems that a failure may be about."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_maint.loop.attempts.attempt import free_space


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB with half of it free."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.getuid() or not shutil.which("mount"):
        pytest.skip("only root mounts a file system")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=False).returncode:
        pytest.skip("this machine mounts no tmpfs")
    (folder / "half").write_bytes(bytes(512 * 1024))
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_each_file_system_is_named_once_with_what_is_free_on_it(full: Path) -> None:
    locations = [f"file://{full}/db/t#1/data", str(full), "s3://bucket/t"]
    assert free_space(locations) == f"Free: {full} 0.5 of 1.0 MiB."
    subprocess.run(["mount", "-o", "remount,ro", full], check=True)
    assert free_space(locations) == f"Free: {full} 0.5 of 1.0 MiB, read-only."
    number = r"[\d,]+\.\d of [\d,]+\.\d MiB"
    assert re.fullmatch(
        f"Free: {full} 0.5 of 1.0 MiB, read-only; /.* {number}.", free_space([*locations, "/"])
    )


def test_store_has_no_free_space() -> None:
    assert free_space(["s3://bucket/t"]) == ""
