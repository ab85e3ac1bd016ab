"""The ledger's tables. All times are milliseconds since the epoch, UTC, by the database's clock.

A change here needs a new step in `migrations`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

metadata = MetaData()

_ESCAPED = "\ufdd0"
"""Begins a text that is stored by its escapes. No text has it: it is not a character."""


class FreeText(TypeDecorator[str]):
    """A text from outside, exactly. PostgreSQL stores no NUL, and no database half of a surrogate pair, which a catalog's
    JSON and arguments of a command may have."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's
        """Escapes a text that a database does not take."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        if "\0" in value or _ESCAPED in value or any("\ud800" <= c <= "\udfff" for c in value):
            return _ESCAPED + value.encode("unicode_escape").decode()
        return value

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's
        """Reads what `process_bind_param` made."""
        if value is None or not value.startswith(_ESCAPED):
            return value
        return value[1:].encode().decode("unicode_escape")


# SQLite auto-increments only a column with the type name INTEGER.
_COUNTER = BigInteger().with_variant(Integer, "sqlite")


class db_now_ms(FunctionElement[int]):  # noqa: N801 - reads as the SQL function it is
    """The database's wall clock in ms since the epoch, not the start of the transaction."""

    type = BigInteger()
    inherit_cache = True


@compiles(db_now_ms, "sqlite")
def _sqlite_now(_element: db_now_ms, _compiler: SQLCompiler, **_: Any) -> str:
    # unixepoch('subsec') needs SQLite 3.42; a Julian day as a double is exact to 0.05 ms.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"


