"""Translator: names and descriptions of tables in Dagster."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import dagster as dg

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import FORCE_TAG
from iceberg_maint.report.page import markdown_code

_HOUSEKEEPING = "__housekeeping"
"""End of the last part of the key of a housekeeping asset, and of its group."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""The characters of a part of an asset key. Dagster derives names of outputs and checks from it
(`AssetKey.to_python_identifier`, which accepts a dot too; only parts that are encoded here have one)."""


class IcebergTranslator:
    """Maps a table to its asset key, group, owners, tags, kinds, description, partitions and pool.

    Assets, checks, sensors and jobs take these names from the translator only. Subclass it, override
    methods, and pass an instance to `build_definitions`:

        class LakeTranslator(IcebergTranslator):
            def get_owners(self, table: TableId) -> Sequence[str]:
                return [f"team:{table.namespace[0]}"]

    Every method is a function of the table alone: Dagster loads definitions many times and must find
    the same names each time. Different tables need different asset keys, partitions names and pools.
    """

    def __init__(self, prefix: Sequence[str] = (), configuration: str | None = None) -> None:
        self.prefix = tuple(prefix)
        """Parts before every asset key, which keep them apart from the keys of assets that load the tables."""
        self._references: Mapping[str, object] = {}
        if configuration is not None:
            file = dg.LocalFileCodeReference(file_path=configuration, label="configuration")
            value = dg.CodeReferencesMetadataValue(code_references=[file])
            self._references = {"dagster/code_references": value}

    def get_asset_key(self, table: TableId) -> dg.AssetKey:
        """`prefix / catalog / namespace… / table`, with each part as in the catalog if Dagster accepts it.

        Another part becomes plain letters, a dot and a digest of its name in the catalog. The same holds
        for the name of a table that ends with `__housekeeping`. Different tables have different keys.
        """
        parts = [p if _PLAIN.fullmatch(p) else _encoded(p) for p in table.parts]
        if table.name.endswith(_HOUSEKEEPING):
            parts[-1] = _encoded(table.name)
        return dg.AssetKey([*self.prefix, *parts])

    def get_housekeeping_key(self, table: TableId) -> dg.AssetKey:
        """Key of the table's housekeeping asset: the table's own key, its last part with `__housekeeping`."""
        *parents, name = self.get_asset_key(table).path
        return dg.AssetKey([*parents, f"{name}{_HOUSEKEEPING}"])

    def get_fleet_key(self, name: str) -> dg.AssetKey:
        """Key of an asset of the fleet as a whole, such as `fleet_report`."""
        return dg.AssetKey([*self.prefix, name])

    def get_check_key(self, table: TableId, check: str) -> dg.AssetCheckKey:
        """Key of one check of the table."""
        return dg.AssetCheckKey(self.get_asset_key(table), check)

    def get_housekeeping_check_key(self, table: TableId, check: str) -> dg.AssetCheckKey:
        """Key of one check of the table's housekeeping."""
        return dg.AssetCheckKey(self.get_housekeeping_key(table), check)

    def get_group_name(self, table: TableId) -> str:
        """Asset group: catalog and namespace."""
        return re.sub(r"[^A-Za-z0-9_]", "_", "__".join(table.parts[:-1]))

    def get_housekeeping_group_name(self, table: TableId) -> str:
        """Asset group of the housekeeping: that of the tables, with `__housekeeping`."""
        return f"{self.get_group_name(table)}{_HOUSEKEEPING}"

    def get_owners(self, table: TableId) -> Sequence[str]:  # noqa: ARG002 - for subclasses
        """Owners of both assets: e-mail addresses, or `team:` and a name."""
        return ()

    def get_tags(self, table: TableId) -> Mapping[str, str]:  # noqa: ARG002 - for subclasses
        """Tags of both assets."""
        return {}

    def get_kinds(self, table: TableId) -> frozenset[str]:  # noqa: ARG002 - for subclasses
        """Kinds of both assets, which Dagster shows as icons; at most three."""
        return frozenset({"iceberg", "spark"})

    def get_links(self, table: TableId) -> Mapping[str, str]:  # noqa: ARG002 - for subclasses
        """Links of both assets, text to URL, such as a dashboard or a runbook. The definition metadata shows
        them."""
        return {}

    def get_description(self, table: TableId) -> str:
        """Description of the table's asset."""
        return (
            f"Iceberg table {markdown_code(str(table))}. Materializing a partition maintains it; a healthy one is not "
            f"changed unless the run has the tag `{FORCE_TAG}: true`. Ranges of partitions follow the "
            "order in which the partitions were first observed.\n\n"
            "**Materialized** is a partition that was healthy when it was examined first, or that maintenance "
            "has healed. **Missing** is a partition that was due when it was examined first and waits for its "
            "first maintenance, or that was not examined yet; its rows are all there. The checks show the "
            "present health of both."
        )

    def get_housekeeping_description(self, table: TableId) -> str:
        """Description of the table's housekeeping asset."""
        return (
            f"Housekeeping of {markdown_code(str(table))}: manifests, snapshots and orphan files, maintained by the table's "
            "policy. The metadata of the checks shows in advance what would be removed: `snapshots` shows the "
            "snapshots that would expire, `orphan_files` the trash and when it may be swept."
        )

    def get_metadata(self, table: TableId) -> Mapping[str, object]:
        """Definition metadata of both assets: the table's name, and the configuration file as their code."""
        return {"dagster/table_name": str(table), **self._references}

    def get_partitions_name(self, table: TableId) -> str:
        """Name of the table's dynamic partitions; such names are global to a Dagster instance."""
        return f"iceberg/{table}"

    def get_op_name(self, table: TableId) -> str:
        """Name of the op that maintains the table's data."""
        return f"maintain__{slug(table)}"

    def get_housekeeping_op_name(self, table: TableId) -> str:
        """Name of the op that maintains manifests, snapshots and orphan files of the table."""
        return f"housekeep__{slug(table)}"

    def get_pool(self, table: TableId) -> str:
        """Pool of all ops that commit maintenance to the table; its limit is one."""
        return f"iceberg_table__{slug(table)}"


def slug(table: TableId) -> str:
    """A name of letters, digits and underscores, different for different tables."""
    text = "__".join(table.parts)
    plain = re.sub(r"[^A-Za-z0-9_]", "_", text)
    ambiguous = plain != text or any("__" in p or p.strip("_") != p for p in table.parts)
    return f"{plain}_{digest(str(table))[:8]}" if ambiguous else plain


def digest(text: str) -> str:
    """SHA-256 of a name, hexadecimal. The name need not be valid Unicode."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _encoded(part: str) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', part)}.{digest(part)[:16]}"
