"""`why` tells four tables apart: healthy, sick, backing off, quarantined. Spark is not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.config import load_config
from iceberg_maint.core.outcomes.outcome import CommitResult, OutcomeStatus, combine_outcomes
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint.wiring.adapters import build
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.e2e.lake import iceberg_maint, make_lake, make_table

pytestmark = pytest.mark.slow


class FullDisk:
    """An engine that writes nothing."""

    def versions(self) -> dict[str, str]:
        return {}

    def start(self) -> None:
        pass

    def write(self, batch: Batch, policy: RewriteDataFilesPolicy) -> Written:
        raise OSError("no space left on device")

    def commit(self, batch: Batch, written: Written, ticket: CommitContext) -> CommitResult:
        raise AssertionError("nothing was written")

    def cancel(self) -> None:
        pass


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of four tables have failed, by the real loop and ledger."""
    folder = tmp_path_factory.mktemp("why")
    config = make_lake(folder)
    make_table(folder, "db.healthy", 1)
    make_table(folder, "db.sick", 6)
    make_table(folder, "db.backing_off", 6)
    make_table(folder, "db.quarantined", 6, {"maintenance.retry.quarantine_after": "1"})
    real = build(load_config(config, {"ICEBERG_MAINT_HOME": str(folder)}))
    context = changed(real, engine=FullDisk)
    for name in ("db.backing_off", "db.quarantined"):
        ended = combine_outcomes(maintain(context.catalogs.find(name), Request(f"failing {name}"), context))
        assert ended.outcome is OutcomeStatus.FAILED
    return config


def why(config: Path, table: str) -> Any:
    result = iceberg_maint(["why", table, "--json"], config)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_why_of_a_healthy_table(config: Path) -> None:
    found = why(config, "db.healthy")
    assert (found["verdict"], found["reason"], found["last"]) == ("SKIP", "healthy", None)
    assert found["truth"] == (
        "The data is healthy: no threshold is crossed in any of 3 partitions. Housekeeping is due: remove_orphan_files."
    )
    assert found["change"].startswith("due once small_files")


def test_why_of_an_unhealthy_table(config: Path) -> None:
    found = why(config, "db.sick")
    assert (found["verdict"], found["reason"], found["last"]) == ("RUN", "small_files", None)
    assert found["truth"].startswith("Unhealthy: 3 of 3 partitions are due (")
    assert found["next"]["due_partitions"] == ["p=0", "p=1", "p=2"]
    crossed = [m for m in found["partitions"][0]["metrics"] if m["crossed"]]
    assert [(m["metric"], m["value"]) for m in crossed] == [("small_files", 6)]


def test_why_of_a_table_that_backs_off(config: Path) -> None:
    found = why(config, "db.backing_off")
    assert (found["verdict"], found["reason"]) == ("DEFER", "back_off")
    assert found["truth"].startswith("Backing off: 3 of 3 partitions wait until ")
    (history,) = {json.dumps(p["history"] | {"not_before_ms": 0}) for p in found["partitions"]}
    assert json.loads(history)["ineffective"] == 1
    assert "no space left on device" in json.loads(history)["reason"]
    assert found["last"]["outcome"] == "FAILED"
    assert found["next"]["until_ms"] == min(p["history"]["not_before_ms"] for p in found["partitions"])


def test_why_of_a_quarantined_table(config: Path) -> None:
    found = why(config, "db.quarantined")
    assert (found["verdict"], found["reason"]) == ("DEFER", "quarantined")
    assert found["truth"] == "Quarantined: 3 of 3 partitions wait for a person after repeated failures."
    assert "iceberg-maint release lake.db.quarantined" in found["change"]
    sources = {v["key"]: (v["value"], v["source"]) for v in found["policy"]}
    assert sources["retry.quarantine_after"] == (
        1,
        "table property maintenance.retry.quarantine_after",
    )


def test_why_for_a_person_says_the_same_truth(config: Path) -> None:
    result = iceberg_maint(["why", "db.quarantined"], config)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Quarantined: 3 of 3 partitions" in result.stdout
    assert "no space left on device" in result.stdout
