"""The checks of a table that its two assets have, and the criterion of each."""

from __future__ import annotations

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import CRITERIA
from iceberg_maint.defs.names import (
    ATTESTED_CHECK,
    HOUSEKEEPING_CHECKS,
    NO_PROGRESS_CHECK,
    PARTITION_CHECKS,
    QUARANTINE_CHECK,
    TABLE_CHECKS,
)
from iceberg_maint.defs.translator import IcebergTranslator

DESCRIPTIONS = {
    **{check.value: criterion for check, criterion in CRITERIA.items()},
    QUARANTINE_CHECK: "No partition is quarantined.",
    NO_PROGRESS_CHECK: "The table can be read, and its maintenance has an effect.",
    ATTESTED_CHECK: "No commit that claims to change no row contradicts that, as far as it was read.",
}
"""Check → its criterion, which a check that passes shows."""


def check_specs(
    table: TableId, partitions: dg.PartitionsDefinition, translator: IcebergTranslator
) -> list[dg.AssetCheckSpec]:
    """The checks of one table. The partitioned ones use the table's own partitions."""
    key = translator.get_asset_key(table)
    return [
        dg.AssetCheckSpec(
            name,
            asset=key,
            description=DESCRIPTIONS[name],
            partitions_def=partitions if name in PARTITION_CHECKS else None,
        )
        for name in (*PARTITION_CHECKS, *TABLE_CHECKS)
    ]


def housekeeping_check_specs(table: TableId, translator: IcebergTranslator) -> list[dg.AssetCheckSpec]:
    """The checks of a table's housekeeping, which concern the table as a whole."""
    key = translator.get_housekeeping_key(table)
    return [
        dg.AssetCheckSpec(name, asset=key, description=DESCRIPTIONS[name]) for name in HOUSEKEEPING_CHECKS
    ]
