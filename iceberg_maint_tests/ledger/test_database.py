from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError

from iceberg_maint.errors import ConfigurationError, IcebergMaintError
from iceberg_maint.ledger import database as database_module
from iceberg_maint.ledger.database import Database
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.ledger.values import NAME, UUID, make_record


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_sqlite_nothing_is_made_before_the_first_call(tmp_path: Path):
    sql_ledger(f"sqlite:///{tmp_path / 'a' / 'ledger.db'}")
    assert not (tmp_path / "a").exists()


def test_sqlite_file_and_folder_are_made_for_the_owner_only(tmp_path: Path):
    path = tmp_path / "a" / "ledger.db"
    ledger = sql_ledger(f"sqlite:///{path}")
    before = os.umask(0)
    try:
        ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    finally:
        os.umask(before)
    assert mode(path.parent) == 0o700
    assert {mode(p) for p in path.parent.iterdir()} == {0o600}
    ledger.close()


def test_sqlite_existing_folder_keeps_its_mode(tmp_path: Path):
    (tmp_path / "a").mkdir(mode=0o755)
    ledger = sql_ledger(f"sqlite:///{tmp_path / 'a' / 'ledger.db'}")
    ledger.registry.now_ms()
    assert mode(tmp_path / "a") == 0o755
    ledger.close()


def test_sqlite_is_durable_and_shared(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path / 'ledger.db'}")
    with database.write("key") as conn:
        pragmas = {
            name: conn.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        }
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "busy_timeout": 30_000,
        "foreign_keys": 1,
    }
    database.close()


@pytest.mark.postgres
def test_postgres_commits_are_durable_where_the_server_says_otherwise(postgres_url: str):
    database = Database(postgres_url)
    with database.read() as conn:
        assert conn.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert conn.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"
        assert conn.exec_driver_sql("SHOW transaction_read_only").scalar() == "on"
    with database.write("key") as conn:
        assert conn.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
        assert conn.exec_driver_sql("SHOW transaction_read_only").scalar() == "off"
    database.close()


@pytest.mark.postgres
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_postgres_plain_url_uses_psycopg2(postgres_url: str, scheme: str):
    ledger = sql_ledger(postgres_url.replace("postgresql+psycopg2", scheme))
    assert ledger.registry.now_ms() > 0
    ledger.close()


@pytest.mark.postgres
def test_postgres_that_goes_away_without_a_word_is_given_up_in_seconds_unless_the_url_says_otherwise(
    postgres_url: str,
):
    def asked(url: str) -> dict[str, str]:
        database = Database(url)
        with database.read() as conn:
            settings = conn.connection.dbapi_connection.get_dsn_parameters()
        database.close()
        return {k: v for k, v in settings.items() if "keepalives" in k or k == "tcp_user_timeout"}

    ours = {
        "keepalives": "1",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "20000",
    }
    assert asked(postgres_url) == ours
    assert asked(f"{postgres_url}?tcp_user_timeout=900") == {**ours, "tcp_user_timeout": "900"}


