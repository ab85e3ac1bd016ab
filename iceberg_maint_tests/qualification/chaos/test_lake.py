"""The configuration of the chaos lake, on each store."""

from __future__ import annotations

from pathlib import Path

from iceberg_maint.config import load_config
from iceberg_maint_tests.qualification.chaos.lake import Place
from iceberg_maint_tests.qualification.surroundings.stores import Store

S3 = Store(
    "versitygw",
    "s3://lake/warehouse",
    properties={"s3.region": "r", "s3.access-key-id": "{env: SURROUNDINGS_KEY_ID}"},
    secrets={"SURROUNDINGS_KEY_ID": "key"},
)


def test_lake_on_s3_has_the_store_in_both_catalogs_and_its_jar(tmp_path: Path) -> None:
    jar = tmp_path / "bundle.jar"
    jar.touch()
    place = Place(tmp_path)
    place.prepare(f"sqlite:///{tmp_path}", "http://127.0.0.1:1", S3, [jar])
    config = load_config(place.config, S3.secrets)
    assert config.catalogs["pg"].warehouse == "s3://lake/warehouse/pg"
    for catalog in config.catalogs.values():
        properties = catalog.pyiceberg_properties()
        assert (properties["s3.region"], properties["s3.access-key-id"]) == ("r", "key")
    assert [j.path for j in config.spark.jars] == [jar]


def test_local_lake_needs_neither(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.prepare(
        f"sqlite:///{tmp_path}", "http://127.0.0.1:1", Store("local", f"file://{tmp_path}/warehouse"), ()
    )
    config = load_config(place.config, {})
    assert config.catalogs["pg"].warehouse == f"file://{tmp_path}/warehouse/pg"
    assert config.spark.jars == ()
