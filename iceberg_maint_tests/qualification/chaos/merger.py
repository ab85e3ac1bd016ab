"""Spark SQL: MERGE, UPDATE, DELETE, merge-on-read; and Spark's own maintenance where nobody writes equality
deletes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from iceberg_maint_tests.qualification.chaos.journal import Answer, Effect, Reader
from iceberg_maint_tests.qualification.chaos.lake import MERGED, NAMESPACE, TOKEN, ChaosTable, Row
from iceberg_maint_tests.qualification.chaos.role import Role, note_of, start

PAUSE_SECONDS = 5.0
_OF_THREE = 1
_FIRST_PARTITION = 10
_PARTITIONS = 4
_TOKEN_CONF = f"spark.sql.iceberg.snapshot-property.{TOKEN}"


class Merger:
    """Statements on one partition each, of keys that are its own or of rows appended."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._spark = role.writers.bridge.spark
        self._there: dict[str, dict[int, Row]] = defaultdict(dict)
        self._retired: dict[str, set[int]] = defaultdict(set)
        self._appended: dict[str, list[Row]] = defaultdict(list)
        self._journal = Reader(role.place.journal("appender"))
        self._count = 0

    def step(self, table: ChaosTable) -> None:
        """One statement."""
        for attempt in self._journal.read():
            mine = [row for row in attempt.effect.put if row[0] % 3 == _OF_THREE]
            self._appended[attempt.table] += mine
        name = str(table)
        if not table.upserts and self._role.rng.random() < 0.1:
            self._maintain(table)
            return
        chosen = self._role.rng.random()
        if chosen < 0.25 and self._appended[name]:
            self._delete(name)
        elif chosen < 0.5 and self._there[name]:
            self._update(name)
        else:
            self._merge(name)

    def _merge(self, name: str) -> None:
        partition = _FIRST_PARTITION + self._role.rng.randrange(_PARTITIONS)
        keys = [k for k in MERGED if _partition(k) == partition and k not in self._retired[name]]
        keys = self._role.rng.sample(keys, min(5, len(keys)))
        rows = self._rows(keys)
        values = ", ".join(f"({i}, {p}, {g}, {v}, '{n}')" for i, p, g, v, n in rows)
        note = note_of(self._role.writers.load(name))
        statement = (
            f"MERGE INTO {name} t USING (SELECT * FROM VALUES {values} AS s(id, p, g, v, note)) s "
            f"ON t.id = s.id AND t.p = {partition} "
            f"WHEN MATCHED THEN UPDATE SET t.v = s.v, t.{note} = s.note "
            f"WHEN NOT MATCHED THEN INSERT (id, p, g, v, {note}) VALUES (s.id, s.p, s.g, s.v, s.note)"
        )
        answer = self._run(name, "merge", statement, Effect(tuple(keys), tuple(rows)))
        self._keep(name, rows, answer)

    def _update(self, name: str) -> None:
        there = self._there[name]
        partition = self._role.rng.choice(list(there.values()))[1]
        keys = [k for k, row in there.items() if row[1] == partition]
        keys = self._role.rng.sample(keys, min(4, len(keys)))
        self._count += 1
        rows = [(*there[k][:3], self._count, f"updated {self._count}") for k in keys]
        note = note_of(self._role.writers.load(name))
        statement = (
            f"UPDATE {name} SET v = {self._count}, {note} = 'updated {self._count}' "
            f"WHERE p = {partition} AND id IN ({', '.join(map(str, keys))})"
        )
        self._keep(name, rows, self._run(name, "update", statement, Effect(tuple(keys), tuple(rows))))

    def _delete(self, name: str) -> None:
        # The newest: those of partitions that are still written to.
        partition = self._appended[name][-1][1]
        ids = [row[0] for row in self._appended[name] if row[1] == partition][-4:]
        # A subquery, because a delete of whole files alone would not be marked with our token.
        values = ", ".join(f"({i})" for i in ids)
        statement = (
            f"DELETE FROM {name} WHERE p = {partition} AND id IN (SELECT k FROM VALUES {values} AS s(k))"
        )
        if self._run(name, "delete", statement, Effect(delete=tuple(ids))) is not Answer.FAILED:
            self._appended[name] = [row for row in self._appended[name] if row[0] not in ids]

    def _maintain(self, table: ChaosTable) -> None:
        procedure = self._role.rng.choice(
            ("rewrite_data_files", "rewrite_position_delete_files", "rewrite_manifests")
        )
        statement = f"CALL {table.catalog}.system.{procedure}(table => '{NAMESPACE}.{table.name}')"
        self._run(str(table), f"stock {procedure}", statement, Effect())

    def _run(self, name: str, kind: str, statement: str, effect: Effect) -> Answer:
        def do(token: str) -> None:
            self._spark.conf.set(_TOKEN_CONF, token)
            try:
                self._spark.sql(statement).collect()
            finally:
                self._spark.conf.unset(_TOKEN_CONF)

        return self._role.journal.commit(name, kind, do, effect)

    def _keep(self, name: str, rows: Sequence[Row], answer: Answer) -> None:
        if answer is Answer.ACKED:
            self._there[name].update({row[0]: row for row in rows})
        if answer is Answer.UNKNOWN:
            for row in rows:
                self._retired[name].add(row[0])
                self._there[name].pop(row[0], None)

    def _rows(self, keys: Sequence[int]) -> list[Row]:
        self._count += 1
        return [(k, _partition(k), k % 2, self._count, f"merged {self._count}") for k in keys]


def _partition(key: int) -> int:
    return _FIRST_PARTITION + key % _PARTITIONS


def main(role: Role) -> None:
    role.run(Merger(role).step)


if __name__ == "__main__":
    start("merger", PAUSE_SECONDS, main)
