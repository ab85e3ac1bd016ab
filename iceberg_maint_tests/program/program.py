"""Random programs: writers of every kind and all of maintenance take turns on one real table, and the model
tells after every step what it must hold, at its head and at every snapshot that is kept."""

from __future__ import annotations

import itertools
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from iceberg_maint.core.housekeeping import (
    DAY_SECONDS,
    ExpireSnapshotsPolicy,
    RemoveOrphanFilesPolicy,
    RewriteManifestsPolicy,
)
from iceberg_maint.core.ids import Operation
from iceberg_maint.core.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.core.plan import Batch
from iceberg_maint.core.policy import (
    LayoutPolicy,
    OutputSpec,
    Policy,
    ProofLevel,
    RewritePositionDeleteFilesPolicy,
    Route,
)
from iceberg_maint.core.reasons import Reason
from iceberg_maint.maintain import BatchEnded, BatchStarted, Event
from iceberg_maint_tests.program.keeper import ALL_KINDS, Keeper
from iceberg_maint_tests.program.kinds import KINDS
from iceberg_maint_tests.program.lives import Life, Lives
from iceberg_maint_tests.program.planted import Planted
from iceberg_maint_tests.program.retained import retained
from iceberg_maint_tests.program.wide import Wide
from iceberg_maint_tests.program.witness import Crashed
from iceberg_maint_tests.spark.equality.maintainer import policy_of
from iceberg_maint_tests.spark.equality.model import Model
from iceberg_maint_tests.spark.equality.twin import Add, Delete
from iceberg_maint_tests.spark.writers import Row

MOST_FILES = 24
"""A table of more data files than this is maintained next: reading is what every step costs."""
MAINTAINED = 0.1
"""Share of steps that are maintenance, which costs as much as twenty commits of writers."""
STEPS_EACH = 50
"""Steps of one table's life; a longer one sees more of its own past, more lives see more kinds of tables."""
MOST_COLUMNS = 20
_LOST_RACES = (Reason.STALE, Reason.CONFLICT)
_ENDED_WELL = (OutcomeStatus.IMPROVED, OutcomeStatus.NO_OP)


