"""Every writer of the chaos suite, one after the other on one lake: the judge finds nothing, and finds what
was done to the tables behind their backs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.config import Config, load_config
from iceberg_maint.engines.spark.session.settings import catalog_conf
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.adapters import build
from iceberg_maint_tests.qualification.chaos import appender, changer, merger, upserter
from iceberg_maint_tests.qualification.chaos.history import change_faults, commit_faults
from iceberg_maint_tests.qualification.chaos.journal import Answer, Attempt, Reader
from iceberg_maint_tests.qualification.chaos.lake import COLUMNS, PROPERTIES, TABLES, ChaosTable, Place
from iceberg_maint_tests.qualification.chaos.observer import Leftovers, Observer
from iceberg_maint_tests.qualification.chaos.role import Role
from iceberg_maint_tests.qualification.surroundings.stores import Store
from iceberg_maint_tests.support.context import changed, spark_access

pytestmark = [
    pytest.mark.spark,
    pytest.mark.variant,
]  # `make qualify SUITE=chaos` runs these writers together

CONFIG = """\
ledger: sqlite:///{dir}/ledger.db
catalogs:
  pg: {{type: jdbc, uri: "sqlite:///{dir}/pg.db", warehouse: "file://{dir}/pg"}}
  rest: {{type: jdbc, uri: "sqlite:///{dir}/rest.db", warehouse: "file://{dir}/rest"}}
"""
WRITERS = ("appender", "upserter", "merger", "changer")
USED = (TABLES[0], TABLES[1])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.config.write_text(CONFIG.format(dir=tmp_path), "utf-8")
    return place


@pytest.fixture
def config(place: Place) -> Config:
    return load_config(place.config, {})


@pytest.fixture
def context(config: Config, spark: SparkSession) -> Context:
    # A session of its own per test: Spark keeps a catalog as its session first met it, under its name.
    session = spark.newSession()
    for name, c in config.catalogs.items():
        for key, value in catalog_conf(name, c.type, c.uri, c.warehouse, c.properties).items():
            session.conf.set(key, value)
    return changed(build(config), spark=spark_access(session=lambda: session))


@pytest.fixture
def roles(place: Place, context: Context) -> Iterator[dict[str, Role]]:
    roles = {name: Role(name, place, 7, 0.0, context) for name in WRITERS}
    yield roles
    for role in roles.values():
        role.journal.close()


def attempts_on(place: Place, table: ChaosTable) -> dict[str, Attempt]:
    found: dict[str, Attempt] = {}
    for name in WRITERS:
        reader = Reader(place.journal(name))
        reader.read()
        found.update({t: a for t, a in reader.attempts.items() if a.table == str(table)})
    return found


def test_writers_one_after_the_other_leave_what_their_journals_say(
    place: Place, config: Config, context: Context, roles: dict[str, Role]
) -> None:
    for table in USED:
        roles["appender"].writers.create(str(table), COLUMNS, version=table.version, properties=PROPERTIES)
    appends, upserts = appender.Appender(roles["appender"]), upserter.Upserter(roles["upserter"])
    merges, changes = merger.Merger(roles["merger"]), changer.Changer(roles["changer"])
    observer = Observer(config, context, Store("local", ""))
    for table in USED:
        for role in (appends, upserts, merges, changes, appends, changes, upserts, merges):
            role.step(table)
        observer.poll(table)
        attempts = attempts_on(place, table)
        assert {(a.kind, a.error) for a in attempts.values() if a.answer is not Answer.ACKED} == set()
        history = observer.histories[table]
        assert commit_faults(history, attempts.values()) == []
        loaded = observer.load(table)
        tags = {name: ref.snapshot_id for name, ref in loaded.metadata.refs.items()}
        columns = {f.field_id: f.name for f in loaded.schema().as_struct().fields}
        assert change_faults(attempts.values(), tags, columns) == []
        for snapshot in history.chain(history.head):
            assert observer.check(table, attempts, snapshot.snapshot_id).equal
        observer.age(table)
        assert observer.leftovers(table) == Leftovers(0, 0, 0)
    # A row that goes behind everybody's back is missed, and whoever took it is nobody.
    table = USED[1]
    context.engine.spark.session().sql(
        f"DELETE FROM {table} WHERE id = {appender.FIRST_APPENDED + 20}"
    ).collect()
    observer.poll(table)
    attempts, history = attempts_on(place, table), observer.histories[table]
    assert history.head is not None
    rows = observer.check(table, attempts, history.head)
    assert ([r[0] for r in rows.lost], rows.back) == ([appender.FIRST_APPENDED + 20], ())
    assert len(commit_faults(history, attempts.values())) == 1


class Few(random.Random):
    """Draws the same few keys each time, and nothing that holds for the whole table."""

    def sample(self, population: Any, k: int, **_: Any) -> list[Any]:
        return list(population)[:3]

    def random(self) -> float:
        return 0.9


def test_upsert_whose_spec_changes_before_its_commit_is_found_by_the_next_and_by_a_late_look(
    place: Place, config: Config, context: Context, roles: dict[str, Role], monkeypatch: pytest.MonkeyPatch
) -> None:
    role, table = roles["upserter"], USED[0]
    role.rng = Few()
    role.writers.create(str(table), COLUMNS, version=table.version, properties=PROPERTIES)
    upserts, observer = upserter.Upserter(role), Observer(config, context, Store("local", ""))
    write = role.writers.data

    def evolved(*args: Any) -> Any:
        monkeypatch.setattr(role.writers, "data", write)
        role.writers.load(str(table)).updateSpec().addField("p").commit()
        return write(*args)

    monkeypatch.setattr(role.writers, "data", evolved)
    upserts.step(table)
    upserts.step(table)
    loaded = role.writers.load(str(table))
    first, second = (int(s.snapshotId()) for s in role.writers.bridge.iterate(loaded.snapshots()))
    loaded.expireSnapshots().expireSnapshotId(first).cleanExpiredFiles(False).commit()
    observer.poll(table)
    attempts = attempts_on(place, table)
    assert [s.snapshot_id for s in observer.histories[table].chain(second)] == [first, second]
    assert observer.check(table, attempts, second).equal
