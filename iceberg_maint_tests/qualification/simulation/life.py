"""One life of a world: runs, foreign writers, operators and faults in any order; then the faults stop, and what
was begun must come to its end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from iceberg_maint.core.model.codec import loads
from iceberg_maint.core.model.ids import ALL_OPERATIONS, DATA_OPERATIONS, HOUSEKEEPING_OPERATIONS
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint_tests.qualification.simulation.hazards import Hazards
from iceberg_maint_tests.qualification.simulation.process import Process
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable
from iceberg_maint_tests.qualification.simulation.world import NAMES, World, only_main

STEPS = 600
_LONG_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Lived:
    """What came of one life."""

    steps: int
    found: Counter[str]
    digest: int


class Life:
    """Draws what happens, each world some of it only, so that nothing hides behind another thing."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.choose = world.choose
        acts: list[tuple[Callable[[], None], int]] = [
            (self.write, 6),
            (self.wait, 3),
            (self.expire, 2),
            (self.suspend, 1),
            (self.hide, 1),
            (self.lag, 1),
            (self.ledger_down, 1),
            (self.stop_a_process, 2),
            (self.go_on, 3),
            (self.release, 1),
            (self.pause, 1),
            (self.recreate, 1),
            (self.rename, 1),
            (self.rewind, 1),
            (self.compete, 1),
            (self.back_up, 2),
            (self.restore, 1),
        ]
        self.keeps_house = self.choose.random() < 0.5
        if self.keeps_house:
            acts += [(self.days_pass, 2), (self.tag, 1), (self.register_reader, 1)]
        always = [self.write, self.wait, self.go_on]
        self.acts = [(act, weight) for act, weight in acts if act in always or self.choose.random() < 0.4]
        self.hazards = Hazards(world)
        self.acts += self.hazards.acts
        self.rate = self.choose.choice([0.02, 0.06, 0.15])
        self.crowd = self.choose.randint(1, 3)
        self.skews = self.choose.choice([(0,), (0, 100_000, -100_000)])
        self.asks = self.choose.random() < 0.3

    def live(self, steps: int) -> None:
        world = self.world
        while world.steps < steps:
            if len([p for p in world.processes if _lives(p)]) < self.crowd:
                self.start()
            if self.choose.random() < self.rate or not world.step():
                self.act()
            world.watch.check()

    def start(self) -> None:
        world, choose = self.world, self.choose
        asked: dict[str, object] = {}
        if self.asks and choose.random() < 0.5:
            asked["partitions"] = frozenset(choose.sample(["p=a", "p=b", "p=c"], choose.randint(1, 2)))
        if self.asks and choose.random() < 0.2:
            asked["force"] = True
        if self.asks and choose.random() < 0.2:
            asked["max_batches"] = 1
        if self.keeps_house and choose.random() < 0.5:
            asked["operations"] = choose.choice([ALL_OPERATIONS, HOUSEKEEPING_OPERATIONS])
            asked.pop("partitions", None)
        name = choose.choice(list(world.lake.tables))
        world.start(name, settles=choose.random() < 0.1, skew_ms=choose.choice(self.skews), **asked)

    def act(self) -> None:
        acts, weights = zip(*self.acts, strict=True)
        (act,) = self.choose.choices(acts, weights)
        act()
        self.world.trace(f"-- {act.__name__}")

    # what happens to the tables

    def table(self) -> SimTable:
        return self.choose.choice(list(self.world.lake.tables.values()))

    def write(self) -> None:
        self.world.lake.write(self.table())

    def expire(self) -> None:
        self.table().expire(self.choose.randint(1, 3))

    def recreate(self) -> None:
        name = self.table().state.table
        table = self.world.lake.create(name)
        self.world.lake.append(table, "p=a", 6)

    def rename(self) -> None:
        table = self.table()
        free = [name for name in NAMES if name not in self.world.lake.tables]
        if free:
            table.rename(self.choose.choice(free))

    def rewind(self) -> None:
        self.table().rewind()

    def tag(self) -> None:
        table = self.table()
        if table.state.snapshots:
            of = self.choose.choice(table.state.snapshots).snapshot_id
            table.tag(f"tag-{self.choose.randint(0, 2)}", of)

    def register_reader(self) -> None:
        """A reader of the table's changes comes, goes on, or goes."""
        table, name = self.table(), f"reader-{self.choose.randint(0, 1)}"
        if self.world.lake.now_ms < self.world.ledger_down_until:
            return
        if table.state.snapshots and self.choose.random() < 0.7:
            of = self.choose.choice(table.state.snapshots).snapshot_id
            self.world.ledger.registry.put_reader(table.uuid, name, of)
        else:
            self.world.ledger.registry.remove_reader(table.uuid, name)

    def days_pass(self) -> None:
        """Snapshots and files grow old."""
        self.world.pass_time(self.choose.choice([6, 30, 50]) * 3_600_000)

    def compete(self) -> None:
        """For a while another engine rewrites what any run has just written."""
        self.world.competes_until = self.world.steps + 300

    # what happens to the processes

    def wait(self) -> None:
        self.world.pass_time(self.choose.choice([1_000, 30_000, 120_000, 3_600_000]))

    def suspend(self) -> None:
        """The machine sleeps longer than any lease lives."""
        self.world.pass_time(self.choose.randint(46_000, 600_000))

    def stop_a_process(self) -> None:
        living = [p for p in self.world.processes if _lives(p) and not p.stopped]
        if living:
            self.choose.choice(living).stopped = True

    def go_on(self) -> None:
        for process in self.world.processes:
            process.stopped = False

    # what happens to catalog and ledger

    def hide(self) -> None:
        if not self.world.restored:
            until_ms = self.world.lake.now_ms + self.choose.choice([1_000, 60_000])
            self.world.shown_until[self.table().state.table] = (until_ms, only_main)

    def lag(self) -> None:
        """A cache shows the table as it is now for a while."""
        if self.world.restored:
            return
        state = self.table().state
        until_ms = self.world.lake.now_ms + self.choose.choice([100, 2_000, 60_000])
        self.world.shown_until[state.table] = (until_ms, lambda _now: state)

    def ledger_down(self) -> None:
        self.world.ledger_down_until = self.world.lake.now_ms + self.choose.choice([500, 20_000, 90_000])

    def back_up(self) -> None:
        """Now, or at the worst time: when an attempt is on its way."""
        if self.choose.random() < 0.5:
            self.world.back_up()
        else:
            self.world.backs_up_after = self.choose.choice(["start_attempt", "record_intent", "record_try"])

    def restore(self) -> None:
        self.world.restore()

    def release(self) -> None:
        self.world.release()

    def pause(self) -> None:
        name = str(self.table().state.table)
        if self.choose.random() < 0.5:
            self.world.ledger.registry.pause(name, "by an operator")
        else:
            self.world.ledger.registry.resume(name)

    # the end

    def end(self) -> None:
        """I-21: the faults stop, what was begun ends, writers go on, and two runs per table put all in order."""
        world = self.world
        world.stop_faults()
        self.hazards.end()
        world.run_until_idle()
        world.pass_time(_LONG_MS)
        world.check_late()
        world.release()
        tables = list(world.lake.tables.values())
        for name in NAMES:
            # Also those that tables had before: a pause goes with the table.
            world.ledger.registry.resume(str(name))
        for table in tables:
            # Something to do: a table at rest is not leased, and its dead runs wait for their records.
            world.lake.append(table, "p=a", 6)
        for table in tables:
            self._two_runs(table)
            self._is_done(table)

    def end_of(self, table: SimTable) -> None:
        """The same for a world without faults: a commit of another writer, and two runs."""
        self.world.check_late()
        self.world.lake.append(table, "p=b", 6)
        self._two_runs(table)
        self._is_done(table)

    def _two_runs(self, table: SimTable) -> None:
        for _ in range(2):
            self.world.start(
                table.state.table, operations=ALL_OPERATIONS if self.keeps_house else DATA_OPERATIONS
            )
            self.world.run_until_idle()
            self.world.pass_time(_LONG_MS)

    def _is_done(self, table: SimTable) -> None:
        world, name = self.world, table.state.table
        hold, uuid = world.watch.hold, table.uuid
        attempts = world.ledger.work.open_attempts(uuid)
        hold("I-21", not attempts, f"{attempts} are open still")
        for operation in ALL_OPERATIONS if self.keeps_house else DATA_OPERATIONS:
            batches = world.ledger.work.open_batches(uuid, operation)
            hold("I-21", not batches, f"{batches} are open still")
        last = world.start(name)
        world.run_until_idle()
        outcomes = last.outcomes
        hold("I-21", outcomes, f"the last run of {name} ended by {last.ended}")
        for outcome in outcomes:
            calm = outcome.outcome is OutcomeStatus.NO_OP and not outcome.batches
            hold("I-21", calm, f"after two runs there is work left: {outcome}")
        self._is_told(uuid)

    def _is_told(self, uuid: str) -> None:
        """Every run that attempted something is on record, with what is known of its batches by now."""
        world = self.world
        bodies = world.watch.ledger.rows("SELECT body FROM icm_record ORDER BY ordinal")
        told: dict[tuple[str, str], OutcomeStatus] = {}
        for record in (loads(Record, row["body"]) for row in bodies):
            for batch in record.outcome.batches:
                told[record.run_id, batch.batch_id] = batch.outcome
        of_batch: dict[tuple[str, str], set[str]] = {}
        for attempt in world.watch.seen.attempts.values():
            # Of what was handed back the run's own record tells by its reason.
            if attempt.table_uuid == uuid and not attempt.handed_back:
                of_batch.setdefault((attempt.run_id, attempt.batch_id), set()).add(attempt.status)
        for (run_id, batch_id), ended in of_batch.items():
            outcome = told.get((run_id, batch_id))
            world.watch.hold(
                "I-21", outcome is not None, f"no record tells of {batch_id} of {run_id}: {ended}"
            )
            committed = outcome in SUCCESSFUL
            right = committed == ("DONE" in ended)
            world.watch.hold(
                "I-19", right, f"{batch_id} of {run_id} has ended {ended}, on record is {outcome}"
            )


def _lives(process: Process) -> bool:
    return not process.dead and not process.ended


def live(seed: int, steps: int = STEPS) -> Lived:
    """One life to its end; raises ViolationError."""
    choose = random.Random(f"{seed} shape")
    with World(seed, tables=choose.randint(1, 2)).alive() as world:
        life = Life(world)
        life.live(steps)
        life.end()
        return Lived(world.steps, world.watch.found, world.trace_digest)
