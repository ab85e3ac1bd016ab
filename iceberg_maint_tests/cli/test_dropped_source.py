"""A table whose old spec lost its source column: refused before anything is written, with what to do."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.model.ids import TableId
from iceberg_maint_tests.cli.conftest import Lake

SICK = TableId.parse("lake.db.sick")


def test_run_is_refused_with_what_to_do(lake: Lake) -> None:
    table = lake.catalog.content[SICK]
    spec = table.state.specs[0]
    lost = replace(spec, fields=tuple(replace(f, loses_values=True) for f in spec.fields))
    lake.catalog.put(replace(table, state=replace(table.state, specs={**table.state.specs, 0: lost})))
    result = lake("run", "db.sick")
    assert result.exit_code == 3
    assert lake.engine.batches == []
    [line] = [line for line in result.stderr.splitlines() if "ICM-131" in line]
    assert (
        "lake.db.sick: ICM-131 the column by which partition spec 0 partitions live files was dropped" in line
    )
    assert "Fix: set commit.manifest-merge.enabled=false" in line
    document = lake.json("why", "db.sick")
    assert (document["verdict"], document["reason"]) == ("REFUSE", "dropped_source")
    assert {p["reason"] for p in document["partitions"] if p["verdict"] == "REFUSE"} == {"dropped_source"}
