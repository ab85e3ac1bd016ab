"""Statements of the ledger find their rows by an index in every table that grows with time."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine

from iceberg_maint.core.outcomes.outcome import Rejection
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.loop.assess import assess
from iceberg_maint_tests.support.ledger.query_plans import GROWING, Statement, captured, whole_reads
from iceberg_maint_tests.support.ledger.questions import questions
from iceberg_maint_tests.support.loop.world import TABLE, Killed, Process, World


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> list[Statement]:
    """Those of every query, and of runs that commit, fail, die and are settled."""
    url = f"sqlite:///{tmp_path_factory.mktemp('plans') / 'ledger.db'}"
    with captured() as found:
        for question in questions(sql_ledger(url), 10):
            question.ask()
        world = World("ab")
        with pytest.raises(Killed):
            world.run(Process("after:swap"))
        world.expire_leases()
        world.reconcile()
        world.run()
        world.reject = Rejection.CONFLICT
        world.run(force=True)
        assess(TABLE, world.context(Process()))
        world.ledger.records.prune(world.now.state.uuid, 1)
        return found()


def test_every_growing_table_is_asked_for(statements: list[Statement]) -> None:
    assert [table for table in GROWING if not any(table in text for text, _ in statements)] == []


def test_no_statement_reads_a_growing_table_whole(statements: list[Statement], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    sql_ledger(url).registry.now_ms()
    engine = create_engine(url)
    with engine.connect() as conn:
        whole = {text: steps for text, p in statements if (steps := whole_reads(conn, (text, p)))}
    engine.dispose()
    assert whole == {}


def test_statement_without_an_index_is_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    sql_ledger(url).registry.now_ms()
    engine = create_engine(url)
    with engine.connect() as conn:
        assert whole_reads(conn, ("SELECT * FROM icm_record AS r WHERE body LIKE ?", ("x",))) == ["SCAN r"]
        assert whole_reads(conn, ("DELETE FROM icm_try WHERE recorded_ms < ?", (1,))) == ["SCAN icm_try"]
        assert whole_reads(conn, ("SELECT * FROM icm_health WHERE head = ?", ("x",))) == []
    engine.dispose()
