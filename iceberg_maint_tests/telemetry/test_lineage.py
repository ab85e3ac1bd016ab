"""OpenLineage events of runs: their types, and what a receiver gets over HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from openlineage.client.event_v2 import RunState

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.integrations.telemetry import telemetry
from iceberg_maint.integrations.telemetry.lineage import end_of
from iceberg_maint_tests.cli.conftest import UNKNOWN, Lake, lake_of
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.telemetry.receivers import Gateway
from iceberg_maint_tests.support.telemetry.values import record
from iceberg_maint_tests.telemetry.test_receivers import settings


@pytest.mark.parametrize(
    ("status", "reason", "event"),
    [
        (OutcomeStatus.IMPROVED, Reason.SMALL_FILES, RunState.COMPLETE),
        (OutcomeStatus.NO_OP, Reason.NO_EFFECT, RunState.COMPLETE),
        (OutcomeStatus.FAILED, Reason.ERROR, RunState.FAIL),
        (OutcomeStatus.DEFERRED, Reason.CONFLICT, RunState.ABORT),
        (OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT, RunState.FAIL),
        (OutcomeStatus.FAILED, Reason.TERMINATED, RunState.ABORT),
        (OutcomeStatus.IMPROVED, Reason.TERMINATED, RunState.ABORT),
    ],
)
def test_outcome_decides_the_type_of_the_end(status: OutcomeStatus, reason: Reason, event: RunState) -> None:
    of = record()
    ended = end_of(replace(of, outcome=replace(of.outcome, outcome=status, reason=reason)), "n")
    assert ended is not None
    assert ended.eventType is event
    assert ("errorMessage" not in ended.run.facets) == (event is RunState.COMPLETE)


def test_operation_that_executed_nothing_has_no_event() -> None:
    of = record()
    assert end_of(replace(of, outcome=replace(of.outcome, batches=())), "n") is None


def events_of(lake: Lake, folder: Path) -> list[dict[str, object]]:
    """The events of one run, as a receiver got them."""
    receiver = Gateway()
    section = f"  openlineage: {{url: '{receiver.url}', api_key: {{env: KEY}}}}\n"
    lake.context = changed(lake.context, telemetry=telemetry(settings(folder, section, KEY="abcdefgh")))
    lake("run", "lake.db.sick", "--operation", "rewrite_data_files")
    receiver.close()
    assert {path for path, _ in receiver.requests} == {"/api/v1/lineage"}
    return [json.loads(body) for _, body in receiver.requests]


def test_run_sends_start_and_complete_with_the_commit(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"lake.db.sick": {"1": 10, "2": 8}})
    start, end = events_of(lake, tmp_path)
    (stored,) = lake.json("history", "lake.db.sick")["records"]
    assert [start["eventType"], end["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["job"]["namespace"] == "iceberg_maint"
    assert end["job"]["name"] == "lake.db.sick.rewrite_data_files"
    (source,), (target,) = end["inputs"], end["outputs"]
    assert (
        (source["namespace"], source["name"]) == (target["namespace"], target["name"]) == ("lake", "db.sick")
    )
    assert source["facets"]["version"]["datasetVersion"] == str(stored["snapshot_before"])
    assert target["facets"]["version"]["datasetVersion"] == str(stored["snapshot_after"])
    report = target["outputFacets"]["icebergCommitReport"]
    assert report["snapshotId"] == stored["snapshot_after"]
    assert (report["commitMetrics"]["removedDataFiles"], report["commitMetrics"]["addedDataFiles"]) == (18, 2)
    assert target["outputFacets"]["outputStatistics"]["fileCount"] == 2


def test_commit_that_is_unknown_sends_fail_with_its_reason(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"lake.db.sick": {"1": 10}})
    lake.engine.results = [UNKNOWN]
    start, end = events_of(lake, tmp_path)
    assert [start["eventType"], end["eventType"]] == ["START", "FAIL"]
    assert end["run"]["facets"]["errorMessage"]["message"] == "unknown_commit"
