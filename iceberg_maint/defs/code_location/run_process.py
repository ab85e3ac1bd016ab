"""The run that this process executes.

Dagster imports all definitions of the code location in the process of every run. The run's process needs the assets
that it executes, and no sensor. Dagster does not pass the run to the code that it imports, whatever the launcher: the
run is a local variable of the function that executes it. If a later Dagster has no such variable, the process loads
all definitions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection

import dagster as dg

_EXECUTES_A_RUN = ("core_execute_run", "dagster_run")
"""The function of `dagster._grpc.impl` that every launcher's process calls, and its argument."""


def executed_run() -> dg.DagsterRun | None:
    """Returns the run that the calling process is about to execute. None in every other process."""
    function, variable = _EXECUTES_A_RUN
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_globals.get("__name__") == "dagster._grpc.impl":
            run = frame.f_locals.get(variable)
            return run if isinstance(run, dg.DagsterRun) else None
        frame = frame.f_back
    return None


def executed_keys(
    run: dg.DagsterRun | None, own_jobs: Collection[str], is_ours: Callable[[dg.AssetKey], bool]
) -> frozenset[dg.AssetKey] | None:
    """Returns the keys of the assets that the run's process needs. None if it needs all definitions.

    `own_jobs` are jobs without assets. A run that selects an asset of other definitions, or names no asset,
    may ask for the definition of any asset.
    """
    if run is None:
        return None
    if run.job_name in own_jobs:
        return frozenset()
    keys = {*(run.asset_selection or ()), *(c.asset_key for c in run.asset_check_selection or ())}
    return frozenset(keys) if keys and all(map(is_ours, keys)) else None
