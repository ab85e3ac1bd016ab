"""`audit publish` on a real catalog, ledger and log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_maint.cli.root import main
from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import RefusedError
from iceberg_maint.integrations.audit.folder import LocalFolder
from iceberg_maint.integrations.audit.publish import publish_audit_log
from iceberg_maint.wiring.adapters import SystemClock, audit_log, audit_table, audited_tables, build
from iceberg_maint_tests.audit.test_log import UUID
from iceberg_maint_tests.audit.test_retention import AgingLedger, work
from iceberg_maint_tests.support.context import changed

NAME = TableId.parse("lake.ops.maintenance_audit")


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    SqlCatalog("lake", uri=catalog, warehouse=tmp_path.as_uri()).create_namespace("ops")
    work(LocalFolder(tmp_path / "audit" / UUID), AgingLedger(), range(1, 4))
    path = tmp_path / "iceberg_maint.yaml"
    path.write_text(
        f"catalogs: {{lake: {{type: jdbc, uri: '{catalog}', warehouse: '{tmp_path.as_uri()}'}}}}\n"
        f"ledger: 'sqlite:///{tmp_path}/ledger.db'\n"
        f"audit: {{location: '{tmp_path.as_uri()}/audit', table: {NAME}}}\n"
    )
    return path


def command(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int | str | None, dict[str, object]]:
    with pytest.raises(SystemExit) as ended:
        main(["audit", "publish", "--json", "--config", str(path)])
    return ended.value.code, json.loads(capsys.readouterr().out)


def test_publish_appends_each_entry_once(config_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = command(config_path, capsys), command(config_path, capsys)
    assert first == (0, {"table": str(NAME), "entries": 6, "appends": 1, "damaged": {}})
    assert second == (0, {"table": str(NAME), "entries": 0, "appends": 0, "damaged": {}})
    # It is a table of the lake like any other.
    assert build(load_config(config_path, {})).catalogs.tables() == (NAME,)


def test_publish_of_a_damaged_log_exits_1(config_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config_path.parent / "audit" / UUID / "000000000002.json").unlink()
    code, shown = command(config_path, capsys)
    assert (code, shown["entries"], shown["damaged"]) == (1, 1, {UUID: "the entries 2 to 2 are missing"})


@dataclass
class HastyClock(SystemClock):
    """Its waits are counted and take no time."""

    waited_seconds: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.waited_seconds += seconds


def test_publish_beside_a_run_that_maintains_the_audit_table_waits_and_is_refused(config_path: Path) -> None:
    config = load_config(config_path, {})
    context, table = build(config), audit_table(config)
    assert table is not None
    context = changed(context, clock=HastyClock())
    context.ledger.acquire_lease(table.open(), str(NAME), "another run", 600, 0)
    log = audit_log(config, context.ledger)
    with pytest.raises(RefusedError, match="another run works on the audit table") as refused:
        publish_audit_log(context, log, lambda: audited_tables(config), table, NAME)
    assert refused.value.code == "ICM-109"
    assert table.ends() == {}
