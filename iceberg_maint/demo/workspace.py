"""The folder of the demo lake and its configuration file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from iceberg_maint.config.load import Config, load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import INSTANCE, home_file
from iceberg_maint.demo.store import LOCAL, LakeStore
from iceberg_maint.errors import ConfigurationError

CATALOG = "lake"
NAMESPACE = "demo"

_LAKE = """\
ledger: sqlite:///{root}/ledger.db
catalogs:
  lake:
{catalog}spark:
  master: local[2]
{jars}  conf:
    spark.driver.memory: 1g
    spark.sql.shuffle.partitions: 2
    spark.default.parallelism: 2
    # Runs of a few seconds: Java's second compiler would cost more time than it saves. For one compiler Java reserves
    # 48 MiB of code, and Spark stops when they are full.
    spark.driver.defaultJavaOptions: -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC
"""
_POLICY = """\
defaults:
  # The default waits five minutes after the first failed attempt.
  retry: {backoff_seconds: 30}
tables:
  # Equality deletes are due after an hour by default; here they are due at once.
  "lake.demo.cdc_*": {rewrite_data_files: {equality_delete_max_age_seconds: 0}}
  # So few small files are rewritten at once by default; in two tables the demo shows a conversion.
  "lake.demo.cdc_planes": {equality_deletes: {route: convert}}
  "lake.demo.cdc_flights_v3": {equality_deletes: {route: convert}}
  # Snapshots stay five days by default; here all but the newest may expire at once.
  "lake.demo.weather_by_day": {expire_snapshots: {max_snapshot_age_seconds: 0, min_snapshots_to_keep: 5}}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of one demo lake and its contents."""

    root: Path

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "iceberg_maint.yaml"

    @property
    def dagster_home(self) -> Path:
        """Home of the Dagster instance."""
        return self.root / "dagster_home"

    @property
    def before(self) -> Path:
        """Folder of DuckDB's Parquet copies from before the maintenance."""
        return self.root / "before"

    @property
    def sources(self) -> Path:
        """Folder of source data for the lake."""
        return self.root / "sources"

    @property
    def built(self) -> Path:
        """This file exists after every table of the lake was written."""
        return self.root / "built"

    def prepare(self, environ: Mapping[str, str], store: LakeStore = LOCAL) -> Config:
        """Creates the folders, writes the configuration for the store if there is none, sets up the Dagster instance
        with the project's `dagster.yaml`, and loads the configuration.

        Raises ConfigurationError ICM-100 for a folder with other content or that cannot be created.
        """
        refuse_other(self.root, self.config, "demo lake")
        for folder in (self.root, self.before, self.sources, self.dagster_home):
            make_folder(folder)
        if not self.config.exists():
            write_config(self.config, "iceberg-maint demo", _POLICY, store)
        (self.dagster_home / INSTANCE).write_text(home_file(INSTANCE), encoding="utf-8")
        # Without this file Dagster's UI opens with an invitation to its newsletter.
        newsletter_file = self.dagster_home / ".nux" / "nux.yaml"
        newsletter_file.parent.mkdir(exist_ok=True)
        newsletter_file.write_text("seen: 1\n", encoding="utf-8")
        return load_config(self.config, environ)

    def clear(self) -> None:
        """Deletes the lake and everything in its folder. A folder without a lake stays."""
        if self.config.exists():
            shutil.rmtree(self.root)


def refuse_other(root: Path, config: Path, what: str) -> None:
    """Raises ConfigurationError ICM-100 for a folder that is not empty and lacks this configuration file."""
    if root.exists() and not root.is_dir():
        raise ConfigurationError("ICM-100", f"{root} is no folder.", "name another one with --data.")
    if root.exists() and any(root.iterdir()) and not config.exists():
        raise ConfigurationError(
            "ICM-100", f"{root} is not empty and holds no {what}.", "name another folder with --data."
        )


def make_folder(folder: Path) -> None:
    """Creates a folder of the lake and its parents. Raises ConfigurationError ICM-100 if this fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise ConfigurationError(
            "ICM-100", f"{folder} cannot be created: {why.strerror}.", "name another folder with --data."
        ) from why


def write_config(config: Path, command: str, policy: str, store: LakeStore = LOCAL) -> None:
    """Writes the configuration of the lake whose ledger is in the file's folder."""
    text = f"# Written by `{command}`; the lake is maintained with it like any other lake.\n"
    lake = _LAKE.format(
        root=config.parent,
        catalog=store.catalog_yaml(config.parent),
        jars=f"  jars: [{', '.join(map(str, store.jars))}]\n" if store.jars else "",
    )
    config.write_text(f"{text}{lake}{policy}", encoding="utf-8")


def place(root: Path) -> Place:
    """The demo lake in this folder."""
    return Place(root.absolute())


def table_id(name: str) -> TableId:
    """A table of the demo."""
    return TableId(CATALOG, (NAMESPACE,), name)
