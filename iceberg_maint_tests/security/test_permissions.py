"""Files of our own are their owner's; what others may write or read is told."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint_tests.cli.conftest import NOW_MS, Lake, lake_of

pytestmark = pytest.mark.seconds


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    lake = lake_of(tmp_path, {"lake.db.t": {"1": 1}})
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(lake.context.ledger.registry, "now_ms", lambda: NOW_MS)
    lake.configure(f"ledger: sqlite:///{tmp_path}/ledger.db\n")
    return lake


def warnings(lake: Lake) -> list[str]:
    checks: list[dict[str, Any]] = lake.json("doctor", "--no-spark")["checks"]
    return [c["detail"] for c in checks if c["check"] == "permissions"]


def test_ledger_is_made_for_its_owner_only(tmp_path: Path) -> None:
    ledger = sql_ledger(f"sqlite:///{tmp_path}/home/ledger.db")
    ledger.registry.now_ms()
    files = list((tmp_path / "home").iterdir())
    assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    ledger.close()


@pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o644, False), (0o664, False), (0o646, True)])
def test_configuration_that_others_may_write_is_reported(lake: Lake, mode: int, told: bool) -> None:
    (lake.home / "maint.yaml").chmod(mode)
    assert (
        any("Every user of this machine can write" in w and "maint.yaml" in w for w in warnings(lake)) is told
    )


@pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o640, True), (0o604, True)])
def test_ledger_that_others_may_read_is_reported(lake: Lake, mode: int, told: bool) -> None:
    file = lake.home / "ledger.db"
    file.touch()
    file.chmod(mode)
    assert (
        any("Users other than its owner can open" in w and "ledger.db" in w for w in warnings(lake)) is told
    )