def test_sqlite_that_may_only_be_read_is_wrong_configuration_from_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "ledger.db"
    writing = sql_ledger(f"sqlite:///{path}")
    writing.registry.pause(NAME, "why")
    monkeypatch.chdir(tmp_path)  # a URI is no path, and a folder by its name is made here
    reading = sql_ledger(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert reading.registry.pause_note(UUID, NAME) == "why"
    with pytest.raises(ConfigurationError) as refusal:
        reading.registry.pause(NAME, "")
    assert refusal.value.code == "ICM-128"
    assert refusal.value.message.endswith("cannot be used: attempt to write a readonly database.")
    reading.close()
    writing.close()


def write_after(database: Database, forbidding: str) -> None:
    """Writes in a transaction that a statement has made one of reads."""
    with database.write("key") as conn:
        conn.exec_driver_sql(forbidding)
        conn.exec_driver_sql("DELETE FROM icm_pause")


def test_sqlite_that_may_only_be_read_after_a_write_is_lost_and_not_wrong_configuration(
    tmp_path: Path,
) -> None:
    database = Database(f"sqlite:///{tmp_path / 'ledger.db'}")
    with database.write("key"):
        pass

    with pytest.raises(IcebergMaintError, match=r"ICM-128 .*: attempt to write a readonly database") as lost:
        write_after(database, "PRAGMA query_only = ON")
    assert type(lost.value) is IcebergMaintError
    database.close()


def test_sqlite_that_may_not_become_a_ledger_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "ledger.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    monkeypatch.chdir(tmp_path)
    # Other threads of the tests' process may sleep.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("waited for nothing"))
    monkeypatch.setattr(database_module, "time", clock)
    with pytest.raises(ConfigurationError, match="ICM-128"):
        sql_ledger(f"sqlite:///file:{path}?mode=ro&uri=true").registry.now_ms()


@pytest.mark.postgres
def test_postgres_that_may_only_be_read_is_wrong_configuration_until_it_has_been_written(postgres_url: str):
    made = sql_ledger(postgres_url)
    made.registry.now_ms()
    made.close()
    reading = sql_ledger(f"{postgres_url}?options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(ConfigurationError, match=r"ICM-128 .*read-only transaction"):
        reading.registry.pause(NAME, "")
    reading.close()
    database = Database(postgres_url)
    with database.write("key"):
        pass

    with pytest.raises(IcebergMaintError, match=r"ICM-128 .*read-only transaction") as lost:
        write_after(database, "SET TRANSACTION READ ONLY")
    assert not isinstance(lost.value, ConfigurationError)
    database.close()


@pytest.mark.postgres
def test_postgres_that_becomes_read_only_is_not_written_after_a_read_either(postgres_url: str):
    """What a host sets on a server whose disk is nearly full."""
    url = f"{postgres_url}?options=-c%20default_transaction_read_only%3Don"
    made = sql_ledger(postgres_url)
    made.registry.pause(NAME, "why")
    made.close()
    reading = sql_ledger(url)
    for _ in range(2):
        assert reading.registry.pause_note(UUID, NAME) == "why"
        with pytest.raises(ConfigurationError, match=r"ICM-128 .*read-only transaction"):
            reading.registry.pause(NAME, "other")
    reading.close()


def test_failed_transaction_is_rolled_back(place: Place, ledger: Ledger):
    ledger.registry.now_ms()
    database = Database(place.url)

    def fail_after_a_row() -> None:
        with database.write("key") as conn:
            conn.exec_driver_sql("INSERT INTO icm_pause VALUES ('a', NULL, '', '', 0)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_row()
    database.close()
    assert place.sql("SELECT * FROM icm_pause") == []


def test_writers_of_one_key_wait_for_each_other_and_readers_do_not(place: Place, ledger: Ledger):
    ledger.registry.now_ms()
    database = Database(place.url)
    order: list[str] = []
    begun = threading.Event()

    def second() -> None:
        begun.set()
        with database.write("key"):
            order.append("second")

    thread = threading.Thread(target=second)
    with database.write("key"):
        thread.start()
        begun.wait()
        with database.read() as conn:
            conn.exec_driver_sql("SELECT COUNT(*) FROM icm_lease")
        order.append("first")
    thread.join()
    database.close()
    assert order == ["first", "second"]


@pytest.mark.parametrize("url", ["mysql://u:secret@h/d", "duckdb:///x", "postgresql+asyncpg://h/d"])
def test_url_of_another_database_is_refused(url: str):
    with pytest.raises(ConfigurationError, match=f"ICM-100 .*'{make_url(url).drivername.replace('+', '.')}'"):
        sql_ledger(url)


@pytest.mark.parametrize("url", ["", "no url", "/path/ledger.db"])
def test_url_that_is_none_is_refused(url: str):
    with pytest.raises(ConfigurationError, match="ICM-100 the ledger's URL cannot be read"):
        sql_ledger(url)


def test_postgres_without_a_server_is_refused_in_one_line_without_its_password():
    ledger = sql_ledger("postgresql://someone:s3cret@127.0.0.1:1/ledger")
    with pytest.raises(ConfigurationError) as refused:
        ledger.registry.now_ms()
    line = str(refused.value)
    assert line.startswith("ICM-128 the ledger at postgresql+psycopg2://someone:***@127.0.0.1:1/ledger")
    assert "Connection refused" in line
    assert "?." not in line
    assert "s3cret" not in line
    assert "\n" not in line


@pytest.mark.parametrize("kind", ["not a database", "a folder", "below a file"])
def test_sqlite_that_cannot_be_used_is_refused(tmp_path: Path, kind: str):
    path = tmp_path / "ledger.db"
    if kind == "a folder":
        path.mkdir()
    else:
        path.write_text("certainly no database " * 100)
    if kind == "below a file":
        path /= "ledger.db"
    with pytest.raises(ConfigurationError, match=r"ICM-128 the ledger at sqlite:///.* cannot be used: "):
        sql_ledger(f"sqlite:///{path}").registry.now_ms()


def test_database_lost_later_is_an_error_with_its_code(place: Place, ledger: Ledger):
    ledger.registry.now_ms()
    broken = Database(place.url)
    with broken.read():
        pass
    fatal = "SELECT pg_terminate_backend(pg_backend_pid())"

    def lose() -> None:
        with broken.read() as conn:
            conn.exec_driver_sql(fatal if conn.dialect.name == "postgresql" else "SELECT * FROM gone")

    with pytest.raises(IcebergMaintError, match=r"ICM-128 .* cannot be used") as lost:
        lose()
    assert not isinstance(lost.value, ConfigurationError)
    broken.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_memory_url_is_one_database_for_all_threads(url: str):
    ledger = sql_ledger(url)
    ledger.registry.pause(NAME, "here")
    seen = []
    thread = threading.Thread(target=lambda: seen.append(ledger.health.history(UUID, NAME, "op").paused))
    thread.start()
    thread.join()
    assert seen == [True]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_sqlite_file_that_is_removed_while_it_is_used_is_an_error_with_its_code(
    tmp_path: Path, is_replaced: bool
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    ledger = sql_ledger(url)
    assert ledger.leases.acquire("u", "lake.db.t", "run-1", 60, 0) is not None
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    if is_replaced:
        assert sql_ledger(url).leases.acquire("u", "lake.db.t", "run-2", 60, 0) is not None
    with pytest.raises(IcebergMaintError) as lost:
        ledger.leases.acquire("u", "lake.db.t", "run-1", 60, 0)
    assert str(lost.value) == (
        f"ICM-128 the ledger at {url} was removed or replaced while it was used. Fix: restore a backup of the ledger if there "
        "is one, then run again. Without one the next command makes a new one, and the tables lose nothing."
    )
    # The next transaction opens the file that is there.
    assert (ledger.leases.acquire("u", "lake.db.t", "run-3", 60, 0) is None) is is_replaced


def test_memory_ledgers_are_apart():
    one, other = memory_ledger(), memory_ledger()
    one.registry.pause(NAME, "here")
    assert not other.health.history(UUID, NAME, "op").paused


@pytest.mark.parametrize("free_bytes", [1 << 30, 0])
def test_full_disk_of_the_ledger_is_named_once_with_its_fix_and_is_no_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free_bytes))
    file = tmp_path / "ledger.db"
    ledger = sql_ledger(f"sqlite:///{file}")
    ledger.registry.now_ms()
    with ledger.work._database.write("t") as conn:
        pages = conn.execute(text("PRAGMA page_count")).scalar_one()
        conn.execute(text(f"PRAGMA max_page_count = {pages}"))

    def fill() -> None:
        for number in range(1000):
            ledger.records.append(make_record(f"r{number}"))

    with pytest.raises(IcebergMaintError) as full:
        fill()
    assert (full.value.exit_code, str(full.value)) == (
        1,
        (
            f"ICM-128 the ledger at sqlite:///{file} cannot be used: database or disk is full. "
            "Fix: free space there, or raise the quota."
        ),
    )
    ledger.close()


@pytest.mark.parametrize(
    ("free_bytes", "fix"),
    [
        (4096, "free space there, or raise the quota."),
        (1 << 30, "set the ledger's URL to a file that this user can read and write"),
    ],
)
def test_error_of_the_disk_of_the_ledger_is_a_full_disk_only_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, fix: str
) -> None:
    ledger = sql_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.registry.now_ms()
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free_bytes))
    with pytest.raises(IcebergMaintError, match=f"disk I/O error.*Fix: {fix}"), ledger.work._database.read():
        raise OperationalError("select 1", None, sqlite3.OperationalError("disk I/O error"))
    ledger.close()


