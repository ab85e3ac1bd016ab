"""What a run of a table needs of the op that it is in: Dagster's own context, or that of a run that Dagster launched elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

import dagster as dg


class ReportContext(Protocol):
    """The part that a report of health needs."""

    @property
    def log(self) -> logging.Logger:
        """The log of the run."""

    @property
    def instance(self) -> dg.DagsterInstance:
        """The instance that has the run."""

    @property
    def run(self) -> dg.DagsterRun:
        """The run."""

    def log_event(self, event: Any) -> None:
        """Stores a materialization, an observation or an evaluation of a check."""


class RunContext(ReportContext, Protocol):
    """The whole. Of an asset without its checks, and of checks without their asset, only what is selected is in it."""

    @property
    def retry_number(self) -> int:
        """How many attempts of the step came before."""

    @property
    def selected_asset_keys(self) -> AbstractSet[dg.AssetKey]:
        """The assets that the run materializes."""

    @property
    def has_partition_key(self) -> bool:
        """Whether the run has one partition."""

    @property
    def has_partition_key_range(self) -> bool:
        """Whether the run has a range of partitions."""

    @property
    def partition_keys(self) -> Sequence[str]:
        """The partitions of the run."""
