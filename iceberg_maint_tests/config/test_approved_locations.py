"""`catalogs.NAME.approved_locations`: how it is read and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.config import Config, load_config
from iceberg_maint.errors import ConfigurationError

CATALOG = "type: jdbc, uri: 'sqlite:////data/catalog.db', warehouse: 'file:///data/warehouse'"


def load(folder: Path, more: str) -> Config:
    file = folder / "maint.yaml"
    file.write_text(f"catalogs:\n  lake: {{{CATALOG}{more}}}\n", encoding="utf-8")
    return load_config(file, {}, "")


def test_without_the_setting_every_location_is_approved(tmp_path: Path) -> None:
    assert load(tmp_path, "").catalogs["lake"].approved_locations is None


def test_prefixes_are_kept_in_order(tmp_path: Path) -> None:
    config = load(tmp_path, ", approved_locations: ['s3://a/t', 'file:///data']")
    assert config.catalogs["lake"].approved_locations == ("s3://a/t", "file:///data")


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ("[]", "catalogs.lake.approved_locations is empty, so no location would be approved."),
        ("['data']", "catalogs.lake.approved_locations has 'data'. It must be an absolute URI or path"),
        ("['s3://a/../b']", "catalogs.lake.approved_locations has 's3://a/../b'."),
    ],
)
def test_value_that_approves_nothing_or_anything_is_refused(tmp_path: Path, value: str, fact: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, f", approved_locations: {value}")
    assert str(refused.value).startswith(f"ICM-100 {fact}")
