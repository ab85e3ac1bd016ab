"""The folder of the race and its configuration."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from iceberg_maint.config.load import Config, load_config
from iceberg_maint.demo.store import LOCAL, LakeStore
from iceberg_maint.demo.workspace import refuse_other, write_config

_POLICY = """\
defaults:
  # Two minutes are short: equality deletes are due at once, and a failed attempt is repeated soon.
  rewrite_data_files: {equality_delete_max_age_seconds: 0}
  retry: {backoff_seconds: 1, backoff_max_seconds: 5}
"""


@dataclass(frozen=True, slots=True)
class RacePlace:
    """The folder of one race."""

    root: Path

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "iceberg_maint.yaml"

    @property
    def journal(self) -> Path:
        """The results of the writer's commits."""
        return self.root / "acknowledged.jsonl"

    @property
    def said(self) -> Path:
        """The output of the writer's process."""
        return self.root / "writer.log"

    def prepare(self, environ: Mapping[str, str], store: LakeStore = LOCAL) -> Config:
        """Deletes the folder and creates it with its configuration for the store. Raises ConfigurationError ICM-100 for a
        folder with other content."""
        refuse_other(self.root, self.config, "race")
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        write_config(self.config, "make demo DEMO=race", _POLICY, store)
        return load_config(self.config, environ)
