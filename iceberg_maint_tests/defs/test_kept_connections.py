"""Connections to Dagster's storage that are kept for many accesses, and events that are stored together or not at all."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy.engine import Engine

from iceberg_maint.defs.runs.kept_connections import kept_connections, one_transaction

pytestmark = pytest.mark.slow

KEY = dg.AssetKey(["lake", "db", "t"])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance on a real storage of this kind."""
    overrides: dict[str, Any] = {}
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text("DROP DATABASE IF EXISTS kept_connections"))
            connection.execute(sa.text("CREATE DATABASE kept_connections"))
        engine.dispose()
        url = url.rpartition("/")[0] + "/kept_connections"
        overrides = {"storage": {"postgres": {"postgres_url": url}}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:
        yield instance


@contextmanager
def opened() -> Iterator[Counter[str]]:
    """The connections that are opened, by database."""
    count: Counter[str] = Counter()

    def note(dialect: Any, _record: Any, _arguments: Any, parameters: Any) -> None:
        count[str(parameters.get("database") or _arguments)] += 1

    sa.event.listen(Engine, "do_connect", note)
    try:
        yield count
    finally:
        sa.event.remove(Engine, "do_connect", note)


def report(instance: dg.DagsterInstance, number: int) -> None:
    instance.report_runless_asset_event(dg.AssetObservation(KEY, metadata={"number": number}))
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(asset_key=KEY, check_name="c", passed=bool(number % 2), metadata={})
    )


def numbers(instance: dg.DagsterInstance) -> list[int]:
    records = instance.fetch_observations(KEY, limit=20, ascending=True).records
    return [r.asset_observation.metadata["number"].value for r in records if r.asset_observation]  # type: ignore[misc]


def evaluations(instance: dg.DagsterInstance) -> int:
    key = dg.AssetCheckKey(KEY, "c")
    return len(instance.event_log_storage.get_asset_check_execution_history(key, limit=20))


def test_many_accesses_open_a_database_once_and_all_events_are_stored(stored: dg.DagsterInstance) -> None:
    report(stored, 0)
    with opened() as count, kept_connections(stored):
        for number in range(1, 6):
            report(stored, number)
            stored.daemon_cursor_storage.set_cursor_values({"a": str(number)})
            assert numbers(stored) == list(range(number + 1))
    assert max(count.values()) <= 3  # with has_table of SQLite, which opens its own
    with opened() as count:
        report(stored, 6)
    assert sum(count.values()) > 3
    assert (numbers(stored), evaluations(stored)) == (list(range(7)), 7)
    assert stored.daemon_cursor_storage.get_cursor_values({"a"}) == {"a": "5"}


def is_sqlite(instance: dg.DagsterInstance) -> bool:
    return isinstance(instance.event_log_storage, SqliteEventLogStorage)


def test_events_of_a_block_are_seen_by_others_at_its_end_in_sqlite_and_at_once_in_postgresql(
    stored: dg.DagsterInstance,
) -> None:
    seen: list[list[int]] = []

    def look() -> None:
        thread = threading.Thread(target=lambda: seen.append(numbers(stored)))
        thread.start()
        thread.join()

    with kept_connections(stored):
        with one_transaction(stored):
            with one_transaction(stored):
                report(stored, 1)
            report(stored, 2)
            assert numbers(stored) == [1, 2]
            look()
        look()
    assert seen == [[] if is_sqlite(stored) else [1, 2], [1, 2]]


def test_block_that_raises_stores_none_of_its_events_in_sqlite_and_later_ones_are_stored(
    stored: dg.DagsterInstance,
) -> None:
    def fail(write: Callable[[], None]) -> None:
        with one_transaction(stored):
            write()
            raise ValueError("no")

    with kept_connections(stored):
        report(stored, 1)
        with pytest.raises(ValueError, match="no"):
            fail(lambda: report(stored, 2))
        report(stored, 3)
        with one_transaction(stored):
            report(stored, 4)
    expected = [1, 3, 4] if is_sqlite(stored) else [1, 2, 3, 4]
    assert (numbers(stored), evaluations(stored)) == (expected, len(expected))


def test_connections_are_closed_and_methods_restored_at_the_end(stored: dg.DagsterInstance) -> None:
    with kept_connections(stored), kept_connections(stored):
        report(stored, 1)
    assert "_connect" not in vars(stored.event_log_storage)
    assert not {"connect", "has_table"} & set(vars(stored.run_storage))
    assert numbers(stored) == [1]


def test_instance_in_memory_is_left_as_it_is() -> None:
    with dg.DagsterInstance.ephemeral() as instance, kept_connections(instance), one_transaction(instance):
        report(instance, 1)
        assert numbers(instance) == [1]


def test_blocks_on_sqlite_share_engines_and_what_the_storage_is_known_to_have(tmp_path: Path) -> None:
    engines = []
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        storage = instance.event_log_storage
        assert isinstance(storage, SqliteEventLogStorage)
        for number in range(2):
            with opened() as count, kept_connections(instance):
                report(instance, number)
                with storage.index_connection() as connection:
                    engines.append(connection.engine)
            assert connection.closed
    assert engines[0] is engines[1]
    # In the first block the storage is asked for its tables, on connections of its own.
    assert max(count.values()) == 1
