"""OpenLineage: the events of operations, sent by its own client over HTTP."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import attr
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    output_statistics_output_dataset,
)
from openlineage.client.transport.http import (
    ApiKeyTokenProvider,
    HttpConfig,
    HttpTransport,
    TokenProvider,
)

from iceberg_maint import __version__
from iceberg_maint.integrations.telemetry.lineage import LineageEvent

PRODUCER = f"https://pypi.org/project/iceberg-maint/{__version__}"


@attr.define
class IcebergCommitReport(OutputDatasetFacet):
    """The facet `icebergCommitReport`: what the commits changed."""

    snapshotId: int | None = attr.field(default=None)  # noqa: N815 - OpenLineage's spelling
    commitMetrics: dict[str, int] = attr.field(factory=dict)  # noqa: N815 - same


class OpenLineage:
    """Sends events to an OpenLineage receiver. A failed event is dropped."""

    is_cumulative = False

    def __init__(self, url: str, api_key: str | None, namespace: str, timeout_seconds: float) -> None:
        self._namespace = namespace
        auth = TokenProvider({}) if api_key is None else ApiKeyTokenProvider({"apiKey": api_key})
        config = HttpConfig(url=url, timeout=timeout_seconds, auth=auth, retry={"total": 0})
        self._client = OpenLineageClient(transport=HttpTransport(config))

    def send(self, events: Sequence[LineageEvent]) -> None:
        """Sends one request per event. Raises the client's error."""
        for event in events:
            self._client.emit(run_event(event, self._namespace))


def run_event(event: LineageEvent, namespace: str) -> RunEvent:
    """The event as OpenLineage has it: the table is input and output."""
    time = dt.datetime.fromtimestamp(event.at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    facets: dict[str, RunFacet] = {}
    if event.error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(event.error, "python")
    return RunEvent(
        eventTime=time,
        producer=PRODUCER,
        run=Run(event.run, facets),
        job=Job(namespace, event.job),
        eventType=RunState[event.type.value],
        inputs=[InputDataset(event.catalog, event.table, facets=_version(event.input_version))],
        outputs=[_output(event)],
    )


def _output(event: LineageEvent) -> OutputDataset:
    facets: dict[str, OutputDatasetFacet] = {}
    if event.commit is not None:
        commit = event.commit
        facets["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=event.rows, size=commit.added_bytes, fileCount=commit.added_data_files
        )
        facets["icebergCommitReport"] = IcebergCommitReport(
            snapshotId=commit.snapshot_id,
            commitMetrics={
                "attempts": commit.attempts,
                "addedDataFiles": commit.added_data_files,
                "removedDataFiles": commit.removed_data_files,
                "removedDeleteFiles": commit.removed_delete_files,
                "addedFilesSizeInBytes": commit.added_bytes,
                "removedFilesSizeInBytes": commit.removed_bytes,
            },
        )
    return OutputDataset(
        event.catalog, event.table, facets=_version(event.output_version), outputFacets=facets
    )


def _version(version: str | None) -> dict[str, DatasetFacet]:
    if version is None:
        return {}
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(version)}
