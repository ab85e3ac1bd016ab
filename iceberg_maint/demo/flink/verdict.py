"""What became of a table that Flink wrote: every snapshot against the rows the stream must have left."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.core.model.reasons import Verdict
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, Snapshot, TableState
from iceberg_maint.demo.duckdb_reader import Comparison, DuckDBReader
from iceberg_maint.demo.flink.stream import FlinkTable, Stream
from iceberg_maint.demo.verdict import Look


@dataclass(frozen=True, slots=True)
class History:
    """The commits of one table, by who made them.

    `while_running` are the maintenance commits that one of Flink's came after; `equality_deletes` is
    the number of equality delete files that Flink ever committed. `wrong` are the snapshots whose
    rows are not those the stream had left at some moment, or where maintenance changed that moment.
    """

    flink: int
    maintenance: int
    while_running: int
    equality_deletes: int
    wrong: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlinkResult:
    """One table: when the job had ended, and at the very end."""

    table: FlinkTable
    at_end_of_job: Look
    after: Look
    history: History
    rows: Comparison

    @property
    def good(self) -> bool:
        """Whether maintenance went on beside Flink, left nothing to do, and no reader ever saw
        another row than Flink had committed, nor missed one."""
        return not self.faults

    @property
    def faults(self) -> tuple[str, ...]:
        """What is not as it should be, a sentence each."""
        found = {
            "its rows are not those the stream left": not self.rows.equal,
            f"the rows of {len(self.history.wrong)} snapshots are wrong": bool(self.history.wrong),
            "Flink left no equality deletes, so nothing was shown": not self.history.equality_deletes,
            "no maintenance was committed while Flink wrote": not self.history.while_running,
            "equality deletes are left": bool(self.after.measured.total().equality_delete_files),
            "there is still something to do": self.after.decision.verdict is not Verdict.SKIP,
        }
        return tuple(sentence for sentence, holds in found.items() if holds)


def judge(
    table: FlinkTable,
    stream: Stream,
    at_end_of_job: Look,
    after: Look,
    state: TableState,
    reader: DuckDBReader,
) -> FlinkResult:
    """The verdict on one table; `state` is the one that `after` measured."""
    assert state.snapshot is not None, "the table has been written"
    found = history(stream, state, reader)
    reader.take(state.metadata_location, state.snapshot.snapshot_id)
    rows = reader.compare_taken(stream.expected_sql(stream.rows))
    return FlinkResult(table, at_end_of_job, after, found, rows)


def history(stream: Stream, state: TableState, reader: DuckDBReader) -> History:
    """All commits of the table, each read at its snapshot by the second reader."""
    commits = tuple(reversed(state.ancestors()))
    ours = [is_maintenance(s) for s in commits]
    last_of_flink = max((i for i, mine in enumerate(ours) if not mine), default=-1)
    wrong = []
    upserted = 0
    for snapshot, mine in zip(commits, ours, strict=True):
        before = upserted
        reader.take(state.metadata_location, snapshot.snapshot_id)
        highest = reader.highest("v")
        upserted = 0 if highest is None else highest + 1
        found = reader.compare_taken(stream.expected_sql(upserted))
        if not found.equal or (mine and upserted != before):
            wrong.append(snapshot.snapshot_id)
    return History(
        flink=ours.count(False),
        maintenance=ours.count(True),
        while_running=sum(ours[:last_of_flink]),
        equality_deletes=sum(
            int(s.summary.get("added-equality-delete-files", "0"))
            for s, mine in zip(commits, ours, strict=True)
            if not mine
        ),
        wrong=tuple(wrong),
    )


def is_maintenance(snapshot: Snapshot) -> bool:
    """Whether the snapshot is one of this project's."""
    return TOKEN_PROPERTY in snapshot.summary
