"""The claims of tables, kept for the orphan scans of later processes."""

from __future__ import annotations

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.location import LocationOwner
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import StoredLocationOwner
from iceberg_maint_tests.ledger.conftest import Place

ONE, TWO, ELSEWHERE = (TableId.parse(name) for name in ("lake.db.one", "lake.db.two", "other.db.one"))


def stored(name: TableId, pointer: str = "s3://b/1.json") -> StoredLocationOwner:
    return StoredLocationOwner(pointer, LocationOwner(str(name), "uuid", ("s3://b/t", "s3://b/u")), 7)


def test_claims_are_kept_by_catalog_replaced_and_deleted(ledger: Ledger) -> None:
    ledger.registry.put_location_owners("lake", {ONE: stored(ONE), TWO: stored(TWO)})
    ledger.registry.put_location_owners("other", {ELSEWHERE: stored(ELSEWHERE)})
    ledger.registry.put_location_owners("lake", {TWO: stored(TWO, "s3://b/2.json")}, [ONE])
    assert ledger.registry.location_owners("lake") == {TWO: stored(TWO, "s3://b/2.json")}
    assert ledger.registry.location_owners("other") == {ELSEWHERE: stored(ELSEWHERE)}


def test_claim_of_a_name_that_is_not_unique_is_not_stored(ledger: Ledger) -> None:
    dotted, empty = TableId("lake", ("db",), "a.b"), TableId("lake", ("db",), "..")
    ledger.registry.put_location_owners(
        "lake", {ONE: stored(ONE), TWO: stored(TWO), dotted: stored(dotted), empty: stored(empty)}
    )
    assert ledger.registry.location_owners("lake") == {ONE: stored(ONE), TWO: stored(TWO)}


def test_claim_in_another_form_is_omitted(ledger: Ledger, place: Place) -> None:
    ledger.registry.put_location_owners("lake", {ONE: stored(ONE)})
    place.sql("UPDATE icm_location_owner SET form = 'another'")
    assert ledger.registry.location_owners("lake") == {}
    ledger.registry.put_location_owners("lake", {ONE: stored(ONE)})
    assert ledger.registry.location_owners("lake") == {ONE: stored(ONE)}
