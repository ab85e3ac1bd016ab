"""The search for canaries finds them: else nothing found would prove nothing."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import quote

import pytest

from iceberg_maint.config import load_config
from iceberg_maint_tests.security.canaries import (
    LEDGER,
    all_canaries,
    configuration,
    environment,
    files_below,
    found_in,
)

pytestmark = pytest.mark.seconds


@pytest.mark.parametrize(
    "text", [LEDGER, quote(LEDGER, safe=""), quote(LEDGER), base64.b64encode(LEDGER.encode()).decode()]
)
def test_secret_is_found_in_whatever_form_it_stands(tmp_path: Path, text: str) -> None:
    (tmp_path / "below").mkdir()
    file = tmp_path / "below" / "file"
    file.write_text(f"x{text}y")
    assert found_in(files_below(tmp_path), [LEDGER]) == [(str(file), LEDGER)]
    assert found_in({"clean": b"nothing"}, [LEDGER]) == []


def test_every_secret_of_the_configuration_is_known_to_be_masked(tmp_path: Path) -> None:
    file = tmp_path / "maint.yaml"
    file.write_text(configuration(tmp_path))
    address = "postgresql://u:{password}@h/d"
    config = load_config(file, environment(address, address), "")
    assert len(all_canaries()) == len(set(all_canaries().values())) >= 12
    assert set(all_canaries().values()) <= config.secrets
