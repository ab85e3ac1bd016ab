"""The sample that Iceberg's reader decodes is equal on true rewrites of every kind of table, and within its limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from iceberg_maint.columnar.storage import local_path
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Policy, ProofLevel, RewriteStrategy, Route
from iceberg_maint.engines.spark.rewrite.columnar import sample, strategy
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.spark.rewrite.test_bin_pack_schemas import ALL_TYPES, ALL_VALUES
from iceberg_maint_tests.spark.rewrite.test_columnar import time_table
from iceberg_maint_tests.support.spark.equality_deletes import keys, rows_of
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.unhealthy_tables import evolved_table, sick_table, workshop
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop

pytestmark = pytest.mark.spark


def sampling(share: float, proof: ProofLevel = ProofLevel.FULL) -> Policy:
    """The strategy `columnar` with a sample of this share of the batches."""
    rewrites = replace(
        FULL.rewrite_data_files, strategy=RewriteStrategy.COLUMNAR, independent_sample=share, proof=proof
    )
    return replace(FULL, rewrite_data_files=rewrites)


ALL, NONE = sampling(1.0), sampling(0.0)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop(spark, lake_dir)
    made.sql("create namespace if not exists lake.types")
    return made


def planned(shop: Workshop, name: str) -> Batch:
    return shop.batch(name, strategy=RewriteStrategy.COLUMNAR)


def sample_of(written: Written) -> str:
    """The text of the sample without the path of its file."""
    assert (written.proof.equal, written.proof.detail, written.note) == (True, "", "")
    assert written.proof.sample is not None
    words = written.proof.sample.split(" ")
    return " ".join("FILE," if w.endswith(".parquet,") else w for w in words)


def sampled(shop: Workshop, name: str) -> str:
    """The sample of a rewrite of the table, which is committed."""
    batch = planned(shop, name)
    written = shop.engine.write(batch, ALL)
    text = sample_of(written)
    assert shop.commit(batch, written).status is CommitStatus.COMMITTED
    return text


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("version", "text"),
    [
        (1, "30 rows of row group 0 of FILE, 2 of 2 columns"),
        (2, "27 rows of row group 0 of FILE, 2 of 2 columns"),
        (3, "27 rows of row group 0 of FILE, 4 of 4 columns"),
    ],
)
def test_live_rows_and_lineage_of_a_rewrite_are_equal_by_icebergs_reader(
    shop: Workshop, version: int, text: str
) -> None:
    assert sampled(shop, sick_table(shop, version, by="")) == text


@pytest.mark.variant
@pytest.mark.drawn(1)
@pytest.mark.parametrize("version", [2, 3])
def test_rows_of_one_file_of_many_partitions_are_sampled(shop: Workshop, version: int) -> None:
    name = sick_table(shop, version, by="cat, bucket(2, id)")
    written = shop.engine.write(planned(shop, name), ALL)
    assert written.proof.sample is not None
    path = written.proof.sample.split(" of ")[2].partition(",")[0]
    [records] = [f.record_count for f in written.files if f.path == path]
    assert len(written.files) == 4
    assert sample_of(written).startswith(f"{records} rows of row group 0 of ")


@pytest.mark.variant
def test_lineage_that_a_rewrite_has_written_is_sampled(shop: Workshop) -> None:
    name = sick_table(shop, 3, by="")
    sampled(shop, name)
    for start in (30, 40):
        shop.sql(f"insert into {name} select id, 'b' from range({start}, {start + 10}, 1, 1)")
    shop.sql(f"delete from {name} where id in (5, 31)")
    assert sampled(shop, name) == "45 rows of row group 0 of FILE, 4 of 4 columns"


def test_rows_of_one_input_file_are_sampled(shop: Workshop) -> None:
    name = shop.new_name("native")
    file = shop.writers.append(shop.writers.create(name, version=2), rows_of(range(10)))
    shop.writers.delete_at(shop.writers.load(name), {str(file.location()): [4]})
    assert sampled(shop, name) == "9 rows of row group 0 of FILE, 2 of 2 columns"


def test_rows_of_an_evolved_schema_are_sampled_by_field_id_and_with_defaults(shop: Workshop) -> None:
    name = evolved_table(shop, version=3)
    iceberg = shop.bridge.iceberg
    seven = iceberg.expressions.Expressions.lit(7)
    change = shop.writers.load(name).updateSchema()
    change.addColumn("seven", iceberg.types.Types.IntegerType.get(), seven).commit()
    shop.sql(f"insert into {name} values (2, 'y', 2.5, 4.25, named_struct('x', 2, 'y', 3), 'new', 8)")
    assert sampled(shop, name) == "2 rows of row group 0 of FILE, 9 of 9 columns"
    assert {r[0] for r in shop.sql(f"select seven from {name}").collect()} == {7, 8}


@pytest.mark.variant
def test_struct_of_which_a_file_has_no_field_is_sampled(shop: Workshop) -> None:
    name = shop.new_name("native")
    shop.sql(
        f"create table {name} (id int, s struct<x: int>, l array<struct<x: int>>, m map<string, struct<x: int>>) "
        "using iceberg tblproperties ('format-version'='2')"
    )
    row = "(1, named_struct('x', 1), array(named_struct('x', 1), null), map('k', named_struct('x', 1)))"
    shop.sql(
        f"insert into {name} values {row}, (2, null, null, null), (3, named_struct('x', null), array(), map())"
    )
    for column in ("s", "l.element", "m.value"):
        shop.sql(f"alter table {name} add column {column}.y int")
        shop.sql(f"alter table {name} drop column {column}.x")
    shop.sql(f"insert into {name} values {row}")
    assert sampled(shop, name) == "4 rows of row group 0 of FILE, 4 of 4 columns"


def test_every_type_that_spark_reads_is_sampled(shop: Workshop) -> None:
    name = shop.new_name("native")
    shop.sql(f"create table {name} ({ALL_TYPES}) using iceberg tblproperties ('format-version'='3')")
    for start in (0, 5):
        shop.sql(f"insert into {name} select {ALL_VALUES} from range({start}, {start + 5}, 1, 1)")
    shop.sql(f"insert into {name} values ({', '.join(['null'] * 17)})")
    assert sampled(shop, name) == "11 rows of row group 0 of FILE, 19 of 19 columns"


@pytest.mark.variant
def test_types_that_spark_cannot_read_are_sampled(shop: Workshop) -> None:
    name = time_table(shop)
    assert sampled(shop, name) == "8 rows of row group 0 of FILE, 9 of 9 columns"


def test_floats_that_compare_unequal_to_themselves_are_equal_in_a_sample(shop: Workshop) -> None:
    name = shop.new_name("native")
    shop.sql(f"create table {name} (d double, l array<float>) using iceberg")
    for _ in range(2):
        shop.sql(f"insert into {name} values (double('NaN'), array(float('NaN'), -0.0f)), (-0.0d, null)")
    assert sample_of(shop.engine.write(planned(shop, name), ALL)).startswith("4 rows ")


def test_rows_deleted_by_equality_are_no_rows_of_a_sample(shop: Workshop) -> None:
    name = shop.new_name("native")
    table = shop.writers.create(name, version=2)
    for start in (0, 10):
        shop.writers.append(table, rows_of(range(start, start + 10)))
    [first, *_] = [str(t.file().location()) for t in shop.writers.tasks(shop.writers.load(name))]
    shop.writers.delete_at(shop.writers.load(name), {first: [0]})
    shop.writers.delete_where(shop.writers.load(name), keys(2, 13))
    policy = replace(ALL, equality_deletes=EqualityDeletesPolicy(route=Route.REWRITE))
    outcome = Keeper(shop, policy).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.outcome is OutcomeStatus.IMPROVED, outcome.message
    proof = outcome.batches[0].proof
    assert proof is not None
    assert proof.sample is not None
    assert proof.sample.startswith("17 rows of row group 0 of ")


def test_inputs_without_field_ids_are_sampled_by_the_name_mapping(shop: Workshop, tmp_path: Path) -> None:
    name = shop.new_name("native")
    columns = "id int, v string, l bigint, d double, ts timestamp_ntz, tz timestamp"
    table = shop.writers.create(name, columns, version=2)
    mapping = shop.bridge.iceberg.mapping
    names = mapping.NameMappingParser.toJson(mapping.MappingUtil.create(table.schema()))
    table.updateProperties().set("schema.name-mapping.default", names).commit()
    kinds = {
        "v": pa.large_string(),
        "id": pa.int8(),
        "l": pa.int16(),
        "d": pa.float32(),
        "ts": pa.timestamp("ms"),
        "tz": pa.timestamp("ms", "UTC"),
    }
    for number in range(3):
        path = tmp_path / f"{number}.parquet"
        rows = {"v": "a", "id": number, "l": -3, "d": 1.5, "ts": -1, "tz": 1_700_000_000_123}
        pq.write_table(pa.table({n: pa.array([rows[n], None], k) for n, k in kinds.items()}), path)
        builder = shop.bridge.iceberg.DataFiles.builder(table.spec()).withPath(str(path))
        file = builder.withFormat("parquet").withFileSizeInBytes(path.stat().st_size).withRecordCount(2)
        table.newAppend().appendFile(file.build()).commit()
    assert sampled(shop, name) == "6 rows of row group 0 of FILE, 6 of 6 columns"


def table_of_row_groups(shop: Workshop, version: int) -> str:
    """A table whose rewrite has one file of several row groups, with deleted rows in the first input file."""
    name = shop.new_name("native")
    shop.sql(
        f"create table {name} (id bigint, text string, m decimal(12, 2)) using iceberg tblproperties "
        f"('format-version'='{version}', 'write.parquet.row-group-size-bytes'='65536', "
        "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file')"
    )
    for k in range(3):
        shop.sql(
            f"insert into {name} select id, sha2(string(id), 256), cast(id / 8 as decimal(12, 2)) "
            f"from range({k * 2000}, {(k + 1) * 2000}, 1, 1)"
        )
    shop.sql(f"delete from {name} where id in (0, 1, 2, 3, 1500, 2100)")
    return name


def groups_of(shop: Workshop, name: str, policy: Policy = ALL) -> set[int]:
    """The row groups that were sampled for batches of different names."""
    batch, found = planned(shop, name), set[int]()
    for number in range(10):
        written = shop.engine.write(replace(batch, batch_id=f"batch {number}"), policy)
        [file] = written.files
        assert pq.read_metadata(local_path(file.path)).num_row_groups == 4
        found.add(int(sample_of(written).partition("row group ")[2].split(" ")[0]))
    return found


def test_later_row_groups_are_compared_with_the_rows_that_deletion_vectors_leave(shop: Workshop) -> None:
    assert groups_of(shop, table_of_row_groups(shop, 3)) == {0, 1, 2, 3}


@pytest.mark.variant
def test_position_deletes_of_unknown_count_leave_the_first_row_group(shop: Workshop) -> None:
    assert groups_of(shop, table_of_row_groups(shop, 2)) == {0}


@pytest.mark.variant
def test_row_group_behind_too_many_rows_is_not_decoded(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "MOST_SKIPPED_ROWS", 0)
    assert groups_of(shop, table_of_row_groups(shop, 3)) == {0}


@pytest.mark.variant
def test_sample_has_the_columns_that_fit_its_limits(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = table_of_row_groups(shop, 3)
    monkeypatch.setattr(sample, "MOST_VALUES", 2000)
    monkeypatch.setattr(sample, "MOST_SKIPPED_ROWS", 0)
    assert sample_of(shop.engine.write(planned(shop, name), ALL)).endswith(", 2 of 5 columns")
    monkeypatch.setattr(sample, "MOST_CHUNK_BYTES", 0)
    written = shop.engine.write(planned(shop, name), ALL)
    assert sample_of(written).startswith("not compared: each column of ")


@pytest.mark.variant
def test_long_position_delete_files_are_not_read(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MOST_POSITIONS", 0)
    name = sick_table(shop, 2, by="")
    written = shop.engine.write(planned(shop, name), ALL)
    assert sample_of(written) == "10 rows of row group 0 of FILE, 2 of 2 columns"
    shop.sql(f"delete from {name} where id = 21")
    text = sample_of(shop.engine.write(planned(shop, name), ALL))
    assert text == "not compared: more than 0 rows of position delete files apply to an input file"


@pytest.mark.variant
def test_batch_is_sampled_alike_in_each_attempt(shop: Workshop) -> None:
    batch = planned(shop, sick_table(shop, 3, by="cat, bucket(2, id)"))
    texts = [shop.engine.write(batch, ALL).proof.sample or "" for _ in range(2)]
    assert (
        texts[0].partition("/data/")[2].rpartition("/")[0]
        == texts[1].partition("/data/")[2].rpartition("/")[0]
    )
    assert texts[0].split(" ")[0] == texts[1].split(" ")[0]


def test_share_of_zero_and_level_footer_sample_nothing(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = planned(shop, sick_table(shop, 2))
    monkeypatch.setattr(strategy, "compare_sample", None)
    for policy in (NONE, sampling(1.0, ProofLevel.FOOTER)):
        assert shop.engine.write(batch, policy).proof.sample is None
