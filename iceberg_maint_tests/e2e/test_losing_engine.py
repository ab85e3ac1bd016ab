"""An engine elsewhere loses a row, for real: the commit is red, the table stops for a person, and everything says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import IntegerType

from iceberg_maint_tests.support.alerts.receivers import HttpReceiver, serving
from iceberg_maint_tests.support.e2e.lake import (
    catalog_of,
    iceberg_maint,
    make_lake,
    make_table,
    rows_by_duckdb,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.variant,  # a minute; loop/test_statement_attempt.py has the same loss without processes
    pytest.mark.timeout(300),
]

_ENGINE = """\
  rewrite_data_files: {engines: [spark-connect]}
  attest: {level: files}
engines:
  spark-connect: {uri: "sc://127.0.0.1:1"}
alerts:
  receivers: {hook: {kind: webhook, url: "%s"}}
"""


def run(folder: Path) -> dict[str, Any]:
    """The run of Dagster, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "iceberg_maint_tests.support.e2e.losing_engine", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def test_row_that_an_engine_lost_is_named_everywhere_and_stops_the_table(tmp_path: Path) -> None:
    receiver = HttpReceiver()
    config = make_lake(tmp_path, more=_ENGINE % receiver.url)
    make_table(tmp_path, "db.events", 6, key_type=IntegerType())
    before = rows_by_duckdb(tmp_path, "db.events")
    found = run(tmp_path)
    assert before - rows_by_duckdb(tmp_path, "db.events") == {(0, "0-0"): 1}

    snapshot = catalog_of(tmp_path).load_table("db.events").current_snapshot()
    assert snapshot is not None
    verdict = (
        f"no gate: snapshot {snapshot.snapshot_id} RED: row_count: 6 rows were live before and 5 are after it"
    )
    assert found["success"] is False
    assert verdict in found["failures"][0]
    passed, severity, text = found["checks"]["maintenance_attested"]
    assert (passed, severity) == (False, "ERROR")
    assert "is RED" in text
    assert "1 rows lost, 0 brought back or doubled" in text
    assert [name for name in ("quarantine", "no_progress") if found["checks"][name][0]] == []

    [record] = json.loads(iceberg_maint(["history", "lake.db.events", "--json"], config).stdout)["records"]
    assert (record["outcome"], record["reason"]) == ("FAILED", "not_attested")
    # The other partitions got no statement.
    [batch] = record["batches"]
    assert (batch["partitions"], batch["proof"]) == (["p=0"], None)
    assert batch["engine"] == "spark-connect Spark 4.1.4, Iceberg 1.12.0"
    assert verdict in batch["message"]

    rows = iceberg_maint(["attest", "lake.db.events", "--snapshot", str(snapshot.snapshot_id)], config)
    assert rows.returncode == 1
    assert '"0-0"' in rows.stdout
    assert "rollback_to_snapshot" in rows.stdout

    with serving(receiver.server):
        assert iceberg_maint(["alerts", "send"], config).returncode == 0
    fired = {alert["kind"] for document in receiver.documents for alert in document["fired"]}
    assert {"red_commit", "quarantine"} <= fired
