"""What a program draws: a table, rows and keys for it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint_tests.qualification.program.kinds import KINDS, STRUCTS
from iceberg_maint_tests.qualification.program.maintainer import ALL_KINDS, Keeper
from iceberg_maint_tests.qualification.program.wide import Wide
from iceberg_maint_tests.support.spark.equality.model import Model, ModelRow
from iceberg_maint_tests.support.spark.equality.reference import Delete
from iceberg_maint_tests.support.spark.writers import Row

NESTED = 0.25
"""Share of tables whose equality deletes also use a required field of an optional struct as a key. Stock readers omit
such deletes (`DeleteFileIndex`): these tables are compared with the model only while no equality delete is live."""
_NO_ROWS_X = 9
LONG_LOG, SHORT_LOG = "100", "5"
"""Earlier versions in a metadata log. A second line of commits is detected as long as the log reaches back to it."""


@dataclass
class Drawn:
    """A table of all kinds of columns, and what is drawn for it. The seed decides everything."""

    keeper: Keeper
    seed: int
    twin: Wide = field(init=False)
    trail: list[str] = field(default_factory=list)
    keyed: set[int] = field(default_factory=set)
    """Ids of columns that equality deletes ever went by: dropped, they could not be applied any more."""
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.version = self.rng.choice([1, 2, 2, 3, 3])
        self.born = self.version
        self.nested = self.rng.random() < NESTED
        self.columns: dict[str, str] = {}
        for number, kind in enumerate(ALL_KINDS):
            self.columns["st" if kind == "struct" else f"c{number}"] = kind
        if self.nested:
            self.columns["st"] = "keyed_struct"
        self.added = len(self.columns)
        data, deletes = self.rng.choices(["parquet", "orc", "avro"], [8, 1, 1], k=2)
        if self.nested:
            data = "parquet"
        self.formats = (data, deletes)
        self.rewrites = self.rng.choice(["merge-on-read", "merge-on-read", "copy-on-write"])
        self.has_long_log = self.rng.random() < 0.7
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
                "write.metadata.previous-versions-max": LONG_LOG if self.has_long_log else SHORT_LOG,
            },
        )
        self.trail.append(
            f"seed {self.seed}: format version {self.version}, {data}, deletes {deletes}, {self.rewrites}, "
            f"partitioned by {partitioned_by or 'nothing'}{', keys in a struct' if self.nested else ''}"
        )
        self.twin.nested = self.nested

    def _rows(self) -> list[Row]:
        return [self._row() for _ in range(self.rng.randint(1, 3))]

    def _row(self) -> Row:
        row: dict[str, Any] = {}
        for column, kind in self.columns.items():
            if kind not in STRUCTS:
                row[column] = self._value(kind)
            elif self.rng.random() < 0.25:
                row[column] = None
            else:
                x = self._value("int") if kind == "struct" else self.rng.choice(KINDS["int"].values)
                row |= {f"{column}.x": x, f"{column}.y": self._value("string")}
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

    def _drawn_keys(self) -> list[str]:
        """Columns of an equality delete; of a nested table the struct's field, too."""
        columns = self._key_columns()
        if self.nested and self.rng.random() < 0.5:
            self.counts["delete by struct key"] += 1
            return ["st.x", *columns[:1]] if self.rng.random() < 0.3 else ["st.x"]
        return columns

    def _delete(self, model: Model) -> Delete:
        """Keys that some rows have and some that none has, at a place where rows are."""
        columns, kinds = self._drawn_keys(), {**self._keys(), "st.x": "int"}
        rows = model.rows
        keys: list[Row] = []
        for _ in range(self.rng.randint(1, 3)):
            if rows and self.rng.random() < 0.7:
                keys.append(self._key_of(model, self.rng.choice(rows), columns))
            elif "st.x" in columns and self.rng.random() < 0.5:
                keys.append({c.removesuffix(".x"): None for c in columns})
            elif "st.x" in columns:
                drawn = {c: self._value(kinds[c]) for c in columns}
                keys.append({**drawn, "st.x": self.rng.choice(KINDS["int"].values)})
            else:
                keys.append({c: self._value(kinds[c]) for c in columns})
        if columns == ["st.x"] and self.rng.random() < 0.5:
            # No file has a value within its bounds, but rows without a struct are deleted.
            keys = [{"st": None}, {"st.x": _NO_ROWS_X}]
            self.counts["delete of null structs by bounds of no row"] += 1
        if not rows:
            spec_id = int(self.twin.table.spec().specId())
            return Delete(keys, spec_id, self._anywhere(spec_id))
        if self.rng.random() < 0.2:
            spec_id = self._any_spec()
            return Delete(keys, spec_id, self._anywhere(spec_id))
        scope = self.rng.choice(rows).scope
        return Delete(keys, scope.spec_id, scope.partition)

    def _key_of(self, model: Model, row: ModelRow, columns: Iterable[str]) -> Row:
        """The key that the row has in these columns; a struct that is not there is a key by itself."""
        ids = {path: i for path, i, _ in self.twin.columns(self.twin.table)}
        of_row = {c: model.value(row.values, ids[c]) for c in columns}
        if "st.x" in of_row and model.value(row.values, ids["st"]) is None:
            del of_row["st.x"]
            of_row = {"st": None, **of_row}
        return of_row

    def _any_spec(self) -> int:
        return self.rng.choice([int(i) for i in self._iterate(self.twin.table.specs().keySet())])

    def _anywhere(self, spec_id: int) -> tuple[Any, ...]:
        """The partition of a row that may not be there."""
        return self.twin.partition_of(spec_id, self._row())

    def _iterate(self, found: Any) -> Iterable[Any]:
        return self.twin.writers.bridge.iterate(found)
