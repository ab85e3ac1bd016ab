from __future__ import annotations

import os
from pathlib import Path

import pytest

from iceberg_maint.defs.names import INSTANCE, home_file
from iceberg_maint.demo.workspace import place, table_id
from iceberg_maint.errors import ConfigurationError

pytestmark = pytest.mark.slow


def test_prepared_folder_loads_as_configuration_of_one_sqlite_catalog(tmp_path: Path) -> None:
    where = place(tmp_path / "data")
    config = where.prepare(os.environ)
    assert list(config.catalogs) == ["lake"]
    assert config.catalogs["lake"].type == "jdbc"
    assert config.ledger_url == f"sqlite:///{tmp_path}/data/ledger.db"
    policy = config.policy_for(table_id("cdc_planes"))
    assert policy.policy.rewrite_data_files.equality_delete_max_age_seconds == 0
    assert (
        config.policy_for(table_id("weather")).policy.rewrite_data_files.equality_delete_max_age_seconds
        == 3600
    )


def test_dagster_home_has_the_settings_of_the_package(tmp_path: Path) -> None:
    where = place(tmp_path / "data")
    where.prepare(os.environ)
    assert (where.dagster_home / "dagster.yaml").read_text("utf-8") == home_file(INSTANCE)


def test_preparing_again_keeps_a_configuration_that_was_edited(tmp_path: Path) -> None:
    where = place(tmp_path / "data")
    where.prepare(os.environ)
    edited = where.config.read_text().replace("1g", "2g")
    where.config.write_text(edited)
    assert where.prepare(os.environ).spark.conf["spark.driver.memory"] == "2g"


def test_folder_with_something_else_in_it_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    where = place(tmp_path)
    with pytest.raises(ConfigurationError, match="holds no demo lake"):
        where.prepare(os.environ)
    where.clear()
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_place_that_can_be_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root, says in (
        (tmp_path / "file", f"{tmp_path}/file is no folder."),
        (tmp_path / "file" / "data", f"{tmp_path}/file/data cannot be created: Not a directory."),
        (Path("/proc/nope"), "/proc/nope cannot be created: No such file or directory."),
    ):
        with pytest.raises(ConfigurationError) as refusal:
            place(root).prepare(os.environ)
        assert (refusal.value.code, refusal.value.message) == ("ICM-100", says)


def test_clearing_removes_the_lake(tmp_path: Path) -> None:
    where = place(tmp_path / "data")
    where.prepare(os.environ)
    where.clear()
    assert not where.root.exists()
