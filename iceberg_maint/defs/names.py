"""The files of a DAGSTER_HOME, from the package."""

from __future__ import annotations

from importlib import resources

from iceberg_maint.core.model.reasons import CHECKS_OF_PARTITIONS, CHECKS_OF_TABLES

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
        f"  - python_module:\n      module_name: iceberg_maint.defs.load_definitions\n      attribute: shard_{n}_of_{count}\n"
        f"      location_name: iceberg_maint_{n}\n"
        for n in range(count)
    )
    return (
        f"# {count} code locations. Each has the assets of its share of the tables.\nload_from:\n{locations}"
    )


PARTITION_CHECKS: tuple[str, ...] = tuple(check.value for check in CHECKS_OF_PARTITIONS)
"""Names of the partitioned checks, which start automation."""
QUARANTINE_CHECK = "quarantine"
NO_PROGRESS_CHECK = "no_progress"
ATTESTED_CHECK = "maintenance_attested"
TABLE_CHECKS: tuple[str, ...] = (QUARANTINE_CHECK, NO_PROGRESS_CHECK, ATTESTED_CHECK)
"""Names of the unpartitioned checks, which inform a person."""
HOUSEKEEPING_CHECKS: tuple[str, ...] = tuple(check.value for check in CHECKS_OF_TABLES)
"""Names of the housekeeping asset's checks, which start automation."""
DUE_CHECK = "maintenance_due"
"""Name of a check of both assets, only where another project of Dagster defines them: it fails as long as maintenance is due
now, and starts automation there. Here the automation reads the ledger itself."""
WAITS_CHECK = "maintenance_waits"
"""Name of a check of a table there: it fails when due maintenance has waited for loads and readers for longer than the limit,
and then it no longer waits."""
STDIN = "obeys_stdin"
"""Extra of a run over Dagster Pipes whose process begins no batch once its stdin says anything, and stops in order when it
ends: its parent is gone."""
CARD = "card"
"""Label of the card: the same on a table's observations and materializations, so that one page shows one card."""
EXAMINED = "Examined: healthy. Nothing was changed."
"""Description of the materialization of what was healthy when it was examined first."""

ENGINE_TAG = "iceberg_maint/engine"
"""Run tag of the maintenance runs that the sensors request. `dagster.yaml` limits how many of these runs run
at once."""
TABLE_TAG = "iceberg_maint/table"
"""Run tag with the table's name, of every run that maintains a table. An observe run has the names of its
tables."""
SHARED_TAG = "iceberg_maint/shared_run"
"""Run tag of a run of several tables that a sensor requested. The run has no partition key."""
FORCE_TAG = "iceberg_maint/force"
"""Run tag. With the value `true` a run rewrites its requested partitions even if they are healthy."""
APPROVE_TAG = "iceberg_maint/approve_orphans"
"""Run tag of the housekeeping asset with the digest of a scan: the run moves exactly its orphans to the trash."""
IN_TICK_TAG = "iceberg_maint/in_tick"
"""Run tag of an observe run in the process of a sensor, with the name of its code location."""
OBSERVE_JOB = "observe_iceberg"
