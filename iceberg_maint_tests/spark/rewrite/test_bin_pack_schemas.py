"""The native strategy on every type, on schemas that changed, and on several partition specs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.policy.data import OutputSpec
from iceberg_maint_tests.support.spark.unhealthy_tables import evolved_table, rewrite, workshop
from iceberg_maint_tests.support.spark.workshop import FOOTER, FULL, Workshop

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


def evolved(shop: Workshop) -> str:
    name = shop.new_name("native")
    shop.sql(f"create table {name} (id int, cat string) using iceberg tblproperties ('format-version'='2')")
    for start in (0, 10):
        shop.sql(
            f"insert into {name} select cast(id as int), if(id % 3 = 0, null, 'b') from range({start}, {start + 10})"
        )
    shop.sql(f"alter table {name} add partition field bucket(2, id)")
    shop.sql(f"insert into {name} select cast(id as int), 'c' from range(20, 30)")
    return name


def test_rewrite_evolved_table_keeps_every_file_in_its_own_spec(shop: Workshop) -> None:
    written = rewrite(shop, evolved(shop))
    assert Counter(f.spec_id for f in written.files) == {0: 1, 1: 2}


def test_rewrite_evolved_table_to_the_current_spec_moves_old_files(shop: Workshop) -> None:
    name = evolved(shop)
    written = rewrite(shop, name, output_spec=OutputSpec.CURRENT)
    assert {f.spec_id for f in written.files} == {1}
    assert sum(f.record_count for f in written.files) == 30


ALL_TYPES = (
    "b boolean, i int, l bigint, f float, d double, d9 decimal(9,2), d18 decimal(18,4), d38 decimal(38,10), "
    "s string, bin binary, dt date, ts timestamp, ntz timestamp_ntz, "
    "st struct<a: int, n: struct<x: string, y: array<int>>>, li array<struct<k: string, v: double>>, "
    "m map<string, array<bigint>>, empty array<int>"
)
ALL_VALUES = """
  id % 2 = 0, cast(id as int), id * 4294967296, cast(if(id = 3, 'NaN', id / 7) as float),
  if(id = 4, -0.0D, if(id = 5, double('-Infinity'), id / 3)), cast(id / 3 as decimal(9,2)),
  cast(-id / 3 as decimal(18,4)), cast(id as decimal(38,10)) * 1234567890123456789,
  if(id = 6, '', concat('h\u00e9\u6f22\U0001f600', id)), cast(concat('x', id) as binary), date_add(date'1969-12-30', cast(id as int)),
  timestamp'1969-12-31 23:59:59.999999' + make_interval(0, 0, 0, 0, 0, 0, id), timestamp_ntz'2024-01-01 00:00:00.000001',
  if(id = 1, null, named_struct('a', if(id = 2, null, cast(id as int)), 'n',
     if(id = 3, null, named_struct('x', 'q', 'y', if(id = 4, array(), array(1, null)))))),
  array(named_struct('k', 'a', 'v', 1.0D), null, named_struct('k', null, 'v', id / 2)),
  map('one', array(id), 'none', null, 'empty', array()), if(id = 2, null, array())
"""


def texts(shop: Workshop, name: str) -> list[list[str]]:
    """Rows by Iceberg's generic reader; values that py4j leaves in Java as Java prints them."""
    return sorted(
        [str(v.toString()) if isinstance(v, JavaObject) else repr(v) for v in row]
        for row in shop.writers.rows(name)
    )


@pytest.mark.variant
@pytest.mark.parametrize("version", [2, 3])
def test_rewrite_all_types_keeps_every_value(shop: Workshop, version: int) -> None:
    name = shop.new_name("native")
    shop.sql(f"create table {name} ({ALL_TYPES}) using iceberg tblproperties ('format-version'='{version}')")
    for start in (0, 5):
        shop.sql(f"insert into {name} select {ALL_VALUES} from range({start}, {start + 5})")
    nulls = ", ".join(["null"] * 17)
    shop.sql(f"insert into {name} values ({nulls})")
    before = sorted(map(repr, shop.spark.table(name).collect()))
    generic = texts(shop, name)
    batch = shop.batch(name)
    written = shop.engine.write(batch, FULL)
    assert written.proof.equal, written.proof.detail
    assert shop.commit(batch, written).status is CommitStatus.COMMITTED
    assert sorted(map(repr, shop.spark.table(name).collect())) == before
    assert texts(shop, name) == generic


@pytest.mark.variant
def test_rewrite_after_rename_add_drop_and_promotion_reads_by_field_id(shop: Workshop) -> None:
    name = evolved_table(shop, version=2)
    shop.sql(f"insert into {name} values (2, 'y', 2.5, 4.25, named_struct('x', 2, 'y', 3), 'new')")
    rewrite(shop, name, FOOTER)
    rewrite(shop, name, FULL)
    found = {tuple(r) for r in shop.sql(f"select b2, a, c, st.y, gone from {name}").collect()}
    assert found == {(1, "x", 1.5, None, None), (2, "y", 2.5, 3, "new")}


def test_rewrite_column_names_with_dots_and_quotes_are_taken_literally(shop: Workshop) -> None:
    name = shop.new_name("native")
    shop.sql(f"create table {name} (`a.b` int, `c``d` string, `e f` struct<`g.h`: int>) using iceberg")
    shop.sql(f"insert into {name} values (1, 'x', named_struct('g.h', 5))")
    shop.sql(f"insert into {name} values (2, 'y', null)")
    written = rewrite(shop, name)
    assert (len(written.files), written.proof.output_records) == (1, 2)


@pytest.mark.variant
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_rewrite_v3_partition_by_a_value_that_is_not_finite_keeps_rows_and_their_ids(
    shop: Workshop, value: str
) -> None:
    name = shop.new_name("native")
    shop.sql(
        f"create table {name} (id int, v float) using iceberg partitioned by (v) "
        "tblproperties ('format-version'='3')"
    )
    for start in (0, 2):
        shop.sql(
            f"insert into {name} select cast(id as int), float('{value}') from range({start}, {start + 2})"
        )
    query = f"select id, cast(v as string), _row_id from {name} order by id"
    before = [tuple(row) for row in shop.sql(query).collect()]

    batch = shop.batch(name)
    written = shop.engine.write(batch, FULL)
    result = shop.commit(batch, written)

    assert (written.proof.equal, result.status) == (True, CommitStatus.COMMITTED)
    assert [tuple(row) for row in shop.sql(query).collect()] == before
    assert [(row_id, text) for row_id, text, _ in before] == [(n, value) for n in range(4)]
