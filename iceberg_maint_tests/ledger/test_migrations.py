from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Connection, create_engine, inspect, text

from iceberg_maint.errors import ConfigurationError, IcebergMaintError
from iceberg_maint.ledger.fake import memory_ledger
from iceberg_maint.ledger.ledger import SqlLedger
from iceberg_maint.ledger.migrations import STEPS, migrate
from iceberg_maint.ledger.schema import metadata
from iceberg_maint.ports.stored import BatchStatus
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.forked import CONTEXT
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    TABLE,
    UUID,
    make_record,
    measured,
    outcome_of,
    plan_of,
)

NEWEST = 1 + len(STEPS)


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
    ledger.now_ms()
    assert versions(place) == [NEWEST]
    engine = create_engine(place.url)
    assert set(inspect(engine).get_table_names()) == set(metadata.tables)
    engine.dispose()


def test_ledger_with_data_steps_forward_once_and_keeps_it(ledger, place: Place):
    ledger.acquire_lease(UUID, NAME, "run-1", 60, 0)
    ledger.put_health(measured("day=1"))
    ledger.append_record(make_record("r1"))
    run_steps(place, NEXT)
    run_steps(place, NEXT)
    assert versions(place) == [NEWEST, NEWEST + 1, NEWEST + 2]
    assert place.sql("SELECT owner, note FROM icm_lease") == [("run-1", "run-1")]
    assert ledger.health(TABLE) == measured("day=1")
    assert ledger.records(None, 10) == (make_record("r1"),)


def shape(place: Place) -> dict[str, object]:
    engine = create_engine(place.url)
    seen = inspect(engine)
    tables = {
        t: (
            [(c["name"], str(c["type"]), c["nullable"]) for c in seen.get_columns(t)],
            seen.get_pk_constraint(t)["constrained_columns"],
        )
        for t in sorted(seen.get_table_names())
    }
    engine.dispose()
    return tables


def test_ledger_of_the_first_version_becomes_the_newest_and_reports_no_old_run_again(ledger, place: Place):
    """A ledger of version 1: the newest one less what came since."""
    lease = ledger.acquire_lease(UUID, NAME, "run-1", 60, 0)
    ledger.save_plan(lease, plan_of("day=1"), "run-1")
    attempt = ledger.start_attempt(lease, plan_of("day=1").batches[0].batch_id, "run-1", {})
    outcome = outcome_of(plan_of("day=1").batches[0])
    ledger.finish_attempt(lease, attempt.attempt_id, BatchStatus.FAILED, outcome, {})
    earlier = replace(make_record("r1"), run_id="run-0")
    ledger.append_record(earlier)
    newest = shape(place)
    ledger.close()
    place.sql("DROP TABLE icm_recorded")
    place.sql("DROP TABLE icm_reader")
    place.sql("DROP TABLE icm_run")
    place.sql("DROP TABLE icm_clock")
    place.sql("DROP TABLE icm_installation")
    place.sql("DROP TABLE icm_alert")
    place.sql("DROP TABLE icm_claim")
    place.sql("DROP TABLE icm_health_day")
    place.sql("DROP TABLE icm_fleet_wait")
    place.sql("DROP INDEX icm_outcome_recorded")
    place.sql("DROP INDEX icm_attempt_started")
    place.sql("DROP INDEX icm_health_form")
    place.sql("DROP INDEX icm_record_run")
    place.sql("ALTER TABLE icm_record DROP COLUMN run_id")
    place.sql("ALTER TABLE icm_intent DROP COLUMN batch_digest")
    place.sql("ALTER TABLE icm_pause DROP COLUMN paused_by")
    place.sql("ALTER TABLE icm_partition_history DROP COLUMN environment_failures")
    place.sql("UPDATE icm_schema_version SET version = 1")
    stepped = place.open()
    place.expire(lease)
    after = stepped.acquire_lease(UUID, NAME, "run-2", 60, 0)
    assert stepped.unrecorded_runs(after) == ()
    assert shape(place) == newest
    assert stepped.records_of_run("run-") == (earlier,)
    assert stepped.records_of_run("run-1") == ()
    assert versions(place) == list(range(1, NEWEST + 1))
    stepped.close()


