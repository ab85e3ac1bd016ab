"""What a run would do for a table in mode advise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from iceberg_maint.core.model.ids import HOUSEKEEPING_OPERATIONS
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.planning.plan import Plan
from iceberg_maint.report.formatting import counted, duration, number, share, size
from iceberg_maint.report.holds import ADVISE
from iceberg_maint.report.json_documents import Document
from iceberg_maint.report.throughput import estimate_seconds


@dataclass(frozen=True, slots=True)
class Advice:
    """The plans of the operations on data of one table. The gain is the difference between `input_files`,
    which are data files and delete files, and the `output_files` that the plans expect.
    `planned_partitions` are those of the batches of the next run: fewer than the due ones if its budget ends
    first. `estimate_seconds` is None if no batch that reads data has been committed yet."""

    due_partitions: int
    partitions: int
    batches: int
    input_files: int
    output_files: int
    input_bytes: int
    estimate_seconds: float | None
    planned_partitions: int

    def sentence(self) -> str:
        """What a run would do, and what holds it."""
        if not self.batches:
            return (
                f"{share(self.due_partitions, self.partitions, 'partition')} due, but a run would "
                f"gain nothing. Held by {ADVISE}."
            )
        seconds = "" if self.estimate_seconds is None else f", about {duration(self.estimate_seconds)}"
        rest = self.due_partitions - self.planned_partitions
        later = (
            f" {counted(rest, 'more due partition waits', 'more due partitions wait')} for later runs."
            if rest
            else ""
        )
        return (
            f"A run would maintain {number(self.planned_partitions)} of {counted(self.partitions, 'partition')} in "
            f"{counted(self.batches, 'batch', 'batches')}: {counted(self.input_files, 'file')} with "
            f"{size(self.input_bytes)} become {counted(self.output_files, 'file')}{seconds}."
            f"{later} Held by {ADVISE}."
        )


def advice_of(
    decision: Decision, plans: Sequence[Plan], partitions: int, records: Iterable[Record]
) -> Advice:
    """The advice from the plans of a decision in mode advise; `partitions` is their number in the table."""
    batches = [b for p in plans if p.operation not in HOUSEKEEPING_OPERATIONS for b in p.batches]
    input_bytes = sum(b.input_bytes for b in batches)
    return Advice(
        due_partitions=len(decision.backlog()),
        partitions=partitions,
        batches=len(batches),
        input_files=sum(b.input_files for b in batches),
        output_files=sum(b.expected_output_files for b in batches),
        input_bytes=input_bytes,
        estimate_seconds=estimate_seconds(input_bytes, records),
        planned_partitions=len({p for b in batches for p in b.partitions}),
    )


def advice_document(advice: Advice | None) -> Document | None:
    """The advice in `tables --json` and `why --json`."""
    return None if advice is None else {**asdict(advice), "held_by": ADVISE}
