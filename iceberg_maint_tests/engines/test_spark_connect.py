"""Calls of Iceberg's procedures for Spark Connect. A real server runs them in `make qualify SUITE=platform`."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from iceberg_maint.core.decisions.statement_hazards import CannotError
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot
from iceberg_maint.engines.spark_connect import SparkConnect, statement_engine
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.engine import EnvironmentFailedError
from iceberg_maint.ports.statement_engine import StatementFailedError
from iceberg_maint_tests.support.statements import manifests, rewrite, settings, state_of, texts

pytestmark = pytest.mark.slow
OPTIONS = (
    "map('target-file-size-bytes', '1000', 'min-input-files', '2', 'delete-file-threshold', '1', "
    "'use-starting-sequence-number', 'false', 'remove-dangling-deletes', 'false', 'partial-progress.enabled', 'false')"
)


def connect(uri: str = "sc://h", **parts: object) -> SparkConnect:
    return statement_engine(settings(uri, **parts))


def test_rewrite_of_partitions_is_one_call_for_them() -> None:
    state = state_of("identity", "string")
    batch = rewrite(state, ("p_part=a", "p_part=b"))
    assert texts(connect(catalogs={"lake": "ice"}).statements(batch, state)) == [
        (
            (
                "CALL `ice`.system.rewrite_data_files(table => 'db.t', strategy => 'binpack', "
                f"options => {OPTIONS}, where => \"`p` IN ('a', 'b')\")"
            ),
            {},
        )
    ]


def test_rewrite_of_an_unpartitioned_table_has_no_condition() -> None:
    state = state_of()
    (statement,) = connect().statements(rewrite(state), state)
    assert statement.text == (
        f"CALL `lake`.system.rewrite_data_files(table => 'db.t', strategy => 'binpack', options => {OPTIONS})"
    )


def test_rewrite_of_manifests_caches_nothing() -> None:
    state = state_of()
    assert texts(connect().statements(manifests(state), state)) == [
        ("CALL `lake`.system.rewrite_manifests(table => 'db.t', use_caching => false)", {})
    ]


@pytest.mark.parametrize("name", ["lake.db.t'", "my-lake.db.t"])
def test_name_that_a_call_would_have_to_quote_cannot_be_maintained(name: str) -> None:
    state = state_of(name=name)
    with pytest.raises(CannotError, match="is not made of ASCII letters"):
        connect().statements(rewrite(state), state)


def test_server_that_is_down_is_of_the_environment() -> None:
    with pytest.raises(IcebergMaintError, match=r"^ICM-133 Spark at sc://127\.0\.0\.1:1 does not answer: "):
        connect("sc://127.0.0.1:1").version("lake")


class Status:
    name = ""


class Answer(PySparkException):
    """An error as the client raises it, with the status of the call."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self._status = Status()
        self._status.name = status

    def getGrpcStatusCode(self) -> Status:
        return self._status


class Session:
    """A session of the client: `error` is what each query raises."""

    version = "4.1.4"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.queries: list[str] = []

    def sql(self, text: str) -> Session:
        self.queries.append(text)
        return self

    def collect(self) -> list[list[str]]:
        if self.error is not None:
            raise self.error
        return [["1.12.0"]]


def connected(session: Session) -> SparkConnect:
    engine = connect("sc://h:1", catalogs={"lake": "ice"})
    engine._session = session
    return engine


def test_table_is_looked_for_with_its_snapshot_in_fresh_metadata() -> None:
    session = Session()
    connected(session).find(TableId.parse("lake.db.t"), 7)
    assert session.queries == [
        "REFRESH TABLE `ice`.db.t",
        "SELECT 1 FROM `ice`.db.t VERSION AS OF 7 LIMIT 0",
    ]


def test_table_that_the_server_does_not_show_is_named_with_its_setting() -> None:
    with pytest.raises(IcebergMaintError) as caught:
        connected(Session(Answer("INTERNAL", "[TABLE_OR_VIEW_NOT_FOUND]"))).find(
            TableId.parse("lake.db.t"), 7
        )
    assert str(caught.value) == (
        "ICM-133 Spark at sc://h:1 does not show lake.db.t with snapshot 7 as `ice`.db.t: [TABLE_OR_VIEW_NOT_FOUND]. "
        "Fix: set engines.spark-connect.catalogs to its name of the catalog, or permit the user to read it there."
    )


def test_server_that_refuses_the_token_is_of_the_environment() -> None:
    with pytest.raises(IcebergMaintError) as caught:
        connected(Session(Answer("UNAUTHENTICATED", "bad token"))).find(TableId.parse("lake.db.t"), 7)
    assert str(caught.value) == (
        "ICM-133 Spark at sc://h:1 refuses the user me: bad token. "
        "Fix: correct engines.spark-connect.user and engines.spark-connect.password."
    )


@pytest.mark.parametrize("error", [Answer("UNAVAILABLE", "gone"), RuntimeError("gone")])
def test_server_that_dies_leaves_open_what_the_statement_did(error: Exception) -> None:
    with pytest.raises(EnvironmentFailedError, match="ICM-133 Spark at sc://h:1 does not answer: gone"):
        connected(Session(error))._collect("CALL x", 5)


def test_error_of_the_server_is_a_failed_statement() -> None:
    with pytest.raises(StatementFailedError, match="CommitFailedException: base") as caught:
        connected(Session(Answer("INTERNAL", "CommitFailedException: base")))._collect("CALL x", 5)
    assert caught.value.is_conflict


@pytest.mark.parametrize(
    ("summary", "statement_id", "made"),
    [
        ({"spark.app.id": "app-1"}, "app-1", True),
        ({"app-id": "app-1"}, "app-1", True),
        ({"spark.app.id": "app-2"}, "app-1", False),
        ({"spark.app.id": "app-2"}, "", True),
        ({}, "", False),
        ({"trino_query_id": "q"}, "", False),
    ],
)
def test_commit_is_of_the_server_with_its_application(
    summary: dict[str, str], statement_id: str, made: bool
) -> None:
    assert connect().made(Snapshot(1, None, 1, 0, "replace", summary, ""), statement_id) is made
