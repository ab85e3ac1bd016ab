"""Schema versions: a new database is created at the newest version, and an old one is migrated step by
step.

There is no downgrade: an older program refuses a newer ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import uuid4

from sqlalchemy import Connection, func, insert, inspect, select, text

from iceberg_maint.errors import ConfigurationError
from iceberg_maint.ledger.schema import db_now_ms, installation, metadata, schema_version

Step = Callable[[Connection], None]


def _keep_what_is_recorded(conn: Connection) -> None:
    # Outcomes of the earlier version count as recorded, so that they are not reported again.
    conn.execute(
        text(
            "CREATE TABLE icm_recorded (table_uuid VARCHAR(64) NOT NULL, operation VARCHAR(64) NOT NULL, "
            "run_id TEXT NOT NULL, through BIGINT NOT NULL, PRIMARY KEY (table_uuid, operation, run_id))"
        )
    )
    conn.execute(
        text(
            "INSERT INTO icm_recorded SELECT a.table_uuid, a.operation, a.run_id, MAX(o.ordinal) "
            "FROM icm_attempt a JOIN icm_outcome o ON o.attempt_id = a.attempt_id "
            "GROUP BY a.table_uuid, a.operation, a.run_id"
        )
    )


def _register_readers(conn: Connection) -> None:
    conn.execute(
        text(
            "CREATE TABLE icm_reader (table_uuid VARCHAR(64) NOT NULL, name VARCHAR(255) NOT NULL, "
            "snapshot_id BIGINT NOT NULL, seen_ms BIGINT NOT NULL, PRIMARY KEY (table_uuid, name))"
        )
    )


def _keep_what_files_are_of(conn: Connection) -> None:
    conn.execute(text("ALTER TABLE icm_intent ADD COLUMN batch_digest VARCHAR(64)"))


def _hear_runs(conn: Connection) -> None:
    conn.execute(
        text(
            "CREATE TABLE icm_run (run_id VARCHAR(64) NOT NULL, beat_ms BIGINT NOT NULL, PRIMARY KEY (run_id))"
        )
    )


def _keep_clock_marks(conn: Connection) -> None:
    # Records of earlier versions give the newest time in the past.
    conn.execute(
        text(
            "CREATE TABLE icm_clock (boot VARCHAR(64) NOT NULL, booted_ms BIGINT, newest_ms BIGINT NOT NULL, "
            "PRIMARY KEY (boot))"
        )
    )
    conn.execute(text("INSERT INTO icm_clock SELECT '', NULL, COALESCE(MAX(appended_ms), 0) FROM icm_record"))


def _keep_who_paused(conn: Connection) -> None:
    conn.execute(text("ALTER TABLE icm_pause ADD COLUMN paused_by TEXT"))


def _identify(conn: Connection) -> None:
    conn.execute(text("CREATE TABLE icm_installation (id VARCHAR(64) NOT NULL, PRIMARY KEY (id))"))
    _give_id(conn)


def _keep_claims(conn: Connection) -> None:
    conn.execute(
        text(
            "CREATE TABLE icm_claim (table_key VARCHAR(64) NOT NULL, catalog TEXT NOT NULL, "
            "table_name TEXT NOT NULL, pointer TEXT NOT NULL, form VARCHAR(16) NOT NULL, body TEXT NOT NULL, "
            "current_ms BIGINT NOT NULL, PRIMARY KEY (table_key))"
        )
    )


def _give_id(conn: Connection) -> None:
    conn.execute(insert(installation).values(id=uuid4().hex))


def _keep_incidents(conn: Connection) -> None:
    conn.execute(
        text(
            "CREATE TABLE icm_alert (incident_id VARCHAR(255) NOT NULL, body TEXT NOT NULL, "
            "PRIMARY KEY (incident_id))"
        )
    )


def _keep_health_days(conn: Connection) -> None:
    conn.execute(
        text(
            "CREATE TABLE icm_health_day (table_uuid VARCHAR(64) NOT NULL, day INTEGER NOT NULL, "
            "body TEXT NOT NULL, PRIMARY KEY (table_uuid, day))"
        )
    )


def _keep_fleet_waits(conn: Connection) -> None:
    conn.execute(
        text(
            "CREATE TABLE icm_fleet_wait (table_uuid VARCHAR(64) NOT NULL, partition TEXT NOT NULL, "
            "since_ms BIGINT NOT NULL, until_ms BIGINT NOT NULL, decided_ms BIGINT NOT NULL, "
            "PRIMARY KEY (table_uuid, partition))"
        )
    )
    conn.execute(text("CREATE INDEX icm_outcome_recorded ON icm_outcome (recorded_ms)"))
    conn.execute(text("CREATE INDEX icm_attempt_started ON icm_attempt (started_ms)"))


def _index_what_grows(conn: Connection) -> None:
    is_postgres = conn.dialect.name == "postgresql"
    run_id = "CAST(body AS json) ->> 'run_id'" if is_postgres else "json_extract(body, '$.run_id')"
    by_bytes = ' COLLATE "C"' if is_postgres else ""
    for statement in (
        f"ALTER TABLE icm_record ADD COLUMN run_id TEXT{by_bytes}",
        f"UPDATE icm_record SET run_id = {run_id}",
        "CREATE INDEX icm_record_run ON icm_record (run_id)",
        "CREATE INDEX icm_health_form ON icm_health (form)",
        "DROP INDEX icm_outcome_status",
        "CREATE INDEX icm_outcome_status ON icm_outcome (table_uuid, operation, status, recorded_ms)",
        "DROP INDEX icm_attempt_table",
        "CREATE INDEX icm_attempt_table ON icm_attempt (table_uuid, run_id)",
    ):
        conn.execute(text(statement))


def _leave_alone(conn: Connection) -> None:
    conn.execute(text("ALTER TABLE icm_fleet_wait ADD COLUMN left_alone BOOLEAN"))


def _count_environment_failures(conn: Connection) -> None:
    conn.execute(text("ALTER TABLE icm_partition_history ADD COLUMN environment_failures INTEGER"))


STEPS: Mapping[int, Step] = {
    2: _keep_what_is_recorded,
    3: _register_readers,
    4: _keep_what_files_are_of,
    5: _hear_runs,
    6: _keep_clock_marks,
    7: _keep_who_paused,
    8: _identify,
    9: _keep_incidents,
    10: _keep_claims,
    11: _keep_health_days,
    12: _keep_fleet_waits,
    13: _index_what_grows,
    14: _leave_alone,
    15: _count_environment_failures,
}
"""Version → the step that migrates the previous version to it. Versions are consecutive from 2."""


def migrate(conn: Connection, steps: Mapping[int, Step] = STEPS) -> None:
    """Migrates the schema to the newest version within the caller's transaction, which must exclude other
    migrating processes. Raises ConfigurationError ICM-128 for a newer schema."""
    newest = 1 + len(steps)
    current = _version(conn)
    if current > newest:
        raise ConfigurationError(
            "ICM-128",
            f"the ledger's schema has version {current}. This program supports versions up to {newest}.",
            "install the newer iceberg-maint that wrote it, or name another ledger.",
        )
    if current == 0:
        metadata.create_all(conn)
        _give_id(conn)
        _stamp(conn, newest)
        return
    for version in range(current + 1, newest + 1):
        steps[version](conn)
        _stamp(conn, version)


def check_version(conn: Connection) -> None:
    """Raises ConfigurationError ICM-128 for a database whose schema is not of the newest version."""
    newest, stored = 1 + len(STEPS), _version(conn)
    if stored == newest:
        return
    if stored == 0:
        raise ConfigurationError(
            "ICM-128",
            "the database holds no ledger.",
            "run 'iceberg-maint observe' once, or correct the ledger's URL.",
        )
    raise ConfigurationError(
        "ICM-128",
        f"the ledger's schema has version {stored}; this program reads version {newest} without changing it.",
        "run 'iceberg-maint doctor' once, which brings an older ledger to this version."
        if stored < newest
        else "install the newer iceberg-maint that wrote it.",
    )


def _version(conn: Connection) -> int:
    if not inspect(conn).has_table(schema_version.name):
        return 0
    return conn.scalar(select(func.coalesce(func.max(schema_version.c.version), 0))) or 0


def _stamp(conn: Connection, version: int) -> None:
    conn.execute(insert(schema_version).values(version=version, applied_ms=db_now_ms()))
