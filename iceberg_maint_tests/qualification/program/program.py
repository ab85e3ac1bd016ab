"""Random programs: writers of every kind and all of maintenance take turns on one real table, and the model
tells after every step what it must hold, at its head and at every snapshot that is kept."""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import LOST_RACES, Reason
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, OperationOutcome, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import OutputSpec, Policy
from iceberg_maint.loop.maintain import BatchEnded, BatchStarted, Event
from iceberg_maint_tests.qualification.program.maintainer import Keeper
from iceberg_maint_tests.qualification.program.planted import Planted
from iceberg_maint_tests.qualification.program.policies import Policies
from iceberg_maint_tests.qualification.program.random_runs import Life, Lives
from iceberg_maint_tests.qualification.program.retained import retained
from iceberg_maint_tests.qualification.program.second_lines import Version
from iceberg_maint_tests.qualification.program.witness import Crashed
from iceberg_maint_tests.support.columnar.splicing import splices

MOST_FILES = 24
"""A table of more data files than this is maintained next: reading is what every step costs."""
MAINTAINED = 0.1
"""Share of steps that are maintenance, which costs as much as twenty commits of writers."""
SECOND_LINES = 0.05
"""Share of steps that may start a second line of commits."""
BACKUPS = 0.1
"""Share of steps after which the catalog is backed up."""
REGISTERED_BESIDE = 0.6
"""Share of the commits beside a batch that register its sources again."""
STEPS_EACH = 50
"""Steps of one table's life; a longer one sees more of its own past, more lives see more kinds of tables."""
_ENDED_WELL = SUCCESSFUL


