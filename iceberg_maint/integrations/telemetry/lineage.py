"""Lineage: the start and the end of an operation as events of OpenLineage, sent by its own client over HTTP."""

from __future__ import annotations

import datetime as dt
import uuid
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
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.ports.observers import Intent

PRODUCER = f"https://pypi.org/project/iceberg-maint/{__version__}"
_NAMESPACE = uuid.UUID("6f9619ff-8b86-5d11-b42d-00c04fc964ff")


@attr.define
class IcebergCommitReport(OutputDatasetFacet):
    """The facet `icebergCommitReport`: what the commits of an operation changed, named as in Iceberg's commit report."""

    snapshotId: int | None = attr.field(default=None)  # noqa: N815 - OpenLineage's spelling
    commitMetrics: dict[str, int] = attr.field(factory=dict)  # noqa: N815 - same


class OpenLineage:
    """Sends the start and the end of operations to an OpenLineage receiver. A failed event is dropped."""

    is_cumulative = False

    def __init__(self, url: str, api_key: str | None, namespace: str, timeout_seconds: float) -> None:
        self._namespace = namespace
        auth = TokenProvider({}) if api_key is None else ApiKeyTokenProvider({"apiKey": api_key})
        config = HttpConfig(url=url, timeout=timeout_seconds, auth=auth, retry={"total": 0})
        self._client = OpenLineageClient(transport=HttpTransport(config))

    def send(self, items: Sequence[Intent | Record]) -> None:
        """Sends one request per event. Raises the client's error."""
        for item in items:
            namespace = self._namespace
            event = start_of(item, namespace) if isinstance(item, Intent) else end_of(item, namespace)
            if event is not None:
                self._client.emit(event)


def start_of(intent: Intent, namespace: str) -> RunEvent:
    """The start of an operation. The table is input and output."""
    dataset = _dataset(intent.table)
    return _event(
        RunState.START,
        intent.started_ms,
        Run(run_uuid(intent.run_id, intent.table_uuid, intent.operation.value)),
        Job(namespace, f"{intent.table}.{intent.operation.value}"),
        InputDataset(*dataset, facets=_version(intent.snapshot_before)),
        OutputDataset(*dataset),
    )


def end_of(record: Record, namespace: str) -> RunEvent | None:
    """The end of an operation; None for one that executed nothing, which had no start."""
    outcome = record.outcome
    if not outcome.batches and outcome.reason is not Reason.TERMINATED:
        return None
    state, dataset = _state(outcome.outcome, outcome.reason), _dataset(record.table)
    facets: dict[str, RunFacet] = {}
    if state is not RunState.COMPLETE:
        error = outcome.message or outcome.reason.value
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "python")
    output = OutputDataset(
        *dataset, facets=_version(outcome.snapshot_after), outputFacets=_output_facets(record)
    )
    return _event(
        state,
        record.ended_ms,
        Run(run_uuid(record.run_id, record.table_uuid, record.operation.value), facets),
        Job(namespace, f"{record.table}.{record.operation.value}"),
        InputDataset(*dataset, facets=_version(outcome.snapshot_before)),
        output,
    )


def run_uuid(run_id: str, table_uuid: str, operation: str) -> str:
    """The UUID of an operation of a run on a table: the same for its start and its end."""
    return str(uuid.uuid5(_NAMESPACE, f"{run_id}/{table_uuid}/{operation}"))


def _event(
    state: RunState, at_ms: int, run: Run, job: Job, source: InputDataset, target: OutputDataset
) -> RunEvent:
    time = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    return RunEvent(
        eventTime=time,
        producer=PRODUCER,
        run=run,
        job=job,
        eventType=state,
        inputs=[source],
        outputs=[target],
    )


def _output_facets(record: Record) -> dict[str, OutputDatasetFacet]:
    batches = record.outcome.batches
    committed = [b for b in batches if b.snapshot_after is not None]
    proofs = [b.proof for b in committed if b.proof is not None]
    added_files, added_bytes = sum(b.output_files for b in committed), sum(b.output_bytes for b in committed)
    return {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=sum(p.output_records for p in proofs) if proofs else None,
            size=added_bytes,
            fileCount=added_files,
        ),
        "icebergCommitReport": IcebergCommitReport(
            snapshotId=record.outcome.snapshot_after,
            commitMetrics={
                "attempts": sum(b.commit_tries for b in batches),
                "addedDataFiles": added_files,
                "removedDataFiles": sum(b.input_files for b in committed),
                "removedDeleteFiles": sum(b.delete_files_removed for b in committed),
                "addedFilesSizeInBytes": added_bytes,
                "removedFilesSizeInBytes": sum(b.input_bytes for b in committed),
            },
        ),
    }


def _state(status: OutcomeStatus, reason: Reason) -> RunState:
    if reason is Reason.TERMINATED or status is OutcomeStatus.DEFERRED:
        return RunState.ABORT
    failed = status in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN)
    return RunState.FAIL if failed else RunState.COMPLETE


def _dataset(table: str) -> tuple[str, str]:
    """Namespace and name of the table's dataset."""
    name = TableId.parse(table)
    return name.catalog, ".".join(name.in_catalog)


def _version(snapshot_id: int | None) -> dict[str, DatasetFacet]:
    if snapshot_id is None:
        return {}
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(str(snapshot_id))}
