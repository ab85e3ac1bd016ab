"""PyIceberg's side of a REST catalog: tokens, requests that the server does not serve, ETags, and the calls."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from requests.adapters import BaseAdapter, HTTPAdapter

from iceberg_maint.catalog import rest_client
from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.reachable_files import MetadataWalk
from iceberg_maint.catalog.rest_client import PatientAdapter, PatientRestCatalog
from iceberg_maint.catalog.service_calls import CallBudget
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import ConfigurationError, UnreadableTableError
from iceberg_maint_tests.support.catalog.table_files import TableFiles
from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

EVENTS, OTHER = TableId.parse("lake.db.events"), TableId.parse("lake.db.other")
NOT_NOW = (503, "ServiceUnavailableException", dict[str, str]())


class RestLake:
    """A REST catalog with two tables."""

    def __init__(self, folder: Path, server: RestServer, url: str) -> None:
        self.folder, self.server, self.url = folder, server, url
        self.calls = CallBudget()

    def catalog(self, **properties: str) -> PyIcebergCatalog:
        connection = {"type": "rest", "uri": self.url, "oauth2-server-uri": f"{self.url}/v1/oauth/tokens"}
        return PyIcebergCatalog("lake", connection | properties, calls=self.calls)

    def asked(self, path: str) -> list[dict[str, str]]:
        """The headers of the requests for a path."""
        return [headers for target, headers in self.server.asked if target.partition("?")[0] == path]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestLake]:
    monkeypatch.setattr(rest_client, "WAITS_SECONDS", (0.0,) * 4)
    register(tmp_path, EVENTS)
    register(tmp_path, OTHER)
    server = RestServer(tmp_path / "catalog.db")
    with serving(server) as url:
        yield RestLake(tmp_path, server, url)


def register(folder: Path, table: TableId) -> None:
    files = TableFiles(
        folder / table.name, Schema(NestedField(1, "id", LongType(), required=False)), [PartitionSpec()]
    )
    files.register(folder / "catalog.db", f"db.{table.name}")


def test_service_that_never_answers_is_waited_for_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_client, "FIRST_TIMEOUT_SECONDS", (0.2, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        catalog = PyIcebergCatalog("lake", {"type": "rest", "uri": uri})
        with pytest.raises(
            ConfigurationError, match=r"ICM-104 catalog 'lake' .* cannot be reached: .*timed out"
        ):
            catalog.tables()


def test_token_of_the_configuration_is_sent_and_one_that_is_not_good_is_refused(lake: RestLake) -> None:
    lake.server.secret, lake.server.tokens = "hush", {"good"}
    assert lake.catalog(token="good").tables() == (EVENTS, OTHER)
    with pytest.raises(ConfigurationError) as refused:
        lake.catalog(token="too-old").tables()
    assert refused.value.code == "ICM-160"
    assert "refuses the credentials: NotAuthorizedException: who are you." in str(refused.value)
    assert "too-old" not in str(refused.value)


def test_token_that_expires_is_replaced_and_the_request_repeated(lake: RestLake) -> None:
    lake.server.secret = "hush"
    catalog = lake.catalog(credential="maintainer:hush")
    assert catalog.tables() == (EVENTS, OTHER)
    lake.server.tokens.clear()
    assert catalog.pin(EVENTS).table == EVENTS
    lake.server.tokens.clear()
    assert set(catalog.pointers([EVENTS, OTHER])) == {EVENTS, OTHER}


def test_wrong_secret_is_refused_without_being_shown(lake: RestLake) -> None:
    lake.server.secret = "hush"
    with pytest.raises(ConfigurationError) as refused:
        lake.catalog(credential="maintainer:not-the-secret").tables()
    assert refused.value.code == "ICM-160"
    assert "invalid_client: wrong secret" in str(refused.value)
    assert "not-the-secret" not in str(refused.value)


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_read_that_is_not_served_is_repeated(lake: RestLake, code: int) -> None:
    catalog = lake.catalog()
    catalog.tables()
    lake.server.faults = [(code, "ServiceFailureException", {})] * 4
    assert catalog.pin(EVENTS).table == EVENTS
    assert len(lake.asked("/v1/namespaces/db/tables/events")) == 5


def test_table_that_is_not_served_is_refused_with_its_code_and_the_next_one_is_read(lake: RestLake) -> None:
    catalog = lake.catalog()
    catalog.tables()
    lake.server.faults = [NOT_NOW] * 5
    with pytest.raises(UnreadableTableError) as refused:
        catalog.pin(EVENTS)
    assert str(refused.value).startswith("ICM-161 the catalog does not load lake.db.events now:")
    assert catalog.pin(OTHER).table == OTHER


def test_catalog_that_serves_nothing_is_refused_with_its_code(lake: RestLake) -> None:
    lake.server.faults = [NOT_NOW] * 5
    with pytest.raises(ConfigurationError) as refused:
        lake.catalog().tables()
    assert refused.value.code == "ICM-161"


def test_table_that_the_catalog_denies_is_refused_and_hides_no_other(lake: RestLake) -> None:
    catalog = lake.catalog()
    catalog.tables()
    lake.server.faults = [(403, "ForbiddenException", {})]
    with pytest.raises(UnreadableTableError) as refused:
        catalog.pin(EVENTS)
    assert str(refused.value).startswith("ICM-160 the catalog denies lake.db.events: ForbiddenException")
    lake.server.denied = frozenset({"events"})
    assert set(catalog.pointers([EVENTS, OTHER])) == {OTHER}


def test_pointer_of_a_table_with_the_same_etag_is_asked_for_without_its_metadata(lake: RestLake) -> None:
    lake.server.has_etags = True
    catalog, path = lake.catalog(), "/v1/namespaces/db/tables/events"
    first = catalog.pointers([EVENTS])
    assert catalog.pointers([EVENTS]) == first
    assert [h.get("if-none-match") for h in lake.asked(path)] == [None, f'"{first[EVENTS]}"']
    before = first[EVENTS]
    moved = Path(before.removeprefix("file://")).with_name("2.metadata.json")
    moved.write_bytes(Path(before.removeprefix("file://")).read_bytes())
    move_pointer(lake.folder, EVENTS, f"file://{moved}")
    assert catalog.pointers([EVENTS]) == {EVENTS: f"file://{moved}"}


def test_removal_of_files_sees_a_commit_that_the_etag_hides(lake: RestLake) -> None:
    lake.server.has_etags, lake.server.tag = True, '"1"'
    catalog = lake.catalog()
    before = catalog.pointers([EVENTS])[EVENTS]
    walk = MetadataWalk(catalog, EVENTS, catalog.pin(EVENTS).uuid)
    moved = Path(before.removeprefix("file://")).with_name("2.metadata.json")
    moved.write_bytes(Path(before.removeprefix("file://")).read_bytes())
    move_pointer(lake.folder, EVENTS, f"file://{moved}")
    assert catalog.pointers([EVENTS]) == {EVENTS: before}  # the server says that nothing has changed
    assert walk.metadata_location() == f"file://{moved}"
    assert f"file://{moved}" in list(walk.paths())


def test_catalog_that_does_not_serve_is_not_taken_for_a_dropped_table(lake: RestLake) -> None:
    catalog = lake.catalog()
    walk = MetadataWalk(catalog, EVENTS, catalog.pin(EVENTS).uuid)
    lake.server.faults = [NOT_NOW] * 5
    with pytest.raises(UnreadableTableError, match="ICM-161"):
        walk.metadata_location()


def test_table_that_the_catalog_lacks_has_no_pointer(lake: RestLake) -> None:
    assert lake.catalog().pointer(TableId.parse("lake.db.gone")) is None


def test_pointers_without_etags_are_loaded_each_time(lake: RestLake) -> None:
    catalog = lake.catalog()
    assert catalog.pointers([EVENTS]) == catalog.pointers([EVENTS])
    assert [h.get("if-none-match") for h in lake.asked("/v1/namespaces/db/tables/events")] == [None, None]


@pytest.mark.parametrize("namespace", ["name space", "räume", "it's", "a/b"])
def test_namespace_with_other_letters_is_listed_with_its_children(lake: RestLake, namespace: str) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    for n, name in enumerate((f"{namespace}.my table", f"{namespace}.inner.t")):
        TableFiles(lake.folder / f"n{n}", schema, [PartitionSpec()]).register(
            lake.folder / "catalog.db", name
        )
    catalog = lake.catalog()
    outer, inner = TableId("lake", (namespace,), "my table"), TableId("lake", (namespace, "inner"), "t")
    assert {outer, inner} <= set(catalog.tables())
    assert set(catalog.pointers([outer, inner])) == {outer, inner}
    assert catalog.pin(inner).table == inner


@pytest.mark.parametrize(("threads", "kept"), [(1, 10), (16, 16)])
def test_client_keeps_a_connection_for_each_thread_and_at_least_ten(
    lake: RestLake, threads: int, kept: int
) -> None:
    client = PatientRestCatalog("lake", lake.calls, {"uri": lake.url}, threads)
    adapter = client._session.get_adapter(lake.url)
    assert isinstance(adapter, PatientAdapter)
    assert isinstance(adapter._inner, HTTPAdapter)
    assert adapter._inner.poolmanager.connection_pool_kw["maxsize"] == kept


def test_every_request_is_counted(lake: RestLake) -> None:
    lake.server.secret = "hush"
    catalog = lake.catalog(credential="maintainer:hush")
    catalog.tables()
    catalog.pin(EVENTS)
    lake.server.faults = [NOT_NOW] * 2
    catalog.pointers([EVENTS, OTHER])
    assert lake.calls.calls == len(lake.server.asked)


def test_probe_of_commits_is_a_conflict_that_is_not_repeated(lake: RestLake) -> None:
    assert lake.catalog()._listing.probe_commit(EVENTS)
    assert sum(target.endswith("/tables/events") for target, _ in lake.server.asked) == 2


class Script(BaseAdapter):
    """Answers with these statuses and `Retry-After`s, or a broken connection for None."""

    def __init__(self, *answers: tuple[int, str] | None) -> None:
        super().__init__()
        self.answers = list(answers)

    def send(self, request: Any, **_settings: Any) -> requests.Response:  # type: ignore[override]
        answer = self.answers.pop(0)
        if answer is None:
            raise requests.ConnectionError("broken")
        response = requests.Response()
        response._content = b""
        response._content_consumed = True
        response.status_code, response.headers["Retry-After"] = answer
        return response

    def close(self) -> None:
        pass


def statuses(script: Script, method: str = "GET", has_answered: bool = True) -> tuple[Any, list[float]]:
    """The status of the last answer, or the error, and the waits."""
    waits: list[float] = []
    adapter = PatientAdapter(script, CallBudget(), [True] if has_answered else [], waits.append)
    request = requests.Request(method, "http://catalog/v1/config").prepare()
    try:
        return adapter.send(request).status_code, waits
    except requests.ConnectionError:
        return "broken", waits


def test_server_that_asks_for_a_longer_wait_gets_it() -> None:
    assert statuses(Script((429, "3"), (503, ""), (200, ""))) == (200, [3.0, 1.0])


def test_server_that_asks_for_too_long_a_wait_is_not_waited_for() -> None:
    assert statuses(Script((429, "31"))) == (429, [])


def test_server_that_never_serves_is_asked_five_times() -> None:
    assert statuses(Script(*[(503, "")] * 5)) == (503, [0.5, 1.0, 2.0, 4.0])


@pytest.mark.parametrize("code", [500, 502, 504])
def test_request_that_may_have_changed_something_is_not_repeated(code: int) -> None:
    assert statuses(Script((code, "")), "POST") == (code, [])


def test_connection_that_breaks_is_repeated_for_a_read_of_a_server_that_has_answered() -> None:
    assert statuses(Script(None, None, (200, ""))) == (200, [0.5, 1.0])
    assert statuses(Script(None), "POST") == ("broken", [])
    assert statuses(Script(None), has_answered=False) == ("broken", [])


def move_pointer(folder: Path, table: TableId, location: str) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(folder / "catalog.db")) as database, database:
        database.execute(
            "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", (location, table.name)
        )


def test_etag_is_used_for_an_hour(lake: RestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.server.has_etags = True
    catalog = lake.catalog()
    times = itertools.count(0.0, rest_client.TAG_SECONDS + 1)
    monkeypatch.setattr(rest_client, "time", SimpleNamespace(monotonic=lambda: next(times)))
    assert catalog.pointers([EVENTS]) == catalog.pointers([EVENTS])
    assert [h.get("if-none-match") for h in lake.asked("/v1/namespaces/db/tables/events")] == [None, None]
