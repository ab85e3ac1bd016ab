"""Upserts and deletes by equality deletes, as streaming writers do: deletes and new rows in one commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from iceberg_maint_tests.qualification.chaos.journal import Answer, Effect, Reader
from iceberg_maint_tests.qualification.chaos.lake import (
    TABLES,
    TOKEN,
    UNPARTITIONED,
    UPSERTED,
    ChaosTable,
    Row,
)
from iceberg_maint_tests.qualification.chaos.role import Role, by_partition, names_of, partition_of, start

PAUSE_SECONDS = 3.0
_OF_THREE = 0
"""Appended ids that this writer deletes, modulo 3."""

_Spot = tuple[int, tuple[int, ...]]
"""Spec and partition."""


class Upserter:
    """Knows where its own rows lie; rows of the appender it deletes by what holds for the whole table."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._spots: dict[str, dict[int, _Spot]] = defaultdict(dict)
        self._retired: dict[str, set[int]] = defaultdict(set)
        self._appended: dict[str, list[int]] = defaultdict(list)
        self._journal = Reader(role.place.journal("appender"))
        self._count = 0

    def step(self, table: ChaosTable) -> None:
        """One commit: some keys again, sometimes some appended rows away."""
        rng, name = self._role.rng, str(table)
        for attempt in self._journal.read():
            mine = [row[0] for row in attempt.effect.put if row[0] % 3 == _OF_THREE]
            self._appended[attempt.table] += mine
        keys = [k for k in rng.sample(UPSERTED, rng.randint(2, 10)) if k not in self._retired[name]]
        self._count += 1
        rows = [(k, k % 4, k // 4 % 2, self._count, f"upserted {self._count}") for k in keys]
        gone = []
        if rng.random() < 0.5:
            gone = rng.sample(self._appended[name], min(6, len(self._appended[name])))
        everywhere = bool(gone) or rng.random() < 0.3
        placed: dict[int, _Spot] = {}
        answer = self._role.journal.commit(
            name,
            "upsert",
            lambda token: placed.update(self._commit(name, rows, gone, token, everywhere=everywhere)),
            Effect((*keys, *gone), tuple(rows)),
        )
        if answer is Answer.ACKED:
            self._spots[name].update(placed)
        if answer is Answer.UNKNOWN:
            self._retired[name].update(keys)
        if answer is not Answer.FAILED:
            self._appended[name] = [i for i in self._appended[name] if i not in gone]

    def _commit(
        self, name: str, rows: Sequence[Row], gone: Sequence[int], token: str, *, everywhere: bool
    ) -> dict[int, _Spot]:
        writers = self._role.writers
        table = writers.load(name)
        names = names_of(table)
        # The commit takes in whatever spec there is by then; the rows are written in the one of now.
        placed = self._placed(table, rows)
        delta = table.newRowDelta()
        for (spec_id, partition), keys in self._scopes(name, [r[0] for r in rows], gone, everywhere).items():
            spec = table.specs().get(spec_id)
            deletes = writers.equality_deletes(table, [{"id": key} for key in keys], spec, partition)
            delta.addDeletes(deletes)
        for partition, part in by_partition(table, rows).items():
            named = [dict(zip(names, row, strict=True)) for row in part]
            delta.addRows(writers.data(table, named, None, partition))
        delta.set(TOKEN, token)
        delta.commit()
        return placed

    def _scopes(
        self, name: str, keys: Sequence[int], gone: Sequence[int], everywhere: bool
    ) -> dict[_Spot, list[int]]:
        """Delete files by where they hold: where the old rows are, or in the whole table."""
        if everywhere:
            return {(UNPARTITIONED, ()): [*keys, *gone]}
        scopes: dict[_Spot, list[int]] = {}
        for key in keys:
            if key in self._spots[name]:
                scopes.setdefault(self._spots[name][key], []).append(key)
        return scopes

    def _placed(self, table: Any, rows: Sequence[Row]) -> dict[int, _Spot]:
        spec_id = int(table.spec().specId())
        return {row[0]: (spec_id, partition_of(table, row)) for row in rows}


def main(role: Role) -> None:
    role.run(Upserter(role).step, [t for t in TABLES if t.upserts])


if __name__ == "__main__":
    start("upserter", PAUSE_SECONDS, main)
