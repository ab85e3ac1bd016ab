"""Column types of real tables: which ones Spark cannot read, and what is maintained beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.decisions.applicability import SPARK_4, row_types, unsupported_columns
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.spark.housekeeping import KEEP_ONE, Keeper
from iceberg_maint_tests.support.spark.versions import not_on_spark_3
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(4)]
TYPES = (
    "time",
    "timestamp_ns",
    "timestamptz_ns",
    "unknown",
    "geometry",
    "geometry(srid:3857)",
    "geography",
    "variant",
    "uuid",
    "fixed[4]",
)


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    spark.sql("create namespace if not exists lake.types")
    return workshop_of(spark, lake_dir)


def table_of(workshop: Workshop, *columns: dict[str, Any], files: int = 6) -> str:
    """A v3 table with these columns beside `id`, of so many files of one row."""
    bridge, name = workshop.bridge, workshop.new_name("types")
    fields = [{"id": 1, "name": "id", "required": False, "type": "int"}, *columns]
    schema = bridge.iceberg.SchemaParser.fromJson(
        json.dumps({"type": "struct", "schema-id": 0, "fields": fields})
    )
    catalog, *names = name.split(".")
    identifier = bridge.iceberg.catalog.TableIdentifier.of(bridge.array(bridge.jvm.java.lang.String, names))
    java_catalog = bridge.iceberg.spark.Spark3Util.loadIcebergCatalog(bridge.session, catalog)
    unpartitioned = bridge.iceberg.PartitionSpec.unpartitioned()
    table = java_catalog.createTable(identifier, schema, unpartitioned, bridge.map([("format-version", "3")]))
    for number in range(files):
        workshop.writers.append(table, [{"id": number}])
    return name


def optional(number: int, name: str, kind: object) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind}


def unguarded(workshop: Workshop, name: str) -> Any:
    """One rewrite of the table by Spark as if it could read every type."""
    by_spark = replace(KEEP_ONE.rewrite_data_files, strategy=RewriteStrategy.NATIVE)
    keeper = Keeper(workshop, replace(KEEP_ONE, rewrite_data_files=by_spark))
    everything = changed(
        keeper.context(name, 0),
        row_types=(frozenset(keeper.state(name).uncommon_types.values()) | _BASES,),
    )
    request = Request("unguarded", operations=(Operation.REWRITE_DATA_FILES,))
    return maintain(TableId.parse(name), request, everything)[-1]


_BASES = frozenset({"geometry", "geography"})


@pytest.mark.parametrize("kind", TYPES)
def test_type_is_refused_if_and_only_if_spark_cannot_rewrite_it(workshop: Workshop, kind: str) -> None:
    name = table_of(workshop, optional(2, "at", kind))
    state = workshop.catalog.pin(TableId.parse(name))
    refused = bool(unsupported_columns(state.uncommon_types, row_types(workshop.spark.version)))
    outcome = unguarded(workshop, name)
    assert (outcome.outcome is OutcomeStatus.IMPROVED) is not refused, outcome.message


@not_on_spark_3("it has no variant")
def test_rewrite_of_variant_and_unknown_columns_keeps_every_value(workshop: Workshop) -> None:
    struct = {"type": "struct", "fields": [optional(4, "x", "unknown"), optional(5, "y", "variant")]}
    name = table_of(workshop, optional(2, "v", "variant"), optional(3, "s", struct), files=0)
    for number, text in enumerate(("1", '"a"', '{"a": [1, 2.5, null]}', "null", "true", "")):
        value = f"parse_json('{text}')" if text else "cast(null as variant)"
        workshop.sql(f"insert into {name} select {number}, {value}, named_struct('x', null, 'y', {value})")
    query = (
        f"select id, to_json(v), schema_of_variant(v), s is null, s.x, to_json(s.y) from {name} order by id"
    )
    before = workshop.sql(query).collect()
    assert unsupported_columns(Keeper(workshop).state(name).uncommon_types, SPARK_4) == {}
    outcome = Keeper(workshop).run(name, Operation.REWRITE_DATA_FILES)
    assert outcome.outcome is OutcomeStatus.IMPROVED, outcome.message
    assert len(before) == 6
    assert workshop.sql(query).collect() == before


@pytest.mark.variant
def test_table_with_nested_columns_that_nothing_reads_keeps_its_housekeeping(
    workshop: Workshop, tmp_path: Path
) -> None:
    struct = {"type": "struct", "fields": [optional(3, "x", "geometry")]}
    name = table_of(workshop, optional(2, "s", struct))
    keeper = Keeper(workshop)
    for operation in DATA_OPERATIONS:
        outcome = keeper.run(name, operation, force=True)
        # A conversion finds no deletes, so nothing is due for it.
        due = operation is Operation.REWRITE_DATA_FILES
        expected = (
            (OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_TYPE)
            if due
            else (OutcomeStatus.NO_OP, Reason.HEALTHY)
        )
        assert (outcome.outcome, outcome.reason) == expected
        assert outcome.batches == ()
    assert keeper.run(name, Operation.REWRITE_MANIFESTS, force=True).outcome is OutcomeStatus.IMPROVED
    assert len(keeper.state(name).manifests) == 1
    assert keeper.run(name, Operation.EXPIRE_SNAPSHOTS, days=1).outcome is OutcomeStatus.IMPROVED
    keeper.scratch = tmp_path
    passed = keeper.run(name, Operation.REMOVE_ORPHAN_FILES, days=10)
    assert (passed.outcome, passed.reason) == (OutcomeStatus.IMPROVED, Reason.ORPHAN_FILES)
    assert sum(f.record_count for f in workshop.catalog.live_files(keeper.state(name), ["__all__"])) == 6


@pytest.mark.variant
def test_table_partitioned_by_fixed_is_maintained_and_its_orphan_pass_is_refused_by_name(
    workshop: Workshop, tmp_path: Path
) -> None:
    name = table_of(workshop, optional(2, "f", "fixed[4]"), files=0)
    table = workshop.writers.load(name)
    table.updateSpec().addField("f").commit()
    for number in range(6):
        workshop.sql(
            f"insert into {name} values ({number}, X'61626364'), ({number}, X'00ff0808'), ({number}, null)"
        )
    before, keeper = workshop.rows(name), Keeper(workshop, scratch=tmp_path)
    state = keeper.state(name)
    measured = workshop.catalog.measure(state, KEEP_ONE.rewrite_data_files)
    assert sorted(measured.partitions) == ["spec=1/f", "spec=1/f=00ff0808", "spec=1/f=61626364"]
    for operation in (Operation.REWRITE_DATA_FILES, Operation.REWRITE_MANIFESTS):
        outcome = keeper.run(name, operation, force=True)
        assert outcome.outcome is OutcomeStatus.IMPROVED, outcome.message
    assert workshop.rows(name) == before
    keys = sorted(workshop.catalog.measure(keeper.state(name), KEEP_ONE.rewrite_data_files).partitions)
    live = workshop.catalog.live_files(keeper.state(name), keys)
    assert sorted((f.partition, f.record_count) for f in live) == [(key, 6) for key in keys]
    location = Path(str(table.location()).removeprefix("file:"))
    orphan = location / "data" / "orphan.parquet"
    orphan.write_bytes(b"x")
    passed = keeper.run(name, Operation.REMOVE_ORPHAN_FILES, days=10)
    assert (passed.outcome, passed.reason) == (OutcomeStatus.UNSUPPORTED, Reason.REFUSED)
    assert passed.batches[0].message.startswith(f"ICM-101 {name}: partition field f has a fixed type")
    assert orphan.read_bytes() == b"x"
