"""What Iceberg is told of a table behind a gate, and by whom: Java's own operations, but for the commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.engines.spark.commit.gate import GateRefusedError
from iceberg_maint.engines.spark.commit.retry import quiet_proxies
from iceberg_maint.engines.spark.commit.table_operations import GuardedTableOperations
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, cause_classes
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark


class Heard:
    """The Python side; answers nothing but what a commit asks."""

    def __init__(self) -> None:
        self.commits: list[tuple[Any, Any]] = []

    def commit(self, base: Any, metadata: Any) -> None:
        self.commits.append((base, metadata))
        raise GateRefusedError("no")

    def requireStrictCleanup(self) -> bool:
        return True

    class Java:
        implements = ("org.apache.iceberg.TableOperations",)


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


@pytest.fixture
def bridge(workshop: Workshop) -> Iterator[Bridge]:
    with workshop.bridge.callbacks(), quiet_proxies():
        yield workshop.bridge


@pytest.fixture
def table(workshop: Workshop) -> Any:
    return workshop.writers.create(workshop.new_name("behind"))


def test_operations_behind_gate_read_what_the_tables_own_do_without_python(
    bridge: Bridge, table: Any
) -> None:
    own, heard = table.operations(), Heard()
    seen = GuardedTableOperations(bridge, heard, own).java
    assert seen.current().equals(own.current())
    assert seen.refresh().metadataFileLocation() == own.current().metadataFileLocation()
    assert seen.io().equals(own.io())
    assert seen.encryption().equals(own.encryption())
    assert seen.metadataFileLocation("a.avro") == own.metadataFileLocation("a.avro")
    assert seen.locationProvider().newDataLocation("f").endswith("/f")
    assert seen.newSnapshotId() != seen.newSnapshotId()
    assert seen.temp(own.current()).current().equals(own.current())
    assert heard.commits == []


def test_operations_behind_gate_ask_python_about_the_commit_alone(bridge: Bridge, table: Any) -> None:
    own, heard = table.operations(), Heard()
    seen = GuardedTableOperations(bridge, heard, own).java
    assert seen.requireStrictCleanup() is True
    with pytest.raises(JVM_ERRORS, match="no"):
        seen.commit(own.current(), own.current())
    assert [base.equals(own.current()) for base, _ in heard.commits] == [True]


def test_operations_behind_gate_that_fail_to_read_raise_what_they_raise(
    bridge: Bridge, workshop: Workshop, table: Any
) -> None:
    seen = GuardedTableOperations(bridge, Heard(), table.operations()).java
    workshop.sql(f"drop table {table.name()}")
    with pytest.raises(JVM_ERRORS) as raised:
        seen.refresh()
    assert cause_classes(raised.value)[0] == "org.apache.iceberg.exceptions.NoSuchTableException"


def test_operations_behind_gate_show_properties_for_a_while_that_the_table_has_not_set(
    bridge: Bridge, workshop: Workshop
) -> None:
    name = workshop.new_name("behind")
    own = workshop.writers.create(name, properties={"mine": "1"}).operations()
    behind = GuardedTableOperations(bridge, Heard(), own)
    with behind.showing({"mine": "2", "shown": "3"}):
        seen = behind.java.current()
        assert (seen.property("mine", ""), seen.property("shown", "")) == ("1", "3")
        assert behind.java.refresh().property("shown", "") == ""
    assert behind.java.current().equals(own.current())
    assert behind.java.current().property("shown", "") == ""
