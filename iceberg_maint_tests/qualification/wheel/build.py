"""Builds the sdist from a copy of the project, and the wheel from the sdist, with the locked build tools.

python -m iceberg_maint_tests.qualification.wheel.build FOLDER
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from iceberg_maint_tests.conftest import PROJECT

FILES = (
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    "dagster.yaml",
    "pyproject.toml",
    "workspace.yaml",
)
FOLDERS = (".ci", "bench", "docs", "iceberg_maint", "iceberg_maint_tests", "requirements")
_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class Built:
    """What was built, and every file of the project that it was built from, by its relative path."""

    sdist: Path
    wheel: Path
    sources: frozenset[str]


def build(folder: Path) -> Built:
    """Builds below `folder`. The checkout gets no file."""
    source, out = folder / "source", folder / "dist"
    source.mkdir()
    out.mkdir()
    for name in FILES:
        shutil.copyfile(PROJECT / name, source / name)
    for name in FOLDERS:
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", ".data"))
    sources = frozenset(str(f.relative_to(source)) for f in source.rglob("*") if f.is_file())
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    _run([sys.executable, "-c", _SDIST, str(out)], source, environ)
    [sdist] = out.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    _run([*pip, "--wheel-dir", str(out), str(sdist)], folder, environ)
    [wheel] = out.glob("*.whl")
    return Built(sdist, wheel, sources)


def main(folder: Path) -> None:
    """Puts the sdist and the wheel into a folder and prints their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        built = build(Path(scratch))
        for archive in (built.sdist, built.wheel):
            print(shutil.copy(archive, folder))


def _run(command: list[str], folder: Path, environ: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
