from __future__ import annotations

import pytest
from sqlalchemy import Connection, create_engine, inspect, text

from iceberg_maint.errors import ConfigurationError, IcebergMaintError
from iceberg_maint.ledger import migrations
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ledger.migrations import STEPS, migrate
from iceberg_maint.ledger.schema import metadata
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.forked import CONTEXT
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    TABLE,
    UUID,
    make_record,
    measured,
)

pytestmark = pytest.mark.seconds

NEWEST = 1 + len(STEPS)
UNRELEASED = (
    "install the newer iceberg-maint that wrote it. If a build before the first release wrote it, delete the ledger or keep "
    "it aside: the next command makes a new one, and the tables lose nothing."
)


def add_note(conn: Connection) -> None:
    conn.execute(text("ALTER TABLE icm_lease ADD COLUMN note TEXT DEFAULT 'none'"))


def fill_note(conn: Connection) -> None:
    conn.execute(text("UPDATE icm_lease SET note = owner"))


NEXT = {**STEPS, NEWEST + 1: add_note, NEWEST + 2: fill_note}


def run_steps(place: Place, steps) -> None:
    engine = create_engine(place.url)
    try:
        with engine.begin() as conn:
            migrate(conn, steps)
    finally:
        engine.dispose()


def versions(place: Place) -> list[int]:
    return [v for (v,) in place.sql("SELECT version FROM icm_schema_version ORDER BY version")]


def test_new_ledger_is_made_at_the_newest_version(ledger, place: Place):
    ledger.registry.now_ms()
    assert versions(place) == [NEWEST]
    engine = create_engine(place.url)
    assert set(inspect(engine).get_table_names()) == set(metadata.tables)
    engine.dispose()


def test_ledger_with_data_steps_forward_once_and_keeps_it(ledger, place: Place):
    ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    ledger.health.put(measured("day=1"))
    ledger.records.append(make_record("r1"))
    run_steps(place, NEXT)
    run_steps(place, NEXT)
    assert versions(place) == [NEWEST, NEWEST + 1, NEWEST + 2]
    assert place.sql("SELECT owner, note FROM icm_lease") == [("run-1", "run-1")]
    assert ledger.health.get(TABLE) == measured("day=1")
    assert ledger.records.newest(None, 10) == (make_record("r1"),)


def test_failing_step_leaves_the_version_before_it(ledger, place: Place):
    ledger.registry.now_ms()

    def broken(conn: Connection) -> None:
        add_note(conn)
        conn.execute(text("SELECT nothing FROM nowhere"))

    with pytest.raises(Exception, match="nowhere"):
        run_steps(place, {**STEPS, NEWEST + 1: broken})
    assert versions(place) == [NEWEST]
    ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)


@pytest.mark.parametrize("version", [NEWEST + 1, 15, 99])
def test_ledger_of_a_newer_version_or_an_unreleased_build_is_refused_with_what_to_do(
    ledger, place: Place, version: int
):
    ledger.registry.now_ms()
    place.sql(f"INSERT INTO icm_schema_version VALUES ({version})")
    newer = place.open()
    with pytest.raises(ConfigurationError) as refused:
        newer.registry.now_ms()
    assert str(refused.value) == (
        f"ICM-128 the ledger's schema has version {version}. This program supports versions up to {NEWEST}. "
        f"Fix: {UNRELEASED}"
    )
    assert refused.value.exit_code == 2


def _first_use(url: str, start, done) -> None:
    memory_ledger().registry.now_ms()  # What is slow the first time is done before the start.
    ledger = sql_ledger(url)
    start.wait()
    try:
        done.put(ledger.leases.acquire(UUID, NAME, "run-1", 60, 0).fence)
    except IcebergMaintError as why:
        done.put(str(why))
    ledger.close()


def test_processes_that_start_at_once_make_one_ledger(place: Place):
    start, done = CONTEXT.Barrier(6), CONTEXT.Queue()
    processes = [CONTEXT.Process(target=_first_use, args=(place.url, start, done)) for _ in range(6)]
    for process in processes:
        process.start()
    fences = sorted((done.get(timeout=240) for _ in processes), key=str)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert fences == [1, 2, 3, 4, 5, 6]
    assert versions(place) == [NEWEST]


def test_ledger_of_a_newer_version_is_not_read(ledger, place: Place):
    ledger.registry.now_ms()
    run_steps(place, NEXT)
    reading = sql_ledger(place.url, read_only=True)
    with pytest.raises(ConfigurationError, match=f"ICM-128 .*version {NEWEST + 2}; .*{UNRELEASED}"):
        reading.records.newest(None, 1)
    reading.close()
    assert versions(place)[-1] == NEWEST + 2


def test_ledger_of_an_older_version_is_not_read_without_migrating_it(ledger, place: Place, monkeypatch):
    ledger.registry.now_ms()
    monkeypatch.setattr(migrations, "STEPS", NEXT)
    reading = sql_ledger(place.url, read_only=True)
    with pytest.raises(
        ConfigurationError, match=f"ICM-128 .*version {NEWEST}; .*run 'iceberg-maint doctor' once"
    ):
        reading.records.newest(None, 1)
    reading.close()
    assert versions(place) == [NEWEST]


def test_row_that_cannot_be_read_is_refused_with_what_to_do(ledger, place: Place):
    ledger.records.append(make_record("r1"))
    place.sql("UPDATE icm_record SET body = '{}'")
    with pytest.raises(
        ConfigurationError, match=r"^ICM-128 the ledger at .* has a row that cannot be read: Record has other"
    ):
        ledger.records.newest(None, 1)


def test_database_without_a_ledger_is_read_as_none_and_left_empty(place: Place):
    place.open().registry.now_ms()
    engine = create_engine(place.url)
    with engine.begin() as conn:
        metadata.drop_all(conn)
    reading = sql_ledger(place.url, read_only=True)
    with pytest.raises(ConfigurationError, match="ICM-128 the database holds no ledger"):
        reading.records.newest(None, 1)
    reading.close()
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_ledger_opened_for_reading_refuses_every_write(ledger, place: Place):
    ledger.records.append(make_record("r1"))
    reading = sql_ledger(place.url, read_only=True)
    assert reading.records.newest(None, 1) == (make_record("r1"),)
    with pytest.raises(ConfigurationError, match="ICM-128"):
        reading.records.append(make_record("r2"))
    reading.close()
    assert ledger.records.newest(None, 10) == (make_record("r1"),)


def test_ledger_has_one_installation_id_that_stays(ledger, place: Place):
    first = ledger.registry.installation()
    assert len(first) == 32
    assert sql_ledger(place.url).registry.installation() == first
    assert memory_ledger().registry.installation() != first