@dataclass
class Program(Policies):
    """One table's life, each step of it checked."""

    moves: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.planted = Planted(self.keeper, self.twin)
        self.append()
        self.twin.remember()

    def run(self, steps: int) -> None:
        """So many steps, each checked; the trail tells what was done when one fails."""
        try:
            for number in range(steps):
                self.step(last=number == steps - 1)
        except Exception as why:
            why.add_note("\n".join(self.trail))
            raise

    def step(self, *, last: bool = False) -> None:
        """One writer's commit, or one maintenance run between two comparisons."""
        crowded = self.twin.count_of_data_files() > MOST_FILES
        drawn = self.rng.random()
        if not (last or crowded) and drawn > MAINTAINED:
            other = self.second_line() if drawn < MAINTAINED + SECOND_LINES else None
            if other is None:
                self.write()
            else:
                self.live_beside(other)
            if drawn > 1 - BACKUPS:
                self.back_up()
            return
        self.twin.check()
        self.maintain(quiet=last or crowded)
        self.twin.inherit()
        self.twin.check()
        self.check_head()
        if self.nested and self.twin.is_comparable():
            self.counts["head with struct keys compared"] += 1
        if self.moves:
            self.twin.follow_moved_rows()
        if last or self.rng.random() < 0.5:
            self.keep_house(everything=last)

    def live_beside(self, other: Version) -> None:
        """While the table has two lines of commits, its own line is written and maintained, and no file is removed.
        Then each line has all its rows."""
        self.twin.check()
        for _ in range(self.rng.randint(0, 2)):
            self.write()
        if self.rng.random() < 0.5:
            self.maintain(quiet=False)
            self.twin.inherit()
            self.twin.check()
            if self.moves:
                self.twin.follow_moved_rows()
        self.keep_all_files(other)
        self.twin.check()
        self.check_head()
        self.end_second_line(other)
        self.twin.check()
        self.check_head()
        self.check_kept(3)

    def keep_all_files(self, other: Version) -> None:
        """Expires snapshots and runs an orphan scan. Files are old enough for it, and all are still there."""
        self.keeper.pass_time(self.twin, 100)
        policy = self._housekeeping()
        files, trash = self.keeper.files(self.twin), self.keeper.trashed(self.twin)
        self.expire(policy)
        self.keeper.settle_times(self.twin)
        (outcome,) = self.keeper.maintain(self.twin, policy, operations=(Operation.REMOVE_ORPHAN_FILES,))
        self._tell(outcome)
        assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.REFUSED), outcome
        assert "ICM-111" in outcome.batches[0].message
        # A commit of any writer may remove the oldest metadata file of a full log.
        removed = [path for path in files if not path.exists() and not path.name.endswith(".metadata.json")]
        assert not removed, f"removed {removed}"
        # The expiry has recorded what it released.
        assert set(trash) <= set(self.keeper.trashed(self.twin)), "the trash was swept"
        self.twin.witness.reached(other.location)

    def maintain(self, *, quiet: bool) -> None:
        """One run on the data under a policy drawn; unless `quiet`, others may write between write and
        commit."""
        others = 0 if quiet or self.rng.random() < 0.5 else self.rng.randint(1, 2)
        policy = self._policy(compact=quiet or others > 0, rewrite=others > 0)
        partitions = None if quiet else self._some_partitions()
        rewrite, layout = policy.rewrite_data_files, policy.layout
        self.trail.append(
            f"maintain {policy.equality_deletes.route} {rewrite.min_input_files} {rewrite.output_spec} "
            f"sorted by {layout.sort_by or layout.z_order_by or 'nothing'}, {others} writers meanwhile, "
            f"partitions {partitions}"
        )
        written: list[Batch] = []

        def between(batch: Batch) -> None:
            if not written:
                # What a writer finds is what the batches before this one have left.
                self.twin.inherit()
                for _ in range(others):
                    if self.rng.random() < REGISTERED_BESIDE:
                        self.counts["registered beside a batch"] += 1
                        self.write_over(batch.paths())
                    else:
                        self.write()
            written.append(batch)

        def observe(event: Event) -> None:
            if isinstance(event, BatchStarted):
                strategies[event.batch.batch_id] = event.batch.strategy
            elif isinstance(event, BatchEnded):
                ended = event.outcome
                self.counts[f"batch {strategies[ended.batch_id]} {ended.outcome}"] += 1

        strategies: dict[str, str] = {}
        self.named = frozenset(name.split()[0] for name in (*layout.sort_by, *layout.z_order_by))
        outcomes = self.keeper.maintain(
            self.twin, policy, between=between, partitions=partitions, observer=observe
        )
        self.named = frozenset()
        self.counts["maintain"] += 1
        for outcome in outcomes:
            self._tell(outcome)
            lost = others and outcome.reason in LOST_RACES
            assert lost or outcome.outcome in _ENDED_WELL, outcome
        # Deletes of all partitions that must be converted, and together are more than one batch may hold, stay. So do
        # all while a branch is ahead of main, as a rollback leaves one.
        held = {reason for outcome in outcomes for _, _, reason in outcome.partitions}
        held |= {outcome.reason for outcome in outcomes}
        if not others and partitions is None and not held & {Reason.FILE_TOO_LARGE, Reason.PENDING_PUBLISH}:
            assert self.twin.applied_equality_deletes() == set()
        self.moves = policy.rewrite_data_files.output_spec is OutputSpec.CURRENT

    def keep_house(self, *, everything: bool) -> None:
        """Manifests, then snapshots, then orphans, each held against what it must leave."""
        hours = self.rng.choice([0, 7, 31, 100])
        self.keeper.pass_time(self.twin, hours)
        for _ in range(self.rng.randint(0, 3)):
            self.trail.append(f"  planted {self.planted.plant(self.rng)}")
        policy = self._housekeeping()
        expires, orphans = policy.expire_snapshots, policy.remove_orphan_files
        self.trail.append(
            f"keep house {hours} h later: expire beyond {expires.min_snapshots_to_keep} and "
            f"{expires.max_snapshot_age_seconds} s, orphans of {orphans.older_than_seconds} s, "
            f"held {orphans.delete_after_seconds} s"
        )
        if everything or self.rng.random() < 0.7:
            self._operate(Operation.REWRITE_MANIFESTS, policy)
            self.twin.inherit()
        self.expire(policy)
        if everything or self.rng.random() < 0.6:
            self.keeper.settle_times(self.twin)
            self._operate(Operation.REMOVE_ORPHAN_FILES, policy)
            trashed, swept = self.planted.check(orphans)
            self.counts["planted orphans trashed"] += trashed
            self.counts["planted orphans swept"] += swept
        self.twin.check()
        self.check_head()
        self.check_kept(len(self.twin.history) if everything else 3)

    def expire(self, policy: Policy) -> None:
        """Exactly what may go is gone."""
        before = self.twin.metadata()
        now_ms = self.keeper.time.now_ms()
        stays, refs = retained(before, policy.expire_snapshots, now_ms, list(self.twin.staged))
        self._operate(Operation.EXPIRE_SNAPSHOTS, policy)
        after = self.twin.metadata()
        left = {s["snapshot-id"] for s in after["snapshots"]}
        assert left == stays, f"lost {sorted(stays - left)}, left {sorted(left - stays)}"
        assert after["refs"].keys() == refs
        self.counts["snapshots expired"] += len(before["snapshots"]) - len(left)
        self.counts["refs expired"] += len(before["refs"].keys() - refs)
        self.twin.history = {i: rows for i, rows in self.twin.history.items() if i in left}
        self.twin.branches = {n: model for n, model in self.twin.branches.items() if n in refs}

    def check_head(self) -> None:
        """The head's rows by every second reader that can read it."""
        for reader in self._readers(self.twin.table.currentSnapshot().summary()):
            with self._counted(f"head read by {reader}"):
                self.twin.check_head(reader)

    def check_kept(self, most: int) -> None:
        """Snapshots that are kept, those of tags and branches first, have the rows they had."""
        metadata = self.twin.metadata()
        summaries = {s["snapshot-id"]: s["summary"] for s in metadata["snapshots"]}
        named = [ref["snapshot-id"] for ref in metadata["refs"].values()]
        others = [i for i in self.twin.history if i not in named]
        for snapshot_id in [*dict.fromkeys(named), *self.rng.sample(others, min(most, len(others)))]:
            reader = self.rng.choice(self._readers(summaries[snapshot_id]) or ["generic"])
            with self._counted(f"kept snapshot read by {reader}"):
                self.twin.check_snapshot(snapshot_id, reader)

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        try:
            yield
        except Crashed:
            name = f"{name}, which crashed"
        except AssertionError as why:
            why.add_note(name)
            raise
        self.counts[name] += 1

    def _readers(self, summary: Mapping[str, str]) -> list[str]:
        """Second readers of a snapshot. Neither reads what is not Parquet; DuckDB reads no manifest list of
        format v1; PyIceberg applies no equality deletes. Of a file that is registered again, both apply older position
        deletes if their file also deletes rows of another data file."""
        has_old_deletes = self.has_registered and summary["total-position-deletes"] != "0"
        if set(self.formats) != {"parquet"} or summary["total-equality-deletes"] != "0" or has_old_deletes:
            return []
        return ["pyiceberg"] if self.born == 1 else ["pyiceberg", "duckdb"]

    def _operate(self, operation: Operation, policy: Policy) -> None:
        (outcome,) = self.keeper.maintain(self.twin, policy, operations=(operation,))
        self._tell(outcome)
        assert outcome.outcome in _ENDED_WELL, outcome

    def _tell(self, outcome: OperationOutcome) -> None:
        self.counts[f"{outcome.operation} {outcome.outcome}"] += 1
        self.trail.append(f"  {outcome.operation}: {outcome.outcome} {outcome.reason}")
        self.trail.extend(f"    {batch.message}" for batch in outcome.batches if batch.message)


