"""Stores that keep their objects as files."""

from __future__ import annotations

from pathlib import Path

import yaml

from iceberg_maint_tests.qualification.surroundings.stores import Store, file_of


def test_object_is_a_file_of_its_bucket_under_its_very_key() -> None:
    buckets = Path("/store")
    assert file_of("s3://lake/t/a%20b#c.parquet", buckets) == Path("/store/lake/t/a%20b#c.parquet")
    assert file_of("file:///t/a%20b.parquet", None) == Path("/t/a b.parquet")
    assert file_of("/t/a%20b.parquet", buckets) == Path("/t/a b.parquet")


def test_properties_keep_their_references_to_the_environment_in_yaml() -> None:
    store = Store("s3", "s3://lake", properties={"s3.region": "r", "s3.secret-access-key": "{env: SECRET}"})
    assert yaml.safe_load(store.properties_yaml()) == {
        "s3.region": "r",
        "s3.secret-access-key": {"env": "SECRET"},
    }
    assert yaml.safe_load(Store("local", "file:///").properties_yaml()) == {}
