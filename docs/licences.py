"""Writes the list of licences of what the program runs with, from what is installed: `make reference`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from iceberg_maint.engines.spark.session.jars import load_lock

PROJECT = Path(__file__).resolve().parent.parent
PAGE = PROJECT / "docs" / "project" / "licences.md"
JARS = {
    "org.apache.iceberg": "Apache-2.0",
    "org.postgresql": "BSD-2-Clause",
    "org.xerial": "Apache-2.0",
}
"""Licences of the jars by group, from their own META-INF."""
HEAD = """\
# Licences

What the program runs with, by the packages' own metadata: everything in `requirements/runtime.txt` that is installed on
this platform, and the jars of `iceberg_maint/engines/spark/session/jars.lock.json`. Written by `make reference`; a test keeps it complete.

"""


def locked() -> list[str]:
    """Names of the runtime lock."""
    text = (PROJECT / "requirements" / "runtime.txt").read_text("utf-8")
    return sorted(set(re.findall(r"^([a-z0-9._-]+)(?:\[[^]]*\])?==", text, re.MULTILINE)))


def licence_of(package: str) -> str:
    """One line: the SPDX expression, else the classifiers, else the first line of the free text. Raises
    LookupError where the package tells none: somebody has to look it up."""
    found = metadata.metadata(package)
    classifiers = [
        c.rpartition(" :: ")[2]
        for c in found.get_all("Classifier") or []
        if c.startswith("License ::") and not c.endswith("OSI Approved")
    ]
    free = (found.get("License") or "").strip().splitlines()
    told = found.get("License-Expression") or ", ".join(classifiers) or (free[0] if free else "")
    if not told:
        raise LookupError(f"{package} tells no licence")
    return told


def packages() -> Iterator[tuple[str, str, str]]:
    """(name, version, licence) of every locked package that is installed."""
    for name in locked():
        try:
            yield name, metadata.version(name), licence_of(name)
        except metadata.PackageNotFoundError:
            continue


def jars() -> Iterator[tuple[str, str, str]]:
    """(coordinate, version, licence) of every locked jar."""
    for jar in load_lock().jars:
        yield f"{jar.group}:{jar.artifact}", jar.version, JARS[jar.group]


def page() -> str:
    """The whole page."""
    rows = [*packages(), *jars()]
    table = "".join(f"| `{name}` | {version} | {licence} |\n" for name, version, licence in rows)
    return f"{HEAD}| Package | Version | Licence |\n|---|---|---|\n{table}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
