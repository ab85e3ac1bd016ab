"""The verdict on a table of Flink: compares every snapshot with the expected rows of the stream."""

from __future__ import annotations

from dataclasses import dataclass

from bench.flink.stream import FlinkTable, Stream
from iceberg_maint.core.model.reasons import Verdict
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, Snapshot, TableState
from iceberg_maint.demo.duckdb_reader import Comparison, DuckDBReader
from iceberg_maint.demo.heal import DemoState


@dataclass(frozen=True, slots=True)
class History:
    """The commits of one table, by writer.

    `while_running` are the maintenance commits before Flink's last commit. `equality_deletes` is the
    number of equality delete files that Flink committed. `wrong` are the snapshots with rows that the
    stream never produced, and the maintenance commits that changed the number of upserts.
    """

    flink: int
    maintenance: int
    while_running: int
    equality_deletes: int
    wrong: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlinkResult:
    """One table, at the end of the job and at the end of the demo."""

    table: FlinkTable
    at_end_of_job: DemoState
    after: DemoState
    history: History
    rows: Comparison

    @property
    def good(self) -> bool:
        """Whether maintenance was committed while Flink wrote, nothing is due, and every snapshot has
        exactly the rows that Flink had committed."""
        return not self.faults

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults, one sentence each."""
        conditions = {
            "its rows are not the rows of the stream": not self.rows.equal,
            f"the rows of {len(self.history.wrong)} snapshots are wrong": bool(self.history.wrong),
            "Flink committed no equality deletes, so the demo shows nothing": not self.history.equality_deletes,
            "no maintenance was committed while Flink wrote": not self.history.while_running,
            "equality deletes remain": bool(self.after.measured.total().equality_delete_files),
            "maintenance is still due": self.after.decision.verdict is not Verdict.SKIP,
        }
        return tuple(sentence for sentence, holds in conditions.items() if holds)


def judge(
    table: FlinkTable,
    stream: Stream,
    at_end_of_job: DemoState,
    after: DemoState,
    state: TableState,
    reader: DuckDBReader,
) -> FlinkResult:
    """The verdict on one table. `after` measured `state`."""
    assert state.snapshot is not None, "the table has been written"
    commits = history(stream, state, reader)
    reader.take(state.metadata_location, state.snapshot.snapshot_id)
    rows = reader.compare_taken(stream.expected_sql(stream.rows))
    return FlinkResult(table, at_end_of_job, after, commits, rows)


def history(stream: Stream, state: TableState, reader: DuckDBReader) -> History:
    """All commits of the table. `reader` reads each snapshot."""
    commits = tuple(reversed(state.ancestors()))
    maintenance = [is_maintenance(s) for s in commits]
    last_of_flink = max((i for i, own in enumerate(maintenance) if not own), default=-1)
    wrong = []
    upserted = 0
    for snapshot, own in zip(commits, maintenance, strict=True):
        before = upserted
        reader.take(state.metadata_location, snapshot.snapshot_id)
        highest = reader.highest("v")
        upserted = 0 if highest is None else highest + 1
        rows = reader.compare_taken(stream.expected_sql(upserted))
        if not rows.equal or (own and upserted != before):
            wrong.append(snapshot.snapshot_id)
    return History(
        flink=maintenance.count(False),
        maintenance=maintenance.count(True),
        while_running=sum(maintenance[:last_of_flink]),
        equality_deletes=sum(
            int(s.summary.get("added-equality-delete-files", "0"))
            for s, own in zip(commits, maintenance, strict=True)
            if not own
        ),
        wrong=tuple(wrong),
    )


def is_maintenance(snapshot: Snapshot) -> bool:
    """Whether the snapshot is one of this project's."""
    return TOKEN_PROPERTY in snapshot.summary
