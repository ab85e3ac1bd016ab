"""Random programs: writers of every kind and maintenance by both routes take turns on one real table, and the
model tells after every step what it must hold."""

from __future__ import annotations

import itertools
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint.core.outcome import OutcomeStatus
from iceberg_maint.core.plan import Batch
from iceberg_maint.core.policy import OutputSpec, Policy, ProofLevel, Route
from iceberg_maint.core.reasons import Reason
from iceberg_maint.maintain import BatchEnded, BatchStarted, Event
from iceberg_maint_tests.spark.equality.maintainer import Maintainer, policy_of
from iceberg_maint_tests.spark.equality.twin import Add, Delete, Reading, Twin
from iceberg_maint_tests.spark.writers import Row

MOST_FILES = 24
"""A table of more data files than this is maintained next: reading is what every step costs."""
MAINTAINED = 0.12
"""Share of steps that are maintenance, which costs as much as twenty commits of writers."""
STEPS_EACH = 50
"""Steps of one table's life; a longer one sees more of its own past, more lives see more kinds of tables."""
_LOST_RACES = (Reason.STALE, Reason.CONFLICT)


@dataclass
class Program:
    """One table's life. The seed decides everything."""

    maintainer: Maintainer
    seed: int
    twin: Twin = field(init=False)
    trail: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    moves: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.version = self.rng.choice([1, 2, 2, 3, 3])
        self.keys = ["k", "s"]
        self.columns = {"k": "int", "s": "string"}
        self.kept: dict[int, Reading] = {}
        data, deletes = self.rng.choices(["parquet", "orc", "avro"], [6, 1, 1], k=2)
        self.orc = data == "orc"
        self.twin = self.maintainer.create(
            "tag int, k int, s string, p int, q int",
            version=self.version,
            partitioned_by=self.rng.choice(["", "", "p", "bucket(2, p)"]),
            **{"write.format.default": data, "write.delete.format.default": deletes},
        )
        self.trail.append(f"seed {self.seed}: format version {self.version}, {data}, deletes {deletes}")
        self.append()

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
        if not (last or crowded) and self.rng.random() > MAINTAINED:
            self.write()
            return
        self.twin.check()
        self.maintain(quiet=last or crowded)
        self.twin.check()
        if self.moves:
            self.twin.follow_moved_rows()
        if last:
            for snapshot_id, reading in self.kept.items():
                assert self.twin.read(snapshot_id).lineage.keys() == reading.lineage.keys()

    # what writers do

    def write(self) -> None:
        """One commit of some writer."""
        actions: dict[Callable[[], None], int] = {
            self.append: 24,
            self.upsert: 24,
            self.delete: 24,
            self.delete_rows: 8,
            self.several_at_once: 8,
            self.add_column: 2,
            self.rename_column: 3,
            self.promote_column: 2,
            self.evolve_spec: 3,
            self.keep_snapshot: 2,
            self.upgrade: 2,
        }
        if self.version == 1:
            actions = {self.append: 8, self.evolve_spec: 1, self.upgrade: 2}
        before = len(self.trail)
        while len(self.trail) == before:  # some have nothing to do, a promotion of promoted columns for one
            (action,) = self.rng.choices(list(actions), list(actions.values()))
            action()
        self.counts["writes"] += 1

    def append(self) -> None:
        spec_id = self._any_spec() if self.rng.random() < 0.2 else None
        rows = self._rows()
        self.trail.append(f"append {rows} to spec {spec_id}")
        self.twin.append(*rows, spec_id=spec_id)

    def upsert(self) -> None:
        columns = self._key_columns()
        rows = self._rows()
        self.trail.append(f"upsert {rows} by {columns}")
        self.twin.upsert(columns, *rows)

    def delete(self) -> None:
        delete = self._delete()
        removed = self.twin.commit(delete)
        self.trail.append(f"{delete} deletes {removed} rows")

    def several_at_once(self) -> None:
        parts: list[Add | Delete] = [self._delete() for _ in range(self.rng.randint(1, 3))]
        parts.append(Add(self.twin.tagged(self._rows())))
        self.trail.append(f"in one commit {parts}")
        self.twin.commit(*parts)

    def delete_rows(self) -> None:
        tag = self.twin.field_id("tag")
        live = [row.values[tag] for row in self.twin.model.rows]
        if live:
            tags = self.rng.sample(live, min(len(live), self.rng.randint(1, 3)))
            self.trail.append(f"delete rows {tags} by Spark")
            self.twin.delete_rows(*tags)

    def add_column(self) -> None:
        name = f"c{len(self.columns)}"
        if len(self.columns) < 5:
            # Of ORC files Iceberg reads no defaults: nobody could read such a table.
            defaults = self.version == 3 and not self.orc
            default = 1 if defaults and self.rng.random() < 0.5 else None
            self.trail.append(f"add column {name}, default {default}")
            self.twin.add_column(name, "int", default)
            self.columns[name] = "int"

    def rename_column(self) -> None:
        old = self.rng.choice(list(self.columns))
        new = f"r{len(self.trail)}"
        self.trail.append(f"rename {old} to {new}")
        self.twin.rename_column(old, new)
        self.columns[new] = self.columns.pop(old)

    def promote_column(self) -> None:
        narrow = [name for name, kind in self.columns.items() if kind == "int"]
        if narrow:
            name = self.rng.choice(narrow)
            self.trail.append(f"promote {name}")
            self.twin.promote_column(name, "long")
            self.columns[name] = "long"

    def evolve_spec(self) -> None:
        table = self.twin.table
        fields = [str(f.name()) for f in self._iterate(table.spec().fields())]
        if table.specs().size() > 3:
            return
        update = table.updateSpec()
        # Format v1 would keep it as void; test_evolution.py has such a spec.
        if fields and self.version > 1 and self.rng.random() < 0.3:
            gone = self.rng.choice(fields)
            self.trail.append(f"spec without {gone}")
            update.removeField(gone).commit()
            return
        column = self.rng.choice(["p", "q"])
        if not any(column in name for name in fields):
            self.trail.append(f"spec with {column}")
            update.addField(column).commit()

    def keep_snapshot(self) -> None:
        table = self.twin.table
        snapshot_id = int(table.currentSnapshot().snapshotId())
        if len(self.kept) < 2 and snapshot_id not in self.kept:
            self.trail.append(f"keep snapshot {snapshot_id}")
            kept = table.manageSnapshots()
            if self.kept:
                kept.createBranch(f"b{len(self.kept)}", snapshot_id).commit()
            else:
                kept.createTag(f"t{len(self.kept)}", snapshot_id).commit()
            self.kept[snapshot_id] = self.twin.read(snapshot_id)

    def upgrade(self) -> None:
        if self.version < 3:
            self.version += 1
            self.trail.append(f"upgrade to format version {self.version}")
            self.twin.upgrade(self.version)

    # what maintenance does

    def maintain(self, *, quiet: bool) -> None:
        """One run under a policy drawn; unless `quiet`, others may write between write and commit."""
        policy = self._policy(compact=quiet)
        others = 0 if quiet or self.rng.random() < 0.6 else self.rng.randint(1, 2)
        partitions = None if quiet else self._some_partitions()
        named = f"{policy.equality_deletes.route} {policy.rewrite_data_files.min_input_files}"
        self.trail.append(f"maintain {named}, {others} writers meanwhile, partitions {partitions}")
        written: list[Batch] = []

        def between(batch: Batch) -> None:
            if not written:
                for _ in range(others):
                    self.write()
            written.append(batch)

        def observe(event: Event) -> None:
            if isinstance(event, BatchStarted):
                strategies[event.batch.batch_id] = event.batch.strategy
            elif isinstance(event, BatchEnded):
                ended = event.outcome
                self.counts[f"batch {strategies[ended.batch_id]} {ended.outcome}"] += 1

        strategies: dict[str, str] = {}
        outcomes = self.maintainer.maintain(
            self.twin, policy, between=between, partitions=partitions, observer=observe
        )
        self.counts["maintain"] += 1
        for outcome in outcomes:
            self.counts[f"{outcome.operation} {outcome.outcome}"] += 1
            lost = others and outcome.reason in _LOST_RACES
            assert lost or outcome.outcome in (OutcomeStatus.IMPROVED, OutcomeStatus.NO_OP), outcome
            self.trail.append(f"  {outcome.operation}: {outcome.outcome} {outcome.reason}")
        if not others and partitions is None:
            assert self.twin.applied_equality_deletes() == set()
        self.moves = policy.rewrite_data_files.output_spec is OutputSpec.CURRENT

    def _policy(self, *, compact: bool) -> Policy:
        pick = self.rng.choice
        return policy_of(
            pick([Route.AUTO, Route.CONVERT, Route.REWRITE]),
            min_input_files=2 if compact else pick([2, 5, 1000]),
            delete_ratio_act=pick([None, 0.3]),
            output_spec=pick([OutputSpec.OWN, OutputSpec.OWN, OutputSpec.CURRENT]),
            proof=pick([ProofLevel.FULL, ProofLevel.FOOTER]),
        )

    def _some_partitions(self) -> frozenset[str] | None:
        if self.rng.random() < 0.7:
            return None
        keys = self.maintainer.partitions(self.twin)
        return frozenset(self.rng.sample(keys, self.rng.randint(1, len(keys)))) if keys else None

    # values

    def _rows(self) -> list[Row]:
        return [
            {
                **{c: self._value(kind) for c, kind in self.columns.items()},
                "p": self._place(),
                "q": self._place(),
            }
            for _ in range(self.rng.randint(1, 3))
        ]

    def _value(self, kind: str) -> Any:
        if kind == "string":
            return self.rng.choice(["a", "b", "", None])
        return self.rng.choice([0, 1, 2, 3, None, 2**40 if kind == "long" else -1])

    def _place(self) -> int | None:
        return self.rng.choice([1, 1, 2, 2, 3, None])

    def _key_columns(self) -> list[str]:
        names = list(self.columns)
        return self.rng.sample(names, self.rng.choice([1, 1, 1, min(2, len(names)), len(names)]))

    def _delete(self) -> Delete:
        """Keys that some rows have and some that none has, at a place where rows are."""
        columns = self._key_columns()
        ids = {c: self.twin.field_id(c) for c in columns}
        rows = self.twin.model.rows
        keys: list[Row] = []
        for _ in range(self.rng.randint(1, 3)):
            if rows and self.rng.random() < 0.7:
                row = self.rng.choice(rows)
                keys.append({c: self.twin.model.value(row.values, i) for c, i in ids.items()})
            else:
                keys.append({c: self._value(self.columns[c]) for c in columns})
        if not rows:
            spec_id = int(self.twin.table.spec().specId())
            return Delete(keys, spec_id, self._anywhere(spec_id))
        if self.rng.random() < 0.2:
            spec_id = self._any_spec()
            return Delete(keys, spec_id, self._anywhere(spec_id))
        scope = self.rng.choice(rows).scope
        return Delete(keys, scope.spec_id, scope.partition)

    def _any_spec(self) -> int:
        return self.rng.choice([int(i) for i in self._iterate(self.twin.table.specs().keySet())])

    def _anywhere(self, spec_id: int) -> tuple[Any, ...]:
        """The partition of a row that may not be there."""
        return self.twin.partition_of(spec_id, self._rows()[0])

    def _iterate(self, found: Any) -> Iterable[Any]:
        return self.twin.writers.bridge.iterate(found)


@dataclass(frozen=True, slots=True)
class Difference:
    """A program that did not end well."""

    seed: int
    why: str


@dataclass
class Tally:
    """What so many programs did."""

    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)


def run_programs(
    maintainer: Maintainer,
    steps: int,
    first_seed: int,
    tell: Callable[[str], None],
    *,
    every: int,
) -> Tally:
    """Programs of every so manieth seed until so many steps are done. One that fails is told with its trail,
    and the next one runs."""
    tally = Tally()
    for seed in itertools.count(first_seed, every):
        program = Program(maintainer, seed)
        try:
            program.run(min(STEPS_EACH, steps - tally.steps))
        except Exception:  # noqa: BLE001 - whatever went wrong is the finding
            tally.differences.append(Difference(seed, traceback.format_exc()))
            tell(tally.differences[-1].why)
        tally.steps += program.counts["writes"] + program.counts["maintain"]
        tally.counts += program.counts
        tell(f"seed {seed}: {tally.steps} steps so far, {len(tally.differences)} differences")
        if tally.steps >= steps:
            return tally
    raise AssertionError("seeds do not end")
