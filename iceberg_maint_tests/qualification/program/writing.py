"""What writers do in a program: one commit of theirs at a time, of every kind."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from iceberg_maint_tests.qualification.program.kinds import KINDS, STRUCTS
from iceberg_maint_tests.qualification.program.maintainer import ALL_KINDS
from iceberg_maint_tests.qualification.program.reused_paths import ReusedPaths
from iceberg_maint_tests.support.spark.equality.reference import Add, Delete

MOST_COLUMNS = 20


@dataclass
class Writing(ReusedPaths):
    """Writers of one table; the trail tells what each of them did."""

    named: frozenset[str] = frozenset()
    """Columns that a policy at work names: without them it would be refused, rightly."""

    def write(self) -> None:
        """One commit of some writer."""
        # Stock Spark takes a key inside of a struct for NULL where it reads other columns only.
        by_spark = 0 if self.nested else 1
        # Rows that are in a file are read from Parquet.
        reuse = 1 if self.formats[0] == "parquet" else 0
        actions: dict[Callable[[], None], int] = {
            self.append: 22,
            self.upsert: 22,
            self.delete: 22,
            self.several_at_once: 8,
            self.delete_rows: 6 * by_spark,
            self.delete_positions: 3 * by_spark if self.version == 2 else 0,
            self.update: 3 * by_spark,
            self.insert: 4 * by_spark,
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
            self.register_again: 5 * reuse,
            self.take_out: 2 * reuse,
            self.put_back: 4 * reuse if self.shelf else 0,
            self.roll_back: 3,
        }
        if self.version == 1:
            actions = {self.append: 8, self.evolve_spec: 1, self.upgrade: 2}
            actions |= dict.fromkeys((self.insert, self.stage, self.publish, self.replace_partition), 1)
            actions |= dict.fromkeys((self.add_ref, self.add_column, self.rename_column), 1)
            actions[self.insert] *= by_spark
            actions |= dict.fromkeys((self.register_again, self.take_out), reuse) | {self.roll_back: 1}
        before = len(self.trail)
        while len(self.trail) == before:  # some have nothing to do, a promotion of promoted columns for one
            (action,) = self.rng.choices(list(actions), list(actions.values()))
            action()
        self._count(action)

    def write_over(self, paths: Collection[str]) -> None:
        """One commit of a writer that registers some of these files again, if it can."""
        before = len(self.trail)
        if self.formats[0] == "parquet":
            self.register_again(paths)
        if len(self.trail) == before:
            self.write()
        else:
            self._count(self.register_again)

    def _count(self, action: Callable[[], None]) -> None:
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
        column = self.rng.choice([c for c, kind in self.columns.items() if kind not in STRUCTS])
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
            name, kind = f"c{self.added}", self.rng.choice([k for k in KINDS if k not in STRUCTS])
            # Of ORC files Iceberg reads no defaults: nobody could read such a table.
            defaults = self.version == 3 and self.formats[0] != "orc" and kind == "int"
            default = 1 if defaults and self.rng.random() < 0.5 else None
            self.trail.append(f"add column {name} {kind}, default {default}")
            self.twin.add_kind(name, kind, default)
            self.columns[name] = kind

    def drop_column(self) -> None:
        ids = {path: i for path, i, _ in self.twin.columns(self.twin.table)}
        unused = [c for c in self.columns if ids[c] not in self.keyed and c not in {"st", *self.named}]
        if unused and len(self.columns) > len(ALL_KINDS) - 2:
            name = self.rng.choice(unused)
            self.trail.append(f"drop column {name}")
            self.twin.drop_column(name)
            del self.columns[name]

    def rename_column(self) -> None:
        old = self.rng.choice([c for c in self.columns if c not in {"st", *self.named}])
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

    def _follow_rewritten(self) -> None:
        """Spark writes rows that it touches, and of copy-on-write those around them, in the current spec."""
        if self.twin.table.specs().size() > 1:
            self.twin.follow_moved_rows()