def test_failing_step_leaves_the_version_before_it(ledger, place: Place):
    ledger.now_ms()

    def broken(conn: Connection) -> None:
        add_note(conn)
        conn.execute(text("SELECT nothing FROM nowhere"))

    with pytest.raises(Exception, match="nowhere"):
        run_steps(place, {**STEPS, NEWEST + 1: broken})
    assert versions(place) == [NEWEST]
    ledger.acquire_lease(UUID, NAME, "run-1", 60, 0)


def test_ledger_of_a_newer_version_is_refused_naming_both(ledger, place: Place):
    ledger.now_ms()
    place.sql("INSERT INTO icm_schema_version VALUES (99, 0)")
    newer = place.open()
    with pytest.raises(ConfigurationError) as refused:
        newer.now_ms()
    assert str(refused.value) == (
        f"ICM-128 the ledger's schema has version 99. This program supports versions up to {NEWEST}. "
        "Fix: install the newer iceberg-maint that wrote it, or name another ledger."
    )
    assert refused.value.exit_code == 2


def _first_use(url: str, start, done) -> None:
    memory_ledger().now_ms()  # What is slow the first time is done before the start.
    ledger = SqlLedger(url)
    start.wait()
    try:
        done.put(ledger.acquire_lease(UUID, NAME, "run-1", 60, 0).fence)
    except IcebergMaintError as why:
        done.put(str(why))
    ledger.close()


def test_processes_that_start_at_once_make_one_ledger(place: Place):
    start, done = CONTEXT.Barrier(6), CONTEXT.Queue()
    processes = [CONTEXT.Process(target=_first_use, args=(place.url, start, done)) for _ in range(6)]
    for process in processes:
        process.start()
    fences = sorted((done.get(timeout=60) for _ in processes), key=str)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert fences == [1, 2, 3, 4, 5, 6]
    assert versions(place) == [NEWEST]


@pytest.mark.parametrize(
    ("steps", "version", "fix"),
    [
        ({}, 1, "run 'iceberg-maint doctor' once"),
        (NEXT, NEWEST + 2, "install the newer iceberg-maint"),
    ],
)
def test_ledger_of_another_version_is_not_read_without_migrating_it(
    ledger, place: Place, steps, version, fix
):
    ledger.now_ms()
    if version < NEWEST:
        place.sql("DELETE FROM icm_schema_version")
        place.sql(f"INSERT INTO icm_schema_version VALUES ({version}, 0)")
    else:
        run_steps(place, steps)
    reading = SqlLedger(place.url, read_only=True)
    with pytest.raises(ConfigurationError, match=f"ICM-128 .*version {version}; .*{fix}"):
        reading.records(None, 1)
    reading.close()
    assert versions(place)[-1] == version


def test_database_without_a_ledger_is_read_as_none_and_left_empty(place: Place):
    place.open().now_ms()
    engine = create_engine(place.url)
    with engine.begin() as conn:
        metadata.drop_all(conn)
    reading = SqlLedger(place.url, read_only=True)
    with pytest.raises(ConfigurationError, match="ICM-128 the database holds no ledger"):
        reading.records(None, 1)
    reading.close()
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_ledger_opened_for_reading_refuses_every_write(ledger, place: Place):
    ledger.append_record(make_record("r1"))
    reading = SqlLedger(place.url, read_only=True)
    assert reading.records(None, 1) == (make_record("r1"),)
    with pytest.raises(ConfigurationError, match="ICM-128"):
        reading.append_record(make_record("r2"))
    reading.close()
    assert ledger.records(None, 10) == (make_record("r1"),)


def test_ledger_has_one_installation_id_that_stays(ledger, place: Place):
    first = ledger.installation()
    assert len(first) == 32
    assert SqlLedger(place.url).installation() == first
    assert memory_ledger().installation() != first
