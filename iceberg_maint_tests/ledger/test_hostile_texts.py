"""Texts with marks of SQL, terminals and encodings are stored and read as they are, on both databases."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.ports.ledger import Ledger
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
def test_text_is_stored_and_read_as_it_is(place: Place, ledger: Ledger, text: str) -> None:
    table = TableId("lake", ("db",), text)
    lease = ledger.leases.acquire(UUID, str(table), text, 60, 0)
    assert ledger.leases.last_leased_name(UUID) == str(table)

    ledger.registry.pause(str(table), text, text)
    assert ledger.registry.pause_note(UUID, str(table)) == text
    plan = plan_of(quote(text, errors="surrogatepass"))
    ledger.work.save_plan(lease, plan)
    [stored] = ledger.work.open_batches(UUID, REWRITE)
    assert stored.batch.partitions == (quote(text, errors="surrogatepass"),)
    ledger.health.put(measured("day=1", table=table))
    found = ledger.health.get(table)
    assert found is not None
    assert list(found.partitions) == ["day=1"]
    assert list(ledger.health.get_all([table])) == [table]
    assert [m.table for m in ledger.health.measurements([table])] == [table]
    assert [k.table for k in ledger.health.known_tables()] == [table]
    ledger.registry.put_location_owners("lake", {table: stored_claim(table, text)})
    assert list(ledger.registry.location_owners("lake")) == [table]
    record = make_record("r", table)
    outcome = replace(record.outcome, message=text, table=str(table))
    record = replace(record, outcome=outcome)
    ledger.records.append(record)
    assert ledger.records.newest(str(table), 9) == (record,)
    ledger.leases.release(lease)
