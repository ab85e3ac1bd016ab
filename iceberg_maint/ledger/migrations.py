"""Schema versions: a new database is created at the newest version, and an old one is migrated step by
step.

There is no downgrade: an older program refuses a newer ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import uuid4

from sqlalchemy import Connection, func, insert, inspect, select

from iceberg_maint.errors import ConfigurationError
from iceberg_maint.ledger.schema import installation, metadata, schema_version

Step = Callable[[Connection], None]


STEPS: Mapping[int, Step] = {}
"""Version → the step that migrates the previous version to it. Versions are consecutive from 2."""

_NEWER_FIX = (
    "install the newer iceberg-maint that wrote it. If a build before the first release wrote it, delete the ledger or keep "
    "it aside: the next command makes a new one, and the tables lose nothing."
)


def migrate(conn: Connection, steps: Mapping[int, Step] = STEPS) -> None:
    """Migrates the schema to the newest version within the caller's transaction, which must exclude other
    migrating processes. Raises ConfigurationError ICM-128 for a newer schema."""
    newest = 1 + len(steps)
    current = _version(conn)
    if current > newest:
        raise ConfigurationError(
            "ICM-128",
            f"the ledger's schema has version {current}. This program supports versions up to {newest}.",
            _NEWER_FIX,
        )
    if current == 0:
        metadata.create_all(conn)
        conn.execute(insert(installation).values(id=uuid4().hex))
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
        else _NEWER_FIX,
    )


def _version(conn: Connection) -> int:
    if not inspect(conn).has_table(schema_version.name):
        return 0
    return conn.scalar(select(func.coalesce(func.max(schema_version.c.version), 0))) or 0


def _stamp(conn: Connection, version: int) -> None:
    conn.execute(insert(schema_version).values(version=version))
