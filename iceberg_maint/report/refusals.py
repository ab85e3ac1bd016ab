"""Refusals: the public code, the text and the fix of every reason for which a table is refused.

The command line and Dagster show the same text.
"""

from __future__ import annotations

from iceberg_maint.core.decisions.unsupported_types import (
    COLUMNAR_TYPES,
    SPARK_4,
    column_list,
    unsupported_columns,
)
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import shell_argument
from iceberg_maint.core.model.reasons import SENTENCES, Reason
from iceberg_maint.core.removal.clock_agreement import FIX
from iceberg_maint.errors import RefusedError
from iceberg_maint.report.holds import reader_of

_CODES = {
    Reason.UNSUPPORTED_KEY: "ICM-119",
    Reason.MEMORY: "ICM-124",
    Reason.FORMAT_VERSION: "ICM-108",
    Reason.DROPPED_SOURCE: "ICM-131",
    Reason.UNSUPPORTED_TYPE: "ICM-134",
    Reason.WRITER_PROPERTY: "ICM-180",
    Reason.LEASE_HELD: "ICM-109",
    Reason.FOREIGN_MAINTAINER: "ICM-109",
    Reason.APPROVAL_REQUIRED: "ICM-122",
    Reason.GC_DISABLED: "ICM-110",
    Reason.CLOCKS_DISAGREE: "ICM-115",
}
_FIXES = {
    Reason.UNSUPPORTED_KEY: "apply the equality deletes with the engine that wrote them.",
    Reason.MEMORY: "raise equality_deletes.memory, equality_deletes.scratch or spark.driver.memory, or lower "
    "windows.max_files_per_batch.",
    Reason.FORMAT_VERSION: "use a version of this program that supports it.",
    Reason.DROPPED_SOURCE: "set commit.manifest-merge.enabled=false on the table at once, for the commits of other "
    "writers, and write the table again (INSERT OVERWRITE of all of it, or a new table).",
    Reason.UNSUPPORTED_TYPE: "set rewrite_data_files.strategy to auto if it is native; else rewrite the files with an engine that "
    "reads the column, or change its type. Manifests, snapshots and orphan files are maintained.",
    Reason.WRITER_PROPERTY: "correct or unset the property of the table.",
    Reason.LEASE_HELD: "wait until that run ends.",
    Reason.FOREIGN_MAINTAINER: "stop it, or set foreign_maintainers.mode to coexist or ignore; see "
    "`iceberg-maint why {table}`.",
    Reason.APPROVAL_REQUIRED: "read `iceberg-maint orphans scan {table}`. If it is right, run `iceberg-maint orphans "
    "trash {table} --approve DIGEST`.",
    Reason.GC_DISABLED: "none if other tables use these files; else let the table's owner remove gc.enabled=false.",
    Reason.CLOCKS_DISAGREE: FIX,
}


def refusal(table: str, reason: Reason, measured: Measured | None) -> RefusedError | None:
    """The refusal of a table for this reason; None if the reason is no refusal.

    `measured` is the table's stored health: some texts contain values of it.
    """
    code = _CODES.get(reason)
    if code is None:
        return None
    return RefusedError(
        code,
        _message(reason, measured) or f"{SENTENCES[reason]}.",
        _FIXES[reason].format(table=shell_argument(table)),
    )


def _message(reason: Reason, measured: Measured | None) -> str | None:
    """A text with values of this table, if the reason has any."""
    if reason is Reason.DROPPED_SOURCE and measured is not None:
        specs = ", ".join(map(str, measured.specs_losing_values))
        return (
            f"the column by which partition spec {specs} partitions live files was dropped. Iceberg loses their "
            "partitions in any commit that copies their manifests, and deleted rows come back."
        )
    if reason is Reason.UNSUPPORTED_TYPE and measured is not None:
        types = measured.uncommon_types
        evidence = {} if unsupported_columns(types, (COLUMNAR_TYPES,)) else {"read_by": "columnar"}
        columns = column_list(unsupported_columns(types, (*SPARK_4, COLUMNAR_TYPES)) or types)
        return f"{reader_of(evidence)} column {columns}."
    if reason is Reason.WRITER_PROPERTY and measured is not None:
        return f"{measured.wrong_property}."
    if reason is Reason.FOREIGN_MAINTAINER and measured is not None and measured.foreign:
        newest = measured.foreign[0]
        return (
            f"{newest.maintainer} rewrote files of the table in snapshot {newest.snapshot_id}. Two maintainers "
            "undo each other's work."
        )
    return None