@dataclass
class Program:
    """One table's life. The seed decides everything."""

    keeper: Keeper
    seed: int
    twin: Wide = field(init=False)
    trail: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    moves: bool = False
    keyed: set[int] = field(default_factory=set)
    """Ids of columns that equality deletes ever went by: dropped, they could not be applied any more."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.version = self.rng.choice([1, 2, 2, 3, 3])
        self.born = self.version
        self.columns: dict[str, str] = {}
        for number, kind in enumerate(ALL_KINDS):
            self.columns["st" if kind == "struct" else f"c{number}"] = kind
        self.added = len(self.columns)
        data, deletes = self.rng.choices(["parquet", "orc", "avro"], [8, 1, 1], k=2)
        self.formats = (data, deletes)
        self.rewrites = self.rng.choice(["merge-on-read", "merge-on-read", "copy-on-write"])
        partitioned_by = self.rng.choice(["", "", "p", "bucket(2, p)", "days(d)", "p, months(d)"])
        self.twin = self.keeper.make(
            self.version,
            partitioned_by,
            self.columns,
            **{
                "write.format.default": data,
                "write.delete.format.default": deletes,
                "write.delete.mode": self.rewrites,
                "write.update.mode": self.rewrites,
                "commit.manifest-merge.enabled": self.rng.choice(["true", "false"]),
                "write.metadata.delete-after-commit.enabled": self.rng.choice(["true", "false"]),
                "write.metadata.previous-versions-max": "5",
            },
        )
        self.planted = Planted(self.keeper, self.twin)
        self.trail.append(
            f"seed {self.seed}: format version {self.version}, {data}, deletes {deletes}, {self.rewrites}, "
            f"partitioned by {partitioned_by or 'nothing'}"
        )
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
        if not (last or crowded) and self.rng.random() > MAINTAINED:
            self.write()
            return
        self.twin.check()
        self.maintain(quiet=last or crowded)
        self.twin.inherit()
        self.twin.check()
        self.check_head()
        if self.moves:
            self.twin.follow_moved_rows()
        if last or self.rng.random() < 0.5:
            self.keep_house(everything=last)

    # what writers do

    def write(self) -> None:
        """One commit of some writer."""
        actions: dict[Callable[[], None], int] = {
            self.append: 22,
            self.upsert: 22,
            self.delete: 22,
            self.several_at_once: 8,
            self.delete_rows: 6,
            self.delete_positions: 3 if self.version == 2 else 0,
            self.update: 3,
            self.insert: 4,
            self.replace_partition: 2,
            self.stage: 2,
            self.publish: 3,
            self.add_column: 2,
            self.drop_column: 1,
            self.rename_column: 3,
            self.promote_column: 2,
            self.evolve_spec: 3,
            self.add_ref: 3,
            self.drop_ref: 1,
            self.write_to_branch: 4,
            self.upgrade: 2,
        }
        if self.version == 1:
            actions = {self.append: 8, self.evolve_spec: 1, self.upgrade: 2}
            actions |= dict.fromkeys((self.insert, self.stage, self.publish, self.replace_partition), 1)
            actions |= dict.fromkeys((self.add_ref, self.add_column, self.rename_column), 1)
        before = len(self.trail)
        while len(self.trail) == before:  # some have nothing to do, a promotion of promoted columns for one
            (action,) = self.rng.choices(list(actions), list(actions.values()))
            action()
        self.twin.remember()
        self.counts["writes"] += 1
        self.counts[f"write {action.__name__}"] += 1

    def append(self) -> None:
        spec_id = self._any_spec() if self.rng.random() < 0.2 else None
        rows = self._rows()
        self.trail.append(f"append {rows} to spec {spec_id}")
        self.twin.append(*rows, spec_id=spec_id)

    def insert(self) -> None:
        rows = self._rows()
        kinds = {**self.columns, "p": "int", "q": "int", "d": "date"}
        self.trail.append(f"insert {rows} by Spark")
        self.twin.insert(rows, kinds)

    def upsert(self) -> None:
        columns = self._key_columns()
        rows = self._rows()
        self.trail.append(f"upsert {rows} by {columns}")
        self.twin.upsert(columns, *rows)

    def delete(self) -> None:
        delete = self._delete(self.twin.model)
        removed = self.twin.commit(delete)
        self.trail.append(f"{delete} deletes {removed} rows")

    def several_at_once(self) -> None:
        parts: list[Add | Delete] = [self._delete(self.twin.model) for _ in range(self.rng.randint(1, 3))]
        parts.append(Add(self.twin.tagged(self._rows())))
        self.trail.append(f"in one commit {parts}")
        self.twin.commit(*parts)

    def delete_rows(self) -> None:
        if tags := self._some_tags():
            self.trail.append(f"delete rows {tags} by Spark")
            self.twin.delete_rows(*tags)
            self._follow_rewritten()

    def delete_positions(self) -> None:
        if tags := self._some_tags():
            files = self.twin.delete_positions(tags)
            self.trail.append(f"delete rows {tags} by {files} position delete files")

    def update(self) -> None:
        column = self.rng.choice([c for c, kind in self.columns.items() if kind != "struct"])
        if tags := self._some_tags():
            value = self._value(self.columns[column])
            self.trail.append(f"set {column} to {value!r} in rows {tags} by Spark")
            self.twin.update(column, self.columns[column], value, tags)
            self._follow_rewritten()

    def replace_partition(self) -> None:
        if not self.twin.table.spec().isUnpartitioned():
            rows = self._rows()
            gone = self.twin.replace_partition(*rows)
            self.trail.append(f"replace partitions by {rows}: {gone} rows went")

    def stage(self) -> None:
        if len(self.twin.staged) < 2:
            rows = self._rows()
            staged = self.twin.stage(f"wap{len(self.trail)}", *rows)
            self.trail.append(f"stage {rows} as {staged}")

    def publish(self) -> None:
        if self.twin.staged:
            staged = self.rng.choice(list(self.twin.staged))
            self.trail.append(f"publish {staged}")
            self.twin.publish(staged)

    def add_column(self) -> None:
        if len(self.columns) < MOST_COLUMNS:
            self.added += 1
            name, kind = f"c{self.added}", self.rng.choice([k for k in KINDS if k != "struct"])
            # Of ORC files Iceberg reads no defaults: nobody could read such a table.
            defaults = self.version == 3 and self.formats[0] != "orc" and kind == "int"
            default = 1 if defaults and self.rng.random() < 0.5 else None
            self.trail.append(f"add column {name} {kind}, default {default}")
            self.twin.add_kind(name, kind, default)
            self.columns[name] = kind

    def drop_column(self) -> None:
        ids = {path: i for path, i, _ in self.twin.columns(self.twin.table)}
        unused = [c for c in self.columns if ids[c] not in self.keyed and c != "st"]
        if unused and len(self.columns) > len(ALL_KINDS) - 2:
            name = self.rng.choice(unused)
            self.trail.append(f"drop column {name}")
            self.twin.drop_column(name)
            del self.columns[name]

    def rename_column(self) -> None:
        old = self.rng.choice([c for c in self.columns if c != "st"])
        new = f"r{len(self.trail)}"
        self.trail.append(f"rename {old} to {new}")
        self.twin.rename_column(old, new)
        self.columns[new] = self.columns.pop(old)

    def promote_column(self) -> None:
        narrow = [name for name, kind in self.columns.items() if KINDS[kind].wider]
        if narrow:
            name = self.rng.choice(narrow)
            wider = KINDS[self.columns[name]].wider
            assert wider is not None
            self.trail.append(f"promote {name} to {wider}")
            self.twin.promote_column(name, KINDS[wider].type)
            self.columns[name] = wider

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
        column = self.rng.choice(["p", "q", "d"])
        if not any(column in name.split("_") for name in fields):
            self.trail.append(f"spec with {column}")
            update.addField(column).commit()

    def add_ref(self) -> None:
        table = self.twin.table
        head = int(table.currentSnapshot().snapshotId())
        number = len(self.trail)
        if table.refs().size() > 4:
            return
        manage = table.manageSnapshots()
        if self.rng.random() < 0.5:
            hours = self.rng.choice([None, None, 40])
            manage.createTag(f"t{number}", head)
            if hours:
                manage.setMaxRefAgeMs(f"t{number}", hours * 3_600_000)
            self.trail.append(f"tag {head}, for {hours} h")
            manage.commit()
            return
        name, least = f"b{number}", self.rng.choice([None, 1, 2])
        manage.createBranch(name, head)
        if least:
            manage.setMinSnapshotsToKeep(name, least)
        self.trail.append(f"branch {name} of {head}, keeps {least}")
        manage.commit()
        self.twin.branches[name] = replace(self.twin.model, rows=list(self.twin.model.rows))

    def drop_ref(self) -> None:
        names = sorted(str(n) for n in self._iterate(self.twin.table.refs().keySet()) if n != "main")
        if names:
            name = self.rng.choice(names)
            self.trail.append(f"drop {name}")
            manage = self.twin.table.manageSnapshots()
            (manage.removeBranch(name) if name in self.twin.branches else manage.removeTag(name)).commit()
            self.twin.branches.pop(name, None)

    def write_to_branch(self) -> None:
        if self.twin.branches:
            name = self.rng.choice(sorted(self.twin.branches))
            part: Add | Delete = Add(self.twin.tagged(self._rows()))
            if self.rng.random() < 0.5:
                part = self._delete(self.twin.branches[name])
            removed = self.twin.commit(part, branch=name)
            self.trail.append(f"on branch {name} {part} deletes {removed} rows")

    def upgrade(self) -> None:
        if self.version < 3:
            self.version += 1
            self.trail.append(f"upgrade to format version {self.version}")
            self.twin.upgrade(self.version)

    # what maintenance does

    def maintain(self, *, quiet: bool) -> None:
        """One run on the data under a policy drawn; unless `quiet`, others may write between write and
        commit."""
        policy = self._policy(compact=quiet)
        others = 0 if quiet or self.rng.random() < 0.6 else self.rng.randint(1, 2)
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
                    self.write()
            written.append(batch)

        def observe(event: Event) -> None:
            if isinstance(event, BatchStarted):
                strategies[event.batch.batch_id] = event.batch.strategy
            elif isinstance(event, BatchEnded):
                ended = event.outcome
                self.counts[f"batch {strategies[ended.batch_id]} {ended.outcome}"] += 1

        strategies: dict[str, str] = {}
        outcomes = self.keeper.maintain(
            self.twin, policy, between=between, partitions=partitions, observer=observe
        )
        self.counts["maintain"] += 1
        for outcome in outcomes:
            self._tell(outcome)
            lost = others and outcome.reason in _LOST_RACES
            assert lost or outcome.outcome in _ENDED_WELL, outcome
        if not others and partitions is None:
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
            f"held {orphans.hold_seconds} s"
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
        self.counts[name] += 1

    def _readers(self, summary: Mapping[str, str]) -> list[str]:
        """Second readers of a snapshot. Neither reads what is not Parquet; DuckDB reads no manifest list of
        format v1; PyIceberg applies no equality deletes, and DuckDB some to rows that are younger."""
        if set(self.formats) != {"parquet"} or summary["total-equality-deletes"] != "0":
            return []
        return ["pyiceberg", "duckdb"] if self.born > 1 else ["pyiceberg"]

    def _operate(self, operation: Operation, policy: Policy) -> None:
        (outcome,) = self.keeper.maintain(self.twin, policy, operations=(operation,))
        self._tell(outcome)
        assert outcome.outcome in _ENDED_WELL, outcome

    def _tell(self, outcome: OperationOutcome) -> None:
        self.counts[f"{outcome.operation} {outcome.outcome}"] += 1
        self.trail.append(f"  {outcome.operation}: {outcome.outcome} {outcome.reason}")

    def _policy(self, *, compact: bool) -> Policy:
        pick = self.rng.choice
        policy = policy_of(
            pick([Route.AUTO, Route.CONVERT, Route.REWRITE]),
            min_input_files=2 if compact else pick([2, 5, 1000]),
            delete_ratio_act=pick([None, 0.3]),
            output_spec=pick([OutputSpec.OWN, OutputSpec.OWN, OutputSpec.CURRENT]),
            proof=pick([ProofLevel.FULL, ProofLevel.FOOTER]),
        )
        merge = RewritePositionDeleteFilesPolicy(
            min_input_files=pick([1, 2, 5]), proof=pick([ProofLevel.FULL, ProofLevel.FOOTER])
        )
        return replace(policy, layout=self._layout(), rewrite_position_delete_files=merge)

    def _layout(self) -> LayoutPolicy:
        sortable = [c for c, kind in self.columns.items() if kind not in ("struct", "list", "map")]
        by = tuple(self.rng.sample(sortable, 2))
        eager = {"overlap_depth_warn": None, "overlap_depth_act": 1.0, "min_gain_ratio": 0.0}
        return self.rng.choice(
            [
                LayoutPolicy(enabled=False),
                LayoutPolicy(sort_by=(by[0], f"{by[1]} desc"), **eager),
                LayoutPolicy(z_order_by=by, **eager),
            ]
        )

    def _housekeeping(self) -> Policy:
        pick = self.rng.choice
        return replace(
            policy_of(Route.AUTO),
            rewrite_manifests=RewriteManifestsPolicy(max_manifests=1, min_manifests=2),
            expire_snapshots=ExpireSnapshotsPolicy(
                every_seconds=0,
                max_snapshot_age_seconds=pick([0, 0, 0, 10_000 * DAY_SECONDS]),
                min_snapshots_to_keep=pick([1, 2, 5, 10]),
            ),
            remove_orphan_files=RemoveOrphanFilesPolicy(
                every_seconds=0,
                older_than_seconds=pick([1, 3]) * DAY_SECONDS,
                hold_seconds=pick([1, 2]) * DAY_SECONDS,
                max_orphan_ratio=1.0,
            ),
        )

    def _some_partitions(self) -> frozenset[str] | None:
        if self.rng.random() < 0.7:
            return None
        keys = self.keeper.partitions(self.twin)
        return frozenset(self.rng.sample(keys, self.rng.randint(1, len(keys)))) if keys else None

    def _follow_rewritten(self) -> None:
        """Spark writes rows that it touches, and of copy-on-write those around them, in the current spec."""
        if self.twin.table.specs().size() > 1:
            self.twin.follow_moved_rows()

    # values

    def _rows(self) -> list[Row]:
        return [self._row() for _ in range(self.rng.randint(1, 3))]

    def _row(self) -> Row:
        row: dict[str, Any] = {}
        for column, kind in self.columns.items():
            if kind != "struct":
                row[column] = self._value(kind)
            elif self.rng.random() < 0.25:
                row[column] = None
            else:
                row |= {f"{column}.x": self._value("int"), f"{column}.y": self._value("string")}
        return {**row, "p": self._place(), "q": self._place(), "d": self._value("date")}

    def _value(self, kind: str) -> Any:
        values = KINDS[kind].values
        if "orc" in self.formats:
            # Its reader adds a second to fractions of one before 1970, and takes zeros of both signs for one.
            values = tuple(v for v in values if v != "-0.0" and not str(v).startswith("1969-12-31T"))
        return None if self.rng.random() < 0.2 else self.rng.choice(values)

    def _place(self) -> int | None:
        return self.rng.choice([1, 1, 2, 2, 3, None])

    def _some_tags(self) -> list[int]:
        tag = self.twin.field_id("tag")
        live = [row.values[tag] for row in self.twin.model.rows]
        return self.rng.sample(live, min(len(live), self.rng.randint(1, 3)))

    def _keys(self) -> dict[str, str]:
        """Columns that equality deletes may go by, with their kinds. None inside of the struct: Spark, asked
        for other columns only, takes such a key for NULL in every row, and deletes what it must not."""
        return {c: kind for c, kind in self.columns.items() if KINDS[kind].is_key}

    def _key_columns(self) -> list[str]:
        names = list(self._keys())
        # Numbers and short texts are in many rows, as keys of a real table are.
        common = [n for n in names if self._keys()[n] in ("int", "long", "string", "boolean")]
        columns = self.rng.choice([common, common, names])
        chosen = self.rng.sample(columns, self.rng.choice([1, 1, 1, 2, min(4, len(columns))]))
        ids = {path: i for path, i, _ in self.twin.columns(self.twin.table)}
        self.keyed |= {ids[c] for c in chosen}
        return chosen

    def _delete(self, model: Model) -> Delete:
        """Keys that some rows have and some that none has, at a place where rows are."""
        columns, kinds = self._key_columns(), self._keys()
        ids = {path: i for path, i, _ in self.twin.columns(self.twin.table)}
        rows = model.rows
        keys: list[Row] = []
        for _ in range(self.rng.randint(1, 3)):
            if rows and self.rng.random() < 0.7:
                row = self.rng.choice(rows)
                keys.append({c: model.value(row.values, ids[c]) for c in columns})
            else:
                keys.append({c: self._value(kinds[c]) for c in columns})
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
        return self.twin.partition_of(spec_id, self._row())

    def _iterate(self, found: Any) -> Iterable[Any]:
        return self.twin.writers.bridge.iterate(found)


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
        program.run(steps)
    except Exception:  # noqa: BLE001 - whatever went wrong is the finding
        why = traceback.format_exc()
        tell(why)
    keeper.drop(program.twin)
    counts = program.counts
    lived = counts["writes"] + counts["maintain"]
    return Life(seed, lived, dict(counts), why, round(time.monotonic() - started, 1))
