"""Texts with marks of SQL, terminals and encodings are stored and read as they are, on both databases."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.ledger.ledger import SqlLedger
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.ledger.test_claims import stored as stored_claim
from iceberg_maint_tests.support.ledger.values import (
    REWRITE,
    UUID,
    make_record,
    measured,
    plan_of,
)

TEXTS = (
    "'; DROP TABLE icm_lease; --",
    '"%s%(x)s:name?',
    "\x1b[2J\u202e\n",
    "\\x00\\",
    "nul\0nul",
    "half\udcff",
    "\U0001f600",
)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_text_is_stored_and_read_as_it_is(place: Place, ledger: SqlLedger, text: str) -> None:
    table = TableId("lake", ("db",), text)
    lease = ledger.acquire_lease(UUID, str(table), text, 60, 0)
    assert ledger.last_leased_name(UUID) == str(table)

    ledger.pause(str(table), text, text)
    assert ledger.pause_note(UUID, str(table)) == text
    plan = plan_of(quote(text, errors="surrogatepass"))
    ledger.save_plan(lease, plan, "run-1")
    [stored] = ledger.open_batches(UUID, REWRITE)
    assert stored.batch.partitions == (quote(text, errors="surrogatepass"),)
    ledger.put_health(measured("day=1", table=table))
    found = ledger.health(table)
    assert found is not None
    assert list(found.partitions) == ["day=1"]
    assert list(ledger.healths([table])) == [table]
    assert [m.table for m in ledger.measurements([table])] == [table]
    assert [k.table for k in ledger.known_tables()] == [table]
    ledger.put_claims("lake", {table: stored_claim(table, text)})
    assert list(ledger.claims("lake")) == [table]
    record = make_record("r", table)
    outcome = replace(record.outcome, message=text, table=str(table))
    record = replace(record, outcome=outcome)
    ledger.append_record(record)
    assert ledger.records(str(table), 9) == (record,)
    ledger.release_lease(lease)
