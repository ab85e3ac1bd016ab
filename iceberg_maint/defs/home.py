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


def sharded_workspace(count: int) -> str:
    """The text of a workspace file with `count` code locations that share the tables."""
    locations = "".join(
        f"  - python_module:\n      module_name: iceberg_maint.shards\n      attribute: shard_{n}_of_{count}\n"
        f"      location_name: iceberg_maint_{n}\n"
        for n in range(count)
    )
    return (
        f"# {count} code locations. Each has the assets of its share of the tables.\nload_from:\n{locations}"
    )
