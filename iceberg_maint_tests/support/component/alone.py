"""A Python environment that has Dagster and this package only, as that of a project that the component is added to."""

from __future__ import annotations

import re
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

from iceberg_maint_tests.conftest import PROJECT


def dagster_alone(folder: Path) -> Path:
    """Makes the environment and returns its Python. Its packages are links to those of this environment, so that nothing is
    fetched."""
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    for found in _required("dagster", {}).values():
        for file in found.files or ():
            top = file.parts[0]
            if top not in {"..", "__pycache__"} and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(found.locate_file(top))))
    (packages / "iceberg_maint").symlink_to(PROJECT / "iceberg_maint")
    return folder / "bin" / "python"


def _required(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """The distribution of this name and all that it requires here."""
    from packaging.requirements import Requirement

    normal = re.sub(r"[-_.]+", "-", name).lower()
    if normal in found:
        return found
    found[normal] = distribution(name)
    for line in found[normal].requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            _required(requirement.name, found)
    return found
