"""Pay-back of the work on one partition: what it costs, and what it saves the readers of the partition."""

from __future__ import annotations

from dataclasses import dataclass

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class PayBack:
    """A judgement. The work reads `cost_bytes` and costs `cost_seconds`; each read opens `fewer_files` fewer, which saves it
    `read_seconds`. Reads count for `period_seconds`: until writers replace the data (`ends_with_data`), else
    `fleet_budget.pay_back_seconds`. All seconds of work and reads are CPU seconds."""

    reads_per_day: float
    fewer_files: float
    read_seconds: float
    period_seconds: float
    ends_with_data: bool
    cost_seconds: float
    cost_bytes: int

    @property
    def saved_seconds(self) -> float:
        """What the reads of the period save."""
        return self.reads_per_day * self.period_seconds / DAY_SECONDS * self.read_seconds

    @property
    def pays(self) -> bool:
        """Whether the reads save what the work costs."""
        return self.saved_seconds >= self.cost_seconds

    @property
    def least_reads_per_day(self) -> float | None:
        """The reads a day from which on the work pays. None if a read saves nothing."""
        of_one = self.period_seconds / DAY_SECONDS * self.read_seconds
        return self.cost_seconds / of_one if of_one > 0 else None