@compiles(db_now_ms, "postgresql")
def _postgres_now(_element: db_now_ms, _compiler: SQLCompiler, **_: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


NOW = select(db_now_ms())
"""The statement that reads this clock."""


def statement_now_ms() -> ColumnElement[int]:
    """The wall clock as a value that the database reads once per statement. PostgreSQL compares an index with such a value
    only: its clock may have another time for each row."""
    return NOW.scalar_subquery()


schema_version = Table(
    "icm_schema_version",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
)

# One row per table that ever had a lease. The last fence outlives the lease. `owner` is null if free.
lease = Table(
    "icm_lease",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("table_name", FreeText, nullable=False),
    Column("owner", FreeText),
    Column("fence", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)

# `ordinal` is plan order within the table; `body` is core.planning.plan.Batch as JSON.
batch = Table(
    "icm_batch",
    metadata,
    Column("batch_id", String(64), primary_key=True),
    Column("table_uuid", String(64), nullable=False),
    Column("operation", String(64), nullable=False),
    Column("plan_id", String(64), nullable=False),
    Column("ordinal", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("body", Text, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Index("icm_batch_open", "table_uuid", "operation", "status", "ordinal"),
)

# Attempts are append-only: attempt (STARTED), intent, tries, outcomes.
attempt = Table(
    "icm_attempt",
    metadata,
    Column("ordinal", _COUNTER, primary_key=True),
    Column("attempt_id", String(64), nullable=False, unique=True),
    Column("batch_id", String(64), ForeignKey(batch.c.batch_id), nullable=False),
    Column("table_uuid", String(64), nullable=False),
    Column("operation", String(64), nullable=False),
    Column("run_id", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("token", String(128), nullable=False, unique=True),
    Column("partitions", Text, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Index("icm_attempt_table", "table_uuid", "run_id"),
    Index("icm_attempt_batch", "batch_id"),
    Index("icm_attempt_started", "started_ms"),
)

# `batch_digest` is that of the batch when the files were written. A batch that is opened again under its
# id may need other files.
intent = Table(
    "icm_intent",
    metadata,
    Column("attempt_id", String(64), ForeignKey(attempt.c.attempt_id), primary_key=True),
    Column("files", Text, nullable=False),
    Column("proof", Text, nullable=False),
    Column("batch_digest", String(64), nullable=False),
    Column("recorded_ms", BigInteger, nullable=False),
)

attempt_try = Table(
    "icm_try",
    metadata,
    Column("attempt_id", String(64), ForeignKey(intent.c.attempt_id), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("base_snapshot_id", BigInteger, nullable=False),
    Column("metadata_location", FreeText, nullable=False),
    Column("recorded_ms", BigInteger, nullable=False),
)

# The report of an attempt, or its settlement. An attempt is open until it has an outcome other than
# UNKNOWN. `partitions` and `input_bytes` count against the hour's budget.
outcome = Table(
    "icm_outcome",
    metadata,
    Column("ordinal", _COUNTER, primary_key=True),
    Column("attempt_id", String(64), ForeignKey(attempt.c.attempt_id), nullable=False),
    Column("table_uuid", String(64), nullable=False),
    Column("operation", String(64), nullable=False),
    Column("status", String(16), nullable=False),
    Column("settled", Boolean, nullable=False),
    Column("partitions", Text, nullable=False),
    Column("input_bytes", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("recorded_ms", BigInteger, nullable=False),
    Index("icm_outcome_attempt", "attempt_id"),
    Index("icm_outcome_hour", "table_uuid", "operation", "recorded_ms"),
    Index("icm_outcome_status", "table_uuid", "operation", "status", "recorded_ms"),
    Index("icm_outcome_recorded", "recorded_ms"),
)

cursor = Table(
    "icm_cursor",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("operation", String(64), primary_key=True),
    Column("batch_id", String(64), nullable=False),
    Column("snapshot_id", BigInteger),
    Column("fence", BigInteger, nullable=False),
    Column("advanced_ms", BigInteger, nullable=False),
)

partition_history = Table(
    "icm_partition_history",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("operation", String(64), primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("ineffective", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("environment_failures", Integer, nullable=False),
    Column("not_before_ms", BigInteger),
    Column("quarantined", Boolean, nullable=False),
    Column("reason", FreeText, nullable=False),
)

# `table_uuid` identifies the table after a rename. It is null for the fleet and for unknown names.
pause = Table(
    "icm_pause",
    metadata,
    Column("table_name", FreeText, primary_key=True),
    Column("table_uuid", String(64)),
    Column("note", FreeText, nullable=False),
    Column("paused_by", FreeText, nullable=False),
    Column("paused_ms", BigInteger, nullable=False),
)

# The last health of each table. `form` names the format of `head` and `partitions`.
health = Table(
    "icm_health",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("table_name", FreeText, nullable=False),
    Column("sequence_number", BigInteger, nullable=False),
    Column("pointer", FreeText, nullable=False),
    Column("observed_ms", BigInteger, nullable=False),
    Column("form", String(16), nullable=False),
    Column("head", Text, nullable=False),
    Column("partitions", LargeBinary, nullable=False),
    UniqueConstraint("table_name", name="icm_health_name"),
    Index("icm_health_form", "form"),
)

# Partition keys that earlier health had and later health lacks. `misses` counts consecutive observations.
partition_missing = Table(
    "icm_partition_missing",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("misses", Integer, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
)

# The metrics of each table by day, days since epoch: the last measurement of the day.
health_day = Table(
    "icm_health_day",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

# Partitions that wait for the budget of the fleet. The row of table `*` has the time of the last
# cycle over the fleet.
fleet_wait = Table(
    "icm_fleet_wait",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("since_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("decided_ms", BigInteger, nullable=False),
)

# `run_id` is that of the body. Its order is that of its bytes, so that an index finds the beginning of an id.
record = Table(
    "icm_record",
    metadata,
    Column("ordinal", _COUNTER, primary_key=True),
    Column("record_id", String(64), nullable=False, unique=True),
    Column("table_uuid", String(64), nullable=False),
    Column("table_name", FreeText, nullable=False),
    Column("run_id", Text().with_variant(Text(collation="C"), "postgresql"), nullable=False),
    Column("body", Text, nullable=False),
    Column("appended_ms", BigInteger, nullable=False),
    Index("icm_record_table", "table_name", "ordinal"),
    Index("icm_record_uuid", "table_uuid", "ordinal"),
    Index("icm_record_run", "run_id"),
)

# For each run, the newest outcome (its ordinal) that a record contains. A run that died, or a commit
# settled after its run, leaves outcomes with higher ordinals.
recorded = Table(
    "icm_recorded",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("operation", String(64), primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("through", BigInteger, nullable=False),
)

# Registered readers of a table with the snapshot they have read up to. Expiry keeps the snapshots that
# they lack.
reader = Table(
    "icm_reader",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("snapshot_id", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
)

# How far the commits that claim to change no row are attested, with the verdicts that wait for a person.
attestation = Table(
    "icm_attestation",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("body", Text, nullable=False),
    Column("judged_ms", BigInteger, nullable=False),
)

# Clock readings that agreed, by boot of the machine that read them: the boot time by the machine's clock,
# which changes only if the clock is set, and the newest time of the database's clock.
clock = Table(
    "icm_clock",
    metadata,
    Column("boot", String(64), primary_key=True),
    Column("booted_ms", BigInteger),
    Column("newest_ms", BigInteger, nullable=False),
)

# One row: the id of this ledger. Snapshot summaries carry it.
installation = Table(
    "icm_installation",
    metadata,
    Column("id", String(64), primary_key=True),
)

# Incidents that are open, or whose end a receiver has not taken yet.
alert = Table(
    "icm_alert",
    metadata,
    Column("incident_id", String(255), primary_key=True),
    Column("body", Text, nullable=False),
)

# Active Dagster runs, each with the time of its last heartbeat.
run = Table(
    "icm_run",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("beat_ms", BigInteger, nullable=False),
)

# The locations that each table claims by the metadata file `pointer`, which was current at `current_ms`. `table_key`
# is a hash of the name. `form` names the way in which the locations are derived.
location_owner = Table(
    "icm_location_owner",
    metadata,
    Column("table_key", String(64), primary_key=True),
    Column("catalog", Text, nullable=False),
    Column("table_name", FreeText, nullable=False),
    Column("pointer", FreeText, nullable=False),
    Column("form", String(16), nullable=False),
    Column("body", Text, nullable=False),
    Column("current_ms", BigInteger, nullable=False),
)
