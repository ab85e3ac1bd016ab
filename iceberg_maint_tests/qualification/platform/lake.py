"""A lake of small files by PyIceberg, for the orchestrators of the suite."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

PROGRAM = f"{Path(sys.executable).parent / 'iceberg-maint'}"


@dataclass(frozen=True)
class Lake:
    """A SQLite catalog `lake`, its warehouse and the program's configuration in one folder."""

    folder: Path

    @property
    def configuration(self) -> Path:
        """The configuration: 5 small files are due."""
        file = self.folder / "iceberg_maint.yaml"
        if not file.exists():
            file.write_text(
                f"catalogs:\n  lake:\n    type: jdbc\n"
                f"    uri: sqlite:///{self.folder}/catalog.db\n    warehouse: file://{self.folder}/warehouse\n"
                "defaults:\n  rewrite_data_files: {min_input_files: 5}\n",
                "utf-8",
            )
        return file

    def catalog(self) -> SqlCatalog:
        """PyIceberg's catalog."""
        (self.folder / "warehouse").mkdir(parents=True, exist_ok=True)
        uri, warehouse = f"sqlite:///{self.folder}/catalog.db", f"file://{self.folder}/warehouse"
        return SqlCatalog("lake", uri=uri, warehouse=warehouse)

    def append(self, table: str, commits: int) -> None:
        """Appends that many files of two rows."""
        rows = pa.table({"id": pa.array([1, 2], pa.int64())})
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists(table.split(".", maxsplit=1)[0])
        written = catalog.create_table_if_not_exists(table, rows.schema)
        for _ in range(commits):
            written.append(rows)
        catalog.close()

    def content(self, table: str) -> tuple[int, int]:
        """The numbers of data files and of rows of a table."""
        catalog = self.catalog()
        read = catalog.load_table(table)
        content = len(list(read.scan().plan_files())), read.scan().to_arrow().num_rows
        catalog.close()
        return content
