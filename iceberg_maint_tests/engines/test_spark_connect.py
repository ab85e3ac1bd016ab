"""Calls of Iceberg's procedures for Spark Connect. A real server runs them in `make qualify SUITE=platform`."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot
from iceberg_maint.engines.spark_connect import SparkConnect, statement_engine
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.statement_engine import CannotError
from iceberg_maint_tests.support.statements import manifests, rewrite, settings, state_of, texts

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
        connect("sc://127.0.0.1:1").version(TableId.parse("lake.db.t"))


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
