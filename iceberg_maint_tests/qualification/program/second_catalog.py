"""A catalog that is not configured, in which a table is registered a second time."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.qualification.program.wide import WideWriters


class SecondCatalog:
    """A JDBC catalog with a database of its own."""

    def __init__(self, bridge: Bridge, folder: Path) -> None:
        self._bridge, self._folder = bridge, folder

    def register(self, name: str, location: str) -> WideWriters:
        """Registers a table of `lake` at this metadata file. Returns writers that commit here."""
        self._catalog.registerTable(self.identifier(name), location)
        return _Writers(self._bridge, self)

    def load(self, name: str) -> Any:
        """The Java table, fresh."""
        return self._catalog.loadTable(self.identifier(name))

    def forget(self, name: str) -> None:
        """Removes the table from this catalog. Its files stay."""
        assert self._catalog.dropTable(self.identifier(name), False)

    def identifier(self, name: str) -> Any:
        """The table without its catalog."""
        return self._bridge.iceberg.catalog.TableIdentifier.parse(name.partition(".")[2])

    @cached_property
    def _catalog(self) -> Any:
        iceberg = self._bridge.iceberg
        catalog = iceberg.jdbc.JdbcCatalog()
        catalog.setConf(self._bridge.spark.sparkContext._jsc.hadoopConfiguration())
        properties = {
            "uri": f"jdbc:sqlite:{self._folder / 'second.db'}",
            "warehouse": (self._folder / "warehouse").as_uri(),
            "jdbc.schema-version": "V1",
        }
        catalog.initialize("second", self._bridge.map(properties.items()))
        parts = self._bridge.array(self._bridge.jvm.java.lang.String, ["program"])
        catalog.createNamespace(iceberg.catalog.Namespace.of(parts))
        return catalog


class _Writers(WideWriters):
    """Writers whose tables are those of the second catalog. Not for statements of Spark."""

    def __init__(self, bridge: Bridge, catalog: SecondCatalog) -> None:
        super().__init__(bridge)
        self._second = catalog

    def load(self, name: str) -> Any:
        return self._second.load(name)
