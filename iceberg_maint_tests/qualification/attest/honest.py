"""Honest maintenance by every maintainer that starts here, between the commits of a writer, drawn by a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from iceberg_maint_tests.qualification.attest.world import AttestWorld, Verdict

_ALL = "options => map('rewrite-all', 'true')"


def _call(text: str) -> Callable[[AttestWorld, str], None]:
    def call(world: AttestWorld, name: str) -> None:
        world.spark.sql(f"CALL lake.system.{text.format(table=name.removeprefix('lake.'))}")

    return call


MAINTAINERS: dict[str, Callable[[AttestWorld, str], None]] = {
    "Spark binpack": _call(f"rewrite_data_files(table => '{{table}}', {_ALL})"),
    "Spark sort": _call(
        f"rewrite_data_files(table => '{{table}}', strategy => 'sort', sort_order => 'id DESC', {_ALL})"
    ),
    "Spark z-order": _call(
        f"rewrite_data_files(table => '{{table}}', strategy => 'sort', sort_order => 'zorder(id, v)', {_ALL})"
    ),
    "Spark dangling deletes": _call(
        "rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
    ),
    "Spark partial progress": _call(
        "rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true', 'partial-progress.enabled', 'true'))"
    ),
    "Spark position deletes": _call(f"rewrite_position_delete_files(table => '{{table}}', {_ALL})"),
    "Spark manifests": _call("rewrite_manifests('{table}')"),
    "iceberg_maint": lambda world, name: world.lake.rewrite(name),
}


class HonestRun:
    """Rounds of writes and maintenance on tables of each format version. `alarms` are verdicts other than ATTESTED, and
    metadata that contradicts an honest commit."""

    def __init__(self, world: AttestWorld, seed: int) -> None:
        self.world, self._random = world, random.Random(seed)
        self.judged: Counter[str] = Counter()
        self.by_metadata = 0
        self.alarms: list[str] = []

    def run(self, commits: int) -> None:
        """Makes and attests at least so many commits."""
        while self.judged.total() < commits:
            name = self._table()
            for _ in range(min(8, commits)):
                self._write(name)
                self._maintain(name)
                if self.judged.total() >= commits:
                    break

    def _table(self) -> str:
        version = self._random.choice((1, 2, 2, 3, 3))
        partitioned_by = self._random.choice((None, "v"))
        granularity = self._random.choice(("file", "partition"))
        properties = {"write.delete.mode": "merge-on-read", "write.delete.granularity": granularity}
        return self.world.lake.table(
            version=version,
            columns="id int, v string",
            properties=properties if version > 1 else {},
            **({"partitioned_by": partitioned_by} if partitioned_by else {}),
        )

    def _write(self, name: str) -> None:
        rng, sql = self._random, self.world.spark.sql
        for _ in range(rng.choice((1, 2, 3))):
            rows = ", ".join(
                f"({rng.randrange(40)}, '{rng.choice('ab')}')" for _ in range(rng.randrange(1, 9))
            )
            sql(f"INSERT INTO {name} VALUES {rows}")
        table = self.world.writers.load(name)
        if int(table.operations().current().formatVersion()) == 1:
            return
        if rng.random() < 0.6:
            sql(f"DELETE FROM {name} WHERE id % {rng.choice((5, 7, 11))} = 1")
        if rng.random() < 0.4 and not table.spec().isPartitioned():
            keys = [{"id": rng.randrange(40)} for _ in range(3)]
            self.world.writers.delete_where(self.world.writers.load(name), keys)

    def _is_plain(self, name: str) -> bool:
        """Whether the batch of `Lake.rewrite` takes the table: it is of one partition and applies no equality deletes."""
        table = self.world.writers.load(name)
        deletes = table.currentSnapshot().summary().get("total-equality-deletes")
        return not table.spec().isPartitioned() and deletes in (None, "0")

    def _maintain(self, name: str) -> None:
        maintainer = self._random.choice(list(MAINTAINERS))
        if maintainer == "iceberg_maint" and not self._is_plain(name):
            maintainer = "Spark binpack"
        before = self.world.writers.rows(name)
        MAINTAINERS[maintainer](self.world, name)
        assert self.world.writers.rows(name) == before, f"{maintainer} itself changed rows of {name}"
        for found in self.world.attest(name).verdicts:
            self.judged[maintainer] += 1
            self.by_metadata += found.detail.startswith("proved from metadata")
            if found.status != "ATTESTED" or found.facts:
                self.alarms.append(f"{maintainer} on {name}: {Verdict.of(found)}, facts {found.facts}")
