"""Commits to a real REST catalog: what it compares, what it cannot compare, and a catalog that understands less."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.engines.spark.commit.housekeeping import commit_expiry
from iceberg_maint.engines.spark.commit.retry import Backoff, TableAccess
from iceberg_maint.engines.spark.commit.table_operations import commit_with_requirements, refusal
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, cause_classes
from iceberg_maint_tests.qualification.rest_races import FAULTS, KEPT, LATE, LOST, races
from iceberg_maint_tests.spark.commit.test_expire_snapshots import append, grown, ids
from iceberg_maint_tests.support.context import commit_context
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.rest import RestCatalog, rest_catalog
from iceberg_maint_tests.support.spark.rewrites import READER
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark
Load = Callable[[str], Any]
NO_WAIT = Backoff(0.0, 0.0, lambda: 0.0, lambda _: None)
LOST_SWAP = "org.apache.iceberg.exceptions.CommitFailedException"
REFUSED = json.dumps(
    {"error": {"message": "unknown requirement", "type": "BadRequestException", "code": 400}}
)


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


@pytest.fixture(scope="module")
def rest(workshop: Workshop, lake_dir: Path) -> Iterator[tuple[RestCatalog, Load]]:
    with rest_catalog(workshop.bridge, lake_dir) as made:
        yield made


@pytest.fixture
def server(rest: tuple[RestCatalog, Load]) -> Iterator[RestCatalog]:
    yield rest[0]
    rest[0].before_update = lambda _body: None


@pytest.fixture
def load(rest: tuple[RestCatalog, Load]) -> Load:
    return rest[1]


def expire(workshop: Workshop, load: Load, name: str, between: Callable[[], object]) -> CommitResult:
    """Expires all but the last snapshot by REST. `between` runs once between the check and the request."""
    batch = Keeper(workshop).batch(name, Operation.EXPIRE_SNAPSHOTS, days=1)
    allowed = Retention(batch.work.snapshots, (), (), ())
    tries = itertools.count()

    def record_try(_base: int, _location: str) -> None:
        if next(tries) == 0:
            between()

    context = commit_context("token", 1, "run", 3, lambda: True, record_try, lambda _location: allowed)
    return commit_expiry(TableAccess(workshop.bridge, READER, NO_WAIT, load), batch, batch.work, context)


def test_expiry_beside_a_commit_to_main_is_refused_by_the_catalog_and_tried_again(
    workshop: Workshop, server: RestCatalog, load: Load
) -> None:
    name, table = grown(workshop, 3)
    result = expire(workshop, load, name, lambda: append(workshop, table, 9))
    assert (result.status, result.tries, result.lost) == (CommitStatus.COMMITTED, 2, ())
    assert len(ids(Keeper(workshop), name)) == 2


def test_known_tag_that_moves_to_an_expiring_snapshot_stays(
    workshop: Workshop, server: RestCatalog, load: Load
) -> None:
    name, table = grown(workshop, 3)
    first, _, last = ids(Keeper(workshop), name)
    table.manageSnapshots().createTag("audited", last).commit()

    def move_tag() -> None:
        moved = workshop.writers.load(name)
        moved.manageSnapshots().replaceTag("audited", first).commit()

    result = expire(workshop, load, name, move_tag)
    assert result.status is CommitStatus.REJECTED
    assert "a ref points at snapshot" in result.message
    assert int(workshop.writers.load(name).refs()["audited"].snapshotId()) == first


def test_new_tag_on_an_expiring_snapshot_is_lost_and_named(
    workshop: Workshop, server: RestCatalog, load: Load
) -> None:
    """No requirement says that a name unknown to the request must not exist."""
    name, _ = grown(workshop, 3)
    first, *_ = ids(Keeper(workshop), name)
    create = workshop.writers.load(name).manageSnapshots().createTag("audited", first)
    result = expire(workshop, load, name, create.commit)
    assert (result.status, result.lost) == (
        CommitStatus.COMMITTED,
        (f"tag audited on snapshot {first}",),
    )


def test_commit_is_refused_where_schema_spec_or_sort_order_changed(
    workshop: Workshop, server: RestCatalog, load: Load
) -> None:
    name, _ = grown(workshop, 1)
    statements = ("ADD COLUMN w bigint", "ADD PARTITION FIELD v", "WRITE ORDERED BY id")
    for statement in statements:
        operations = load(name).operations()
        base = operations.current()
        workshop.sql(f"ALTER TABLE {name} {statement}")
        with pytest.raises(JVM_ERRORS) as error:
            commit_property(workshop, operations, base)
        assert cause_classes(error.value)[:1] == (LOST_SWAP,)
    operations = load(name).operations()
    commit_property(workshop, operations, operations.current())
    assert workshop.writers.load(name).properties()["touched"] == "yes"


def test_catalog_that_refuses_requirements_gets_those_of_iceberg(
    workshop: Workshop, server: RestCatalog, load: Load
) -> None:
    name, _ = grown(workshop, 3)
    requests: list[set[str]] = []

    def refuse(body: str) -> tuple[int, str] | None:
        requests.append({r["type"] for r in json.loads(body)["requirements"]})
        return (400, REFUSED) if "assert-default-spec-id" in requests[-1] else None

    server.before_update = refuse
    result = expire(workshop, load, name, lambda: None)
    assert (result.status, result.tries) == (CommitStatus.COMMITTED, 1)
    assert len(ids(Keeper(workshop), name)) == 1
    assert requests[1] == {"assert-table-uuid"}
    assert (
        refusal(workshop.bridge, load(name).operations())
        == "BadRequestException: Malformed request: unknown requirement"
    )


def answering(server: RestCatalog, code: int, kind: str) -> None:
    """The catalog answers the next commits with an error, and changes nothing."""
    body = json.dumps({"error": {"message": "by the test", "type": kind, "code": code}})
    server.before_update = lambda _body: (code, body)


@pytest.mark.parametrize(("code", "kind"), [(401, "NotAuthorizedException"), (403, "ForbiddenException")])
def test_commit_that_the_catalog_denies_is_rejected_as_a_failure_of_the_environment(
    workshop: Workshop, server: RestCatalog, load: Load, code: int, kind: str
) -> None:
    name, _ = grown(workshop, 2)
    answering(server, code, kind)
    result = expire(workshop, load, name, lambda: None)
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.ENVIRONMENT)
    assert kind in result.message
    assert len(ids(Keeper(workshop), name)) == 2


@pytest.mark.parametrize("code", [500, 502, 503, 504])
def test_commit_that_the_catalog_may_have_made_is_unknown(
    workshop: Workshop, server: RestCatalog, load: Load, code: int
) -> None:
    name, _ = grown(workshop, 2)
    answering(server, code, "ServiceFailureException")
    assert expire(workshop, load, name, lambda: None).status is CommitStatus.UNKNOWN


def test_question_for_requirements_changes_nothing(
    workshop: Workshop, server: RestCatalog, load: Load
) -> None:
    name, table = grown(workshop, 1)
    assert refusal(workshop.bridge, load(name).operations()) is None
    assert refusal(workshop.bridge, table.operations()) is None
    before = str(table.operations().current().metadataFileLocation())
    assert str(workshop.writers.load(name).operations().current().metadataFileLocation()) == before


def commit_property(workshop: Workshop, operations: Any, base: Any) -> None:
    changed = base.replaceProperties(
        workshop.bridge.map({**dict(base.properties()), "touched": "yes"}.items())
    )
    commit_with_requirements(workshop.bridge, operations, base, changed, all_refs=False)


@pytest.mark.variant
def test_no_race_of_an_expiry_with_a_tag_releases_a_file_of_it(workshop: Workshop, lake_dir: Path) -> None:
    results = races(workshop, lake_dir, 4, seed=1)
    assert sum(results[state] for state in (KEPT, LATE, LOST)) == 4
    assert [results[fault] for fault in FAULTS] == [0, 0]
