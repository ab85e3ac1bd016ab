"""The section `audit`."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.config import load_config
from iceberg_maint.config.sections import AuditConfig
from iceberg_maint.errors import ConfigurationError

BASE = "catalogs: {lake: {type: jdbc, uri: 'sqlite:////c.db', warehouse: 'file:///w/h'}}\n"


def audit(tmp_path: Path, text: str) -> AuditConfig:
    path = tmp_path / "iceberg_maint.yaml"
    path.write_text(f"{BASE}audit: {{location: 'file:///var/audit', {text}}}\n")
    loaded = load_config(path, {}).audit
    assert loaded is not None
    return loaded


def test_audit_keeps_everything_by_default(tmp_path: Path) -> None:
    assert audit(tmp_path, "required: true").keep_days is None


def test_audit_days_are_read(tmp_path: Path) -> None:
    assert audit(tmp_path, "keep_days: 400").keep_days == 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keep_days: 0", r"audit\.keep_days is 0\. It must be at least 1"),
    ],
)
def test_audit_setting_that_is_none_is_an_error_with_its_fix(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        audit(tmp_path, text)
    assert refused.value.code == "ICM-100"
