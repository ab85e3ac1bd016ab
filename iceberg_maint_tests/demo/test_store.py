"""The demo on S3, without its tables."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from iceberg_maint.cli import iceberg_maint
from iceberg_maint.demo import store
from iceberg_maint.demo.duckdb_reader import DuckDBReader, scan
from iceberg_maint.demo.main import open_lake
from iceberg_maint.demo.store import (
    LOCAL,
    ORPHAN_AGE_SECONDS,
    ORPHANS,
    LakeStore,
    StoreName,
    _s3_store,
    open_store,
)
from iceberg_maint.demo.workspace import place
from iceberg_maint.engines.spark.session.jars import load_lock
from iceberg_maint.errors import ConfigurationError

pytestmark = pytest.mark.slow

URL = "http://127.0.0.1:1"
CREDENTIALS = {"DEMO_S3_KEY_ID": "key", "DEMO_S3_SECRET": "secret"}


def test_lake_on_s3_is_configured_with_its_server_its_jar_and_no_secret_in_the_file(tmp_path: Path) -> None:
    jar = tmp_path / "bundle.jar"
    jar.touch()
    where = place(tmp_path / "data")
    config = where.prepare(CREDENTIALS, _s3_store(URL, [jar]))
    lake = config.catalogs["lake"]
    assert (lake.type, lake.warehouse) == ("jdbc", "s3://lake/warehouse")
    properties = lake.pyiceberg_properties()
    assert properties["s3.endpoint"] == URL
    assert (properties["s3.access-key-id"], properties["s3.secret-access-key"]) == ("key", "secret")
    assert [str(j.path) for j in config.spark.jars] == [str(jar)]
    assert "DEMO_S3_SECRET" in where.config.read_text("utf-8")


def test_lake_of_a_rest_catalog_has_its_address_and_no_warehouse(tmp_path: Path) -> None:
    store = LakeStore(LOCAL.warehouse, LOCAL.add_orphans, rest_uri=URL)
    lake = place(tmp_path / "data").prepare({}, store).catalogs["lake"]
    assert (lake.type, lake.uri, lake.warehouse) == ("rest", URL, None)


def test_demo_on_s3_without_moto_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moto.moto_server.werkzeug_app", None)
    with pytest.raises(ConfigurationError) as refusal, open_store(StoreName.S3, {}):
        pass
    assert refusal.value.code == "ICM-100"
    assert "pip install 'moto[server]" in str(refusal.value)


def test_lake_on_s3_that_would_only_be_built_is_refused(tmp_path: Path) -> None:
    call = ["demo", "--data", str(tmp_path / "data"), "--store", "s3", "--build-only"]
    refused = CliRunner().invoke(iceberg_maint, call)
    assert refused.exit_code == 2
    assert "ICM-100 --build-only with --store s3 leaves no lake" in refused.output
    assert not (tmp_path / "data").exists()


def test_lake_on_s3_takes_no_folder_of_a_lake_that_stays(tmp_path: Path) -> None:
    where = place(tmp_path / "data")
    where.prepare({})
    where.built.touch()
    with pytest.raises(ConfigurationError, match="holds a demo lake on this machine's disk") as refusal:
        open_lake(where.root, Console(), store=_s3_store(URL, []))
    assert refusal.value.code == "ICM-100"
    assert where.built.exists()


def test_duckdb_reads_an_object_by_its_address_and_a_file_by_its_path() -> None:
    assert scan("s3://lake/a%20b/1.metadata.json") == "iceberg_scan('s3://lake/a%20b/1.metadata.json')"
    assert scan("file:///lake/a%20b/1.metadata.json") == "iceberg_scan('/lake/a b/1.metadata.json')"


def test_jar_of_s3_is_locked_for_every_spark_and_not_among_those_that_setup_fetches() -> None:
    for version in ("4.1", "3.5"):
        lock = load_lock(version)
        assert [j.artifact for j in lock.s3_jars] == ["iceberg-aws-bundle"]
        assert {j.version for j in lock.s3_jars} == {lock.iceberg_version}
        assert not set(lock.s3_jars) & set(lock.jars)


def test_orphans_on_s3_are_old_copies_that_duckdb_can_read(tmp_path: Path) -> None:
    with store.serving(store.moto_application()) as url:
        placed = _s3_store(url, [])
        reader: Any = DuckDBReader(placed.file_system)
        folder = "s3://lake/warehouse/demo/t"
        for number in range(ORPHANS + 1):
            reader._db.execute(
                f"copy (select {number} as n) to '{folder}/data/{number:02}.parquet' (format parquet)"
            )
        placed.add_orphans(SimpleNamespace(location=lambda: folder))
        objects = store.bucket_of_moto().keys
        ages = {key.rpartition("/")[2]: objects[key].last_modified for key in sorted(objects)}
        newest = max(ages.values())
        old = [name for name, at in ages.items() if (newest - at).total_seconds() > ORPHAN_AGE_SECONDS - 60]
        assert old == [f"{number:05}-0-killed-attempt-1.parquet" for number in range(ORPHANS)]
        (count,) = reader._db.execute(f"select sum(n) from '{folder}/data/00011-0-*.parquet'").fetchone()
        assert count == 11
        reader.close()
