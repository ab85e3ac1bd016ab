"""What Dagster is told holds no secret, whoever says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import dagster as dg
import pytest

from iceberg_maint.config import redact, redact_error
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.defs.automation.sensors import follow_table_list
from iceberg_maint.errors import ConfigurationError
from iceberg_maint_tests.defs.conftest import Table, World, key
from iceberg_maint_tests.support.context import changed

pytestmark = pytest.mark.slow

T = "lake.db.t"
SECRET = "tok-123"
RAISED = (
    OSError(f"login with {SECRET} failed, s3.secret-access-key=abc"),
    ConfigurationError(
        "ICM-104", f"catalog refuses {SECRET} and s3.secret-access-key=abc.", "ask for another."
    ),
)


@pytest.fixture
def careful(world: World) -> World:
    world.context = changed(
        world.context,
        masked=lambda text: redact(text, {SECRET}),
        redacted_error=lambda error: redact_error(error, {SECRET}),
    )
    Table(world.catalog, "db.t").add("d1", 8)
    world.observe()
    return world


def raising(error: Exception) -> Callable[..., NoReturn]:
    def call(*_: Any, **__: Any) -> NoReturn:
        try:
            raise ValueError(f"cause: {SECRET}, password=abc")
        except ValueError as why:
            raise error from why

    return call


def told(world: World) -> str:
    """All that Dagster stored, with tracebacks and causes, and the ledger's records."""
    runs = world.instance.get_runs()
    logs = [dg.serialize_value(entry) for run in runs for entry in world.instance.all_logs(run.run_id)]
    return "\n".join([*logs, *map(str, world.ledger.records.newest(None, 100))])


def check(world: World, expected: str) -> None:
    text = told(world)
    assert expected in text
    assert SECRET not in text
    assert "=abc" not in text


def test_batch_that_fails_shows_no_secret(careful: World) -> None:
    def refuse(_batch: Batch) -> None:
        raise RAISED[0]

    careful.engine.before_write = refuse
    assert not careful.maintain(T, key("d1")).success
    check(careful, "login with *** failed")
    past = careful.ledger.health.history(
        careful.catalog.pin(careful.catalog.tables()[0]).uuid, T, "rewrite_data_files"
    )
    assert SECRET not in past.of(key("d1")).reason


@pytest.mark.parametrize("error", RAISED, ids=["hiccup", "known"])
def test_run_that_cannot_reach_the_catalog_shows_no_secret(
    careful: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(careful.catalog, "pin", raising(error))
    assert not careful.maintain(T, key("d1")).success
    check(careful, "s3.secret-access-key=***")


@pytest.mark.parametrize("error", RAISED, ids=["hiccup", "known"])
def test_observation_that_fails_shows_no_secret(
    careful: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(careful.catalog, "pin", raising(error))
    careful.observe(changed_only=False)
    check(careful, "s3.secret-access-key=***")


def test_sensor_that_cannot_list_shows_no_secret(careful: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(careful.catalog, "tables", raising(RAISED[1]))
    messages = follow_table_list((), careful.context, careful.table_list, lambda _: True, lambda: "")
    assert messages[0].startswith("catalog lake does not answer: ICM-104 catalog refuses ***")
