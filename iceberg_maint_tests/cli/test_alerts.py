"""The commands `alerts`: what they print, and each failure once."""

from __future__ import annotations

import re

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint_tests.cli.conftest import Lake

POLICY = "defaults: {alerts: {owners: [team-sales]}}\n"
DOWN = "alerts: {receivers: {hook: {kind: webhook, url: 'http://127.0.0.1:9/x'}}}\n"


def quarantined(lake: Lake, configuration: str) -> None:
    lake.configure(configuration)
    lake("observe", "db.sick")
    measured = lake.context.ledger.health.get(TableId.parse("lake.db.sick"))
    history = PartitionHistory(ineffective=9, quarantined=True, reason="disk [full]")
    uuid = measured.table_uuid
    lake.context.ledger.health.set_partition_history(uuid, Operation.REWRITE_DATA_FILES, {"p=a": history})


def test_open_alert_is_printed_with_its_owner_and_its_action_in_80_columns(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    quarantined(lake, POLICY)
    assert lake("alerts", "send").exit_code == 0
    title, *rest = lake("alerts", "list").stdout.splitlines()
    assert re.fullmatch(r"lake.db.sick quarantine since \S+ \S+ UTC \(team-sales\)", title)
    assert rest == [
        "  1 partition in quarantine, such as p=a: disk [full].",
        "  Remove the cause that `iceberg-maint why lake.db.sick` names, then run",
        "    `iceberg-maint release lake.db.sick`.",
        "Not long enough for an alert yet: 2 conditions.",
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_receiver_that_failed_is_named_once_on_stderr(
    lake: Lake, caplog: pytest.LogCaptureFixture, *, as_json: bool
) -> None:
    quarantined(lake, POLICY + DOWN)
    result = lake("alerts", "send", *(["--json"] if as_json else []))
    assert result.exit_code == 1
    assert result.stderr.count("ICM-151 alerts: receiver hook did not take the messages") == 1
    assert caplog.records == []
    assert as_json or "ICM-151" not in result.stdout
