"""The due partitions of one table, with what their work is predicted to gain and to cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.decisions.combine import combine_decisions
from iceberg_maint.core.decisions.fleet_budget import DueWork, FleetBudget, WorkKey
from iceberg_maint.core.decisions.history import FleetWait, TableHistory
from iceberg_maint.core.decisions.past_work import PastWork, commit_losses, life_seconds
from iceberg_maint.core.decisions.pay_back import Readers, judge
from iceberg_maint.core.decisions.priority import RUN_SECONDS, Speed, in_run, predict
from iceberg_maint.core.decisions.shared_batches import batch_part
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.reasons import PartitionDecision, Reason, Verdict
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.runner.remembered_decisions import Basis
from iceberg_maint.runner.stored_decisions import decisions_of

LEARNED_DAYS, LEARNED_BATCHES = 30, 30
"""Days of batches, and batches of a table, from which a partition's writers are known."""


def decided_due(basis: Basis, now_ms: int) -> tuple[PartitionDecision, ...]:
    """Returns the partitions that would run now."""
    decision = combine_decisions(
        decisions_of(basis.measured, basis.policy, basis.histories, now_ms, basis.readers)
    )
    return decision.due() if decision.verdict is Verdict.RUN else ()


@dataclass(frozen=True, slots=True)
class DueTable:
    """A table with due partitions."""

    measured: Measured
    policy: Policy
    due: tuple[PartitionDecision, ...]
    past: TableHistory

    @property
    def learns(self) -> bool:
        """Whether earlier batches change what is predicted: how often writers win over them, and how soon writers replace
        the data."""
        if self.policy.windows.reads_per_day is not None:
            return True
        return any(
            self.measured.partitions[p.partition].delete_files or self.past.of(p.partition).ineffective
            for p in self.due
        )

    def work(
        self,
        budget: FleetBudget,
        speed: Speed,
        waits: Mapping[WorkKey, FleetWait],
        past_work: Sequence[PastWork],
        now_ms: int,
    ) -> Iterator[DueWork]:
        """Yields the due partitions with their prediction. What waits for the budget keeps its place: it was judged to pay
        when it became due."""
        windows = self.policy.windows
        sharing = min(len(self.due), windows.partitions_per_batch)
        for due in self.due:
            key = (self.measured.table_uuid, due.partition)
            history, health = self.past.of(due.partition), self.measured.partitions[due.partition]
            prediction = predict(
                health,
                self.policy,
                self.measured.target_file_size_bytes,
                due.candidate_bytes,
                now_ms,
                conflicts=history.ineffective if history.reason == Reason.CONFLICT else 0,
                losses=commit_losses(due.partition, past_work),
                speed=speed,
            )
            life = life_seconds(due.partition, past_work, health.min_data_sequence_number, now_ms)
            readers = Readers(windows.reads_per_day, life)
            wait = waits.get(key)
            pay_back = judge(prediction, due.findings, readers, budget, wait, sharing)
            pays = pay_back is None or pay_back.pays
            is_same = wait is not None and wait.is_left_alone is not pays
            since_ms = wait.since_ms if wait is not None and is_same else now_ms
            yield DueWork(
                key,
                in_run(prediction, RUN_SECONDS / len(self.due)),
                since_ms,
                windows.read_weight,
                pay_back,
                batch_part(due, health, self.policy, prediction.input_files),
            )