def run_programs(
    keeper: Keeper,
    steps: int,
    first_seed: int,
    tell: Callable[[str], None],
    *,
    every: int,
    lives: Lives,
) -> list[Life]:
    """Programs of every so manieth seed until so many steps are done; those on record are not run again.
    One that fails is told with its trail, and the next one runs."""
    done: list[Life] = []
    for seed in itertools.count(first_seed, every):
        known = lives.of(seed)
        if known is None:
            left = steps - sum(life.steps for life in done)
            done.append(_live(keeper, seed, min(STEPS_EACH, left), tell))
            lives.add(done[-1])
        else:
            done.append(known)
        total = sum(life.steps for life in done)
        different = sum(life.why is not None for life in done)
        tell(f"seed {seed}: {done[-1].seconds:.0f} s; {total} steps so far, {different} differences")
        if total >= steps:
            return done
    raise AssertionError("seeds do not end")


def _live(keeper: Keeper, seed: int, steps: int, tell: Callable[[str], None]) -> Life:
    started, why = time.monotonic(), None
    program = Program(keeper, seed)
    try:
        with splices(seed % 3, program.counts):
            program.run(steps)
    except Exception:  # noqa: BLE001 - whatever went wrong is the finding
        why = traceback.format_exc()
        tell(why)
    keeper.drop(program.twin)
    counts = program.counts
    lived = counts["writes"] + counts["maintain"]
    return Life(seed, lived, dict(counts), why, round(time.monotonic() - started, 1))
