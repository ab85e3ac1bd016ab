"""The files of a DAGSTER_HOME, from the package."""

from __future__ import annotations

from importlib import resources

INSTANCE = "dagster.yaml"
"""Settings of the Dagster instance. The file at the top of the checkout is a copy."""
WORKSPACE = "workspace.yaml"
"""The code location. The file at the top of the checkout is a copy."""


def home_file(name: str) -> str:
    """The text of `INSTANCE` or `WORKSPACE`."""
    return resources.files("iceberg_maint.defs").joinpath(name).read_text(encoding="utf-8")
