"""Tables that wait for a publish, and tables whose columns nothing reads, as the command line shows them."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import Ref, Snapshot
from iceberg_maint.report.deferrals import refusal
from iceberg_maint_tests.cli.conftest import NOW_MS, Lake
from iceberg_maint_tests.support.core.values import measured_of

SICK = TableId.parse("lake.db.sick")


def branch_ahead(lake: Lake) -> None:
    table = lake.catalog.content[SICK]
    head = table.state.snapshot
    assert head is not None
    ahead = Snapshot(4711, head.snapshot_id, head.sequence_number + 1, NOW_MS - 5000, "append", {}, "list")
    refs = (*table.state.refs, Ref("audit", "branch", 4711))
    state = replace(table.state, refs=refs, snapshots=(*table.state.snapshots, ahead))
    lake.catalog.put(replace(table, state=state))


def unreadable(lake: Lake, kind: str = "geometry") -> None:
    table = lake.catalog.content[SICK]
    state = replace(table.state, uncommon_types={"s.at": kind})
    lake.catalog.put(replace(table, state=state))


def test_tables_and_why_name_the_branch_that_is_waited_for(lake: Lake) -> None:
    branch_ahead(lake)
    [row] = [r for r in lake.json("tables")["tables"] if r["table"] == "lake.db.sick"]
    assert (row["verdict"], row["reason"], row["evidence"]["pending"]) == (
        "DEFER",
        "pending_publish",
        "branch audit",
    )
    assert row["until_ms"] == NOW_MS - 5000 + 3 * 86_400_000
    document = lake.json("why", "db.sick")
    assert document["truth"] == (
        "Later: branch audit can be published since 2027-01-15 07:59:55 UTC, and no longer after a commit to main. "
        "The wait ends at 2027-01-18 07:59:55 UTC."
    )
    assert document["change"].startswith("publish or remove what is pending")
    assert "branch audit" in lake("why", "db.sick").stdout
    result = lake("run", "db.sick")
    assert (result.exit_code, lake.engine.batches) == (0, [])


def test_tables_and_why_and_run_name_the_column_that_nothing_reads(lake: Lake) -> None:
    unreadable(lake)
    [row] = [r for r in lake.json("tables")["tables"] if r["table"] == "lake.db.sick"]
    assert (row["verdict"], row["reason"], row["evidence"]) == (
        "REFUSE",
        "unsupported_type",
        {"columns": "s.at (geometry)"},
    )
    document = lake.json("why", "db.sick")
    assert document["truth"] == "Refused: no operation on data can read column s.at (geometry)."
    result = lake("run", "db.sick")
    assert (result.exit_code, lake.engine.batches) == (3, [])
    assert "lake.db.sick: ICM-134 no operation on data can read column s.at (geometry)." in result.stderr


def test_tables_and_plan_and_why_and_run_name_the_property_that_no_writer_takes(lake: Lake) -> None:
    table = lake.catalog.content[SICK]
    properties = {**table.state.properties, "write.parquet.page-row-limit": "0"}
    lake.catalog.put(replace(table, state=replace(table.state, properties=properties)))
    wrong = "write.parquet.page-row-limit = 0; it must be a whole number from 1 to 2147483647"
    [row] = [r for r in lake.json("tables")["tables"] if r["table"] == "lake.db.sick"]
    assert (row["verdict"], row["reason"], row["evidence"]) == (
        "REFUSE",
        "writer_property",
        {"property": wrong},
    )
    assert lake.json("why", "db.sick")["truth"] == f"Refused: the table property {wrong}."
    plan = " ".join(lake("plan", "db.sick").stdout.split())
    assert f"day=1 blocked the table property {wrong} (ICM-180)" in plan
    result = lake("run", "db.sick")
    assert (result.exit_code, lake.engine.batches) == (3, [])
    assert f"lake.db.sick: ICM-180 {wrong}. Fix: correct or unset the property of the table." in result.stderr


def test_column_that_no_strategy_reads_is_not_said_to_be_read_by_columnar() -> None:
    """Spark 3.5 refuses a variant, which columnar does not read either."""
    measured = replace(measured_of({}), uncommon_types={"v": "variant"})
    refused = refusal("lake.db.sick", Reason.UNSUPPORTED_TYPE, measured)
    assert refused is not None
    assert refused.message == "no operation on data can read column v (variant)."


def test_column_that_only_another_strategy_reads_is_refused_with_the_setting(lake: Lake) -> None:
    unreadable(lake, "time")
    native = ("--set", "rewrite_data_files.strategy=native")
    document = lake.json("why", "db.sick", *native)
    clause = "only rewrite_data_files with the strategy columnar can read column s.at (time)."
    assert document["truth"] == f"Refused: {clause}"
    assert document["change"] == "policy key rewrite_data_files.strategy: auto"
    result = lake("run", "db.sick", *native)
    assert (result.exit_code, lake.engine.batches) == (3, [])
    assert f"lake.db.sick: ICM-134 {clause} Fix: set rewrite_data_files.strategy to auto" in result.stderr
