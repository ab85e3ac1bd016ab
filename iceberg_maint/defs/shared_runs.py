"""Runs that several tables share: each start of a run and of its Spark costs more than a small table's work.

A shared run selects the assets of its tables and has no partition key: each table's step maintains what is due when
its turn comes, and reports its partitions as any other run does. A table that fails ends its own step only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from iceberg_maint.defs.names import SHARED_TAG, TABLE_TAG
from iceberg_maint.report.formatting import shortened

TABLES_PER_SHARED_RUN = 50
"""Tables in one shared run at most. The work of a run that dies is divided among later ones."""


def tables_of_shared_runs(instance: dg.DagsterInstance) -> frozenset[dg.AssetKey]:
    """Returns the assets of the shared runs that have not ended. Dagster counts no partition of theirs as in progress:
    such a run has no partition key."""
    runs = instance.get_runs(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES, tags={SHARED_TAG: "true"}))
    return frozenset(key for run in runs for key in run.asset_selection or ())


def share_runs(
    requests: Sequence[dg.RunRequest], small: Mapping[dg.AssetKey, str], tags: Mapping[str, str]
) -> Iterator[dg.RunRequest]:
    """Yields the requests, with those for the assets of `small` tables, given as key → name, put together. The others
    stay as they are, and so does everything if fewer than two small tables are requested."""
    shared = sorted({key for request in requests for key in _keys(request) if key in small})
    if len(shared) < 2:
        yield from requests
        return
    for request in requests:
        if (rest := _without(request, shared.__contains__)) is not None:
            yield rest
    for start in range(0, len(shared), TABLES_PER_SHARED_RUN):
        keys = shared[start : start + TABLES_PER_SHARED_RUN]
        names = shortened([small[key] for key in keys])
        yield dg.RunRequest(asset_selection=keys, tags={**tags, SHARED_TAG: "true", TABLE_TAG: names})


def _keys(request: dg.RunRequest) -> Collection[dg.AssetKey]:
    subset = request.asset_graph_subset
    return subset.asset_keys if subset is not None else request.asset_selection or ()


def _without(request: dg.RunRequest, is_shared: Callable[[dg.AssetKey], bool]) -> dg.RunRequest | None:
    """Returns what the request asks for beside the shared assets; None if that is nothing."""
    keys = [key for key in _keys(request) if not is_shared(key)]
    if not keys:
        return None
    subset = request.asset_graph_subset
    if subset is None:
        return request.with_replaced_attrs(asset_selection=keys)
    partitions = {k: s for k, s in subset.partitions_subsets_by_asset_key.items() if not is_shared(k)}
    rest = subset._replace(partitions_subsets_by_asset_key=partitions)
    return dg.RunRequest.for_asset_graph_subset(rest, request.tags)
