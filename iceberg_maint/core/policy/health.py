"""Policy of measurements: section `health`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class HealthSource(StrEnum):
    """Where the health of a table is measured: from its `manifests` in this process, or from Iceberg's metadata
    tables by `spark`. `auto` takes Spark if this process would need more than the declared memory."""

    AUTO = "auto"
    MANIFESTS = "manifests"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Section `health`."""

    source: HealthSource = field(
        default=HealthSource.AUTO,
        metadata={
            "doc": "where health is measured: manifests in this process, spark by Iceberg's metadata tables, auto by "
            "Spark only if the estimate for manifests exceeds health.memory"
        },
    )
    memory: int = field(
        default=1024**3,
        metadata={
            "doc": "bytes of this process that a measurement from manifests may take, by an estimate from the "
            "manifest list, with source auto",
            "minimum": 1024**2,
        },
    )
