"""An archive of Java's classes for benches that start Spark themselves."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.fleet.tables import write_config
from bench.worker import PROJECT


def write_archive(home: Path) -> None:
    """Lets `iceberg-maint archive-classes` write the archive that the configuration in a folder names."""
    command = [sys.executable, "-m", "iceberg_maint", "archive-classes"]
    subprocess.run([*command, "--config", str(home / "iceberg_maint.yaml")], cwd=PROJECT, check=True)


@contextmanager
def class_archive() -> Iterator[Path]:
    """Gives an archive, which is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-classes-") as folder:
        home = Path(folder)
        archive = home / "classes.jsa"
        with write_config(home).open("a", encoding="utf-8") as config:
            config.write(f"spark: {{class_archive: {archive}}}\n")
        write_archive(home)
        yield archive
