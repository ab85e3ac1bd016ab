"""The two assets of a table and their checks, as values: names, texts, partitions, the criterion of each check."""

from __future__ import annotations

from typing import Any

import dagster as dg

from iceberg_maint import __version__
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


def table_spec(
    table: TableId,
    translator: IcebergTranslator,
    condition: dg.AutomationCondition[dg.AssetKey] | None,
) -> dg.AssetSpec:
    """The asset of the data of a table."""
    return dg.AssetSpec(
        translator.get_asset_key(table),
        description=translator.get_description(table),
        partitions_def=dg.DynamicPartitionsDefinition(name=translator.get_partitions_name(table)),
        group_name=translator.get_group_name(table),
        automation_condition=condition,
        **_shared(table, translator),
    )


def housekeeping_spec(
    table: TableId,
    translator: IcebergTranslator,
    condition: dg.AutomationCondition[dg.AssetKey] | None,
) -> dg.AssetSpec:
    """The asset of manifests, snapshots and orphan files of a table, downstream of its data."""
    return dg.AssetSpec(
        translator.get_housekeeping_key(table),
        deps=[translator.get_asset_key(table)],
        description=translator.get_housekeeping_description(table),
        group_name=translator.get_housekeeping_group_name(table),
        automation_condition=condition,
        **_shared(table, translator),
    )


def _shared(table: TableId, translator: IcebergTranslator) -> dict[str, Any]:
    links = {name: dg.MetadataValue.url(url) for name, url in translator.get_links(table).items()}
    return {
        "skippable": True,
        "code_version": __version__,
        "kinds": set(translator.get_kinds(table)),
        "owners": list(translator.get_owners(table)),
        "tags": dict(translator.get_tags(table)),
        "metadata": {**translator.get_metadata(table), **links},
    }


def check_specs(table: TableId, translator: IcebergTranslator) -> list[dg.AssetCheckSpec]:
    """The checks of one table. The partitioned ones use the table's own partitions."""
    key = translator.get_asset_key(table)
    partitions = dg.DynamicPartitionsDefinition(name=translator.get_partitions_name(table))
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
