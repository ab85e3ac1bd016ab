"""A drifted table under the whole loop: sorted once, judged by what was written, resumed, and not in an old order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pytest

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import LiveFile, Snapshot
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import LayoutGain
from iceberg_maint.core.policy.data import LayoutPolicy
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.support.core.values import TARGET, data
from iceberg_maint_tests.support.loop.world import POLICY, Killed, Process, World

pytestmark = pytest.mark.seconds

SORTED = LayoutPolicy(sort_by=("id",))


class Drifted(World):
    """Eight files of full size in p=a, all over the whole range; what is written lies apart or, with
    `spread`, as before."""

    def __init__(self, *, spread: bool = False) -> None:
        super().__init__("", replace(POLICY, layout=SORTED))
        self.spread = spread
        self.batches: list[Batch] = []
        self.before_write = self.batches.append
        self.write_result = self.described
        self.now = replace(
            self.now, state=replace(self.now.state, column_ids={"id": 2}, key_types={2: "long"})
        )
        wide = [replace(data(f"w{n}", TARGET, seq=1), ranges=((0, 100),)) for n in range(8)]
        self.commit((), wide)

    def commit(
        self, removed: Collection[str], added: Iterable[LiveFile], summary: Mapping[str, str] | None = None
    ) -> Snapshot:
        every = [f if f.ranges else replace(f, ranges=((0, 100),)) for f in added]
        return super().commit(removed, every, summary)

    def described(self, written: Written) -> Written:
        """Every group in two files."""
        halves = [
            replace(
                f,
                path=f"{f.path}-{n}",
                size_bytes=f.size_bytes // 2,
                record_count=f.record_count // 2,
                content=content(*((0, 100) if self.spread else (50 * n, 50 * n + 50))),
            )
            for f in written.files
            for n in range(2)
        ]
        return replace(written, files=tuple(halves))


def content(low: int, high: int) -> str:
    bounds = [f'{{"keys":[2],"values":["{end.to_bytes(8, "little").hex()}"]}}' for end in (low, high)]
    return f'{{"file-size-in-bytes":9,"lower-bounds":{bounds[0]},"upper-bounds":{bounds[1]}}}'


def test_drifted_partition_is_sorted_and_its_gain_is_reported() -> None:
    world = Drifted()
    done = world.run()
    [batch] = world.batches
    [outcome] = done.batches
    assert (batch.strategy, batch.input_files) == ("sorted", 8)
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.IMPROVED, Reason.LAYOUT)
    assert outcome.layout == LayoutGain(8, 1, 1)


def test_sort_that_leaves_files_as_they_lay_has_no_effect_and_backs_off() -> None:
    world = Drifted(spread=True)
    world.policy = replace(
        world.policy, rewrite_data_files=replace(world.policy.rewrite_data_files, target_file_size_bytes=1)
    )
    # As many files as before, and as deep.
    whole = world.described
    world.write_result = lambda written: replace(
        whole(written), files=tuple(f for _ in range(4) for f in whole(written).files)
    )
    [outcome] = world.run().batches
    assert outcome.layout is not None
    assert outcome.layout.depth_measured == outcome.layout.depth_before == 8
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.COMMITTED, Reason.NO_EFFECT)
    assert world.history("p=a").ineffective == 1


@pytest.mark.parametrize("step", ["before:write", "after:write", "before:swap", "after:swap"])
def test_killed_sort_is_resumed_with_no_second_effect(step: str) -> None:
    world = Drifted()
    with pytest.raises(Killed):
        world.run(Process(dies=step))
    world.expire_leases()
    world.run()
    assert world.our_commits() == 1
    assert world.open_work() == (0, 0)
    assert len({b.batch_id for b in world.batches}) == 1


def test_batch_left_open_is_not_resumed_once_files_are_to_be_in_another_order() -> None:
    world = Drifted()
    with pytest.raises(Killed):
        world.run(Process(dies="after:write"))
    world.expire_leases()
    world.policy = replace(world.policy, layout=LayoutPolicy(sort_by=("id desc",)))
    world.run()
    old, new = (b.work.layout.order for b in world.batches if b.work.layout)
    assert (old.columns[0].descending, new.columns[0].descending) == (False, True)
    assert (world.our_commits(), world.open_work()) == (1, (0, 0))
