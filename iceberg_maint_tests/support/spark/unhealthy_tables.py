"""Tables that need the native strategy, and the rewrite that must keep their rows."""

from __future__ import annotations

from typing import Any

from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of


def workshop(spark: Any, lake_dir: Any) -> Workshop:
    """A workshop with a namespace for these tables."""
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.native")
    return made


def sick_table(shop: Workshop, version: int, columns: str = "id bigint, cat string", by: str = "cat") -> str:
    """Three small files per partition (one of them NULL) and, from v2 on, three deleted rows."""
    name = shop.new_name("native")
    partitioned = f"partitioned by ({by})" if by else ""
    shop.sql(
        f"create table {name} ({columns}) using iceberg {partitioned} tblproperties "
        f"('format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='file')"
    )
    for start in (0, 10, 20):
        shop.sql(
            f"insert into {name} select /*+ coalesce(1) */ id, if(id % 5 = 0, null, 'a') "
            f"from range({start}, {start + 10})"
        )
    if version > 1:
        shop.sql(f"delete from {name} where id in (1, 2, 11)")
    return name


def rewrite(shop: Workshop, name: str, policy: Policy = FULL, **how: Any) -> Written:
    """Plans, writes, proves and commits the whole table; the rows must stay, by two readers."""
    before, before_generic = shop.rows(name), shop.writers.rows(name)
    batch = shop.batch(name, **how)
    written = shop.engine.write(batch, policy)
    assert written.proof.equal, written.proof.detail
    result = shop.commit(batch, written)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert shop.rows(name) == before
    assert shop.writers.rows(name) == before_generic
    return written


def evolved_table(shop: Workshop, *, version: int) -> str:
    """Makes a table with one row whose columns are renamed, promoted, dropped and added after that. Returns its name."""
    name = shop.new_name("native")
    shop.sql(
        f"create table {name} (a int, b string, c float, gone int, d decimal(9,2), st struct<x: int>) "
        f"using iceberg tblproperties ('format-version'='{version}')"
    )
    shop.sql(f"insert into {name} values (1, 'x', 1.5, 9, 3.25, named_struct('x', 1))")
    shop.sql(f"alter table {name} rename column a to b2")
    shop.sql(f"alter table {name} rename column b to a")
    shop.sql(f"alter table {name} alter column b2 type bigint")
    shop.sql(f"alter table {name} alter column c type double")
    shop.sql(f"alter table {name} alter column d type decimal(20,2)")
    shop.sql(f"alter table {name} drop column gone")
    shop.sql(f"alter table {name} add columns (gone string, st.y bigint)")
    return name
