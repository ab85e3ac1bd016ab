"""Chooses what measures a table: its catalog, from manifests, or the engine, from metadata tables."""

from __future__ import annotations

import logging
from typing import Protocol

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.health.source import (
    choose_source,
    exceeds_memory,
    indistinct_fields,
    measuring_bytes,
)
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.health import HealthSource
from iceberg_maint.errors import RefusedError
from iceberg_maint.runner.runtime import Runtime

_log = logging.getLogger(__name__)
_MIB = 1024**2


class Measurer(Protocol):
    """Measures pinned tables."""

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        """Returns the health of the pinned snapshot."""
        ...


def measurer_of(state: TableState, policy: Policy, runtime: Runtime) -> Measurer:
    """Returns what measures this state by the policy. Starts nothing. `state` has the order that its layout is measured
    by.

    Raises RefusedError ICM-177 if the engine has to measure it and this runtime starts none.
    """
    by_engine = choose_source(policy.health, state) is HealthSource.SPARK
    is_auto = policy.health.source is HealthSource.AUTO
    if by_engine and not runtime.measures_by_engine:
        why = _size(state, policy) if is_auto else "health.source is spark"
        raise RefusedError(
            "ICM-177",
            f"{state.table}: {why}, and this command starts no Spark. It was not measured.",
            "observe the table, or set health.source to manifests"
            + (", or raise health.memory." if is_auto else "."),
        )
    if by_engine:
        if is_auto and runtime.engine.progress() is None:
            _log.warning("%s: Spark starts, because %s.", state.table, _size(state, policy))
        return runtime.engine()
    if is_auto and exceeds_memory(policy.health, state):
        _log.warning(
            "ICM-177 %s: %s. Spark does not keep the values of partition field %s apart, so this process measures it.",
            state.table,
            _size(state, policy),
            ", ".join(indistinct_fields(state)),
        )
    return runtime.catalog_of(state.table)


def _size(state: TableState, policy: Policy) -> str:
    return (
        f"measuring it takes up to {measuring_bytes(state) // _MIB} MiB by its manifest list, and health.memory is "
        f"{policy.health.memory // _MIB} MiB"
    )