def test_ledger_that_a_process_without_descriptors_cannot_open_says_so(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    ledger = sql_ledger(f"sqlite:///{file}")
    ledger.registry.now_ms()
    ledger.close()
    database = Database(f"sqlite:///{file}", read_only=True)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(descriptor.name) for descriptor in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        with pytest.raises(IcebergMaintError) as failed, database.read():
            pass
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (failed.value.exit_code, str(failed.value)) == (
        1,
        (
            f"ICM-128 the ledger at sqlite:///{file} cannot be used: unable to open database file, Too many open files. "
            "Fix: raise the limit of open files of this process (ulimit -n)."
        ),
    )


def test_ledger_that_is_as_large_as_a_file_may_be_says_so(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    ledger = sql_ledger(f"sqlite:///{file}")
    ledger.registry.now_ms()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, limits[1]))

    def fill() -> None:
        for number in range(1000):
            ledger.records.append(make_record(f"r{number}"))

    try:
        with pytest.raises(IcebergMaintError) as failed:
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (failed.value.exit_code, str(failed.value)) == (
        1,
        (
            f"ICM-128 the ledger at sqlite:///{file} cannot be used: disk I/O error, File too large. Fix: raise the limit "
            "of the size of a file (ulimit -f), or use a file system that takes larger files."
        ),
    )
    ledger.close()
