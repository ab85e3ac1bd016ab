"""The component as a project loads it: from `defs.yaml`, with the tables that the other environment lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster.components.testing import create_defs_folder_sandbox

from iceberg_maint import __version__
from iceberg_maint.component import IcebergMaintenanceComponent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore:.*parse_obj_as.*:DeprecationWarning"
    ),  # Dagster reads its YAML with it
]

KEY = ["iceberg_maint", "lake", "db", "events"]
TABLES = ["lake.db.events", "lake.db.users", "lake.tmp.scratch"]


@pytest.fixture
def python(tmp_path: Path) -> Iterator[str]:
    """A program in the place of the other environment's Python, which lists three tables."""
    listed = json.dumps({"tables": [{"table": name} for name in TABLES], "unlisted_catalogs": []})
    program = tmp_path / "python"
    version = f"iceberg-maint, version {__version__}"
    program.write_text(
        f"#!/bin/sh\ncase $* in *--version) echo '{version}';; *) echo '{listed}';; esac\n", "utf-8"
    )
    program.chmod(0o755)
    first_load = DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)
    # A run of another test in this process may have left that of a run, which reads no tables.
    with pytest.MonkeyPatch.context() as patch, DefinitionsLoadContext.scoped(first_load):
        patch.setenv("DAGSTER_IS_DEV_CLI", "1")  # as `dg dev` does, reads the tables at the load
        yield str(program)


def load(python: str, **attributes: Any) -> dg.Definitions:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=IcebergMaintenanceComponent,
            defs_yaml_contents={
                "type": "iceberg_maint.component.IcebergMaintenanceComponent",
                "attributes": {"config": "iceberg_maint.yaml", "python": python, **attributes},
            },
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, definitions):
            definitions.resolve_asset_graph()
            return definitions


def tables(definitions: dg.Definitions) -> set[str]:
    names = {key.to_user_string() for key in definitions.resolve_all_asset_keys()}
    return {name for name in names if not name.endswith("__housekeeping")}


def test_component_of_two_lines_has_the_tables_and_a_sensor_that_is_on(python: str) -> None:
    definitions = load(python)
    assert tables(definitions) == {
        "iceberg_maint/lake/db/events",
        "iceberg_maint/lake/db/users",
        "iceberg_maint/lake/tmp/scratch",
    }
    [sensor] = definitions.sensors or ()
    assert isinstance(sensor, dg.AutomationConditionSensorDefinition)
    assert (sensor.name, sensor.default_status) == ("iceberg_maintenance", dg.DefaultSensorStatus.RUNNING)


def test_tables_are_chosen_by_patterns_and_keys_begin_with_the_prefix(python: str) -> None:
    definitions = load(python, tables=["lake.*"], exclude=["lake.tmp.*", "*.users"], key_prefix="care/of")
    assert tables(definitions) == {"care/of/lake/db/events"}


def test_without_automation_there_is_no_sensor(python: str) -> None:
    assert list(load(python, automation=False).sensors or ()) == []


def test_assets_are_upstream_of_the_maintenance_of_their_table(python: str) -> None:
    definitions = load(
        python, assets={"lake.db.events": ["raw/events", "raw/late_events"], "lake.db.users": "users"}
    )
    graph = definitions.resolve_asset_graph()
    assert graph.get(dg.AssetKey(KEY)).parent_keys == {
        dg.AssetKey(["raw", "events"]),
        dg.AssetKey(["raw", "late_events"]),
    }
    assert graph.get(dg.AssetKey([*KEY[:-1], "users"])).parent_keys == {dg.AssetKey("users")}


def test_mapping_to_an_asset_that_is_not_in_the_project_is_said_and_the_rest_loads(
    python: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert "iceberg_maint/lake/db/events" in tables(load(python, assets={"lake.db.events": "raw/event"}))
    assert (
        "ICM-100 assets maps lake.db.events to raw/event, which is no asset of the project. Fix: correct the key: its parts "
        "are separated by /."
    ) in caplog.messages


def test_entry_of_a_table_that_does_not_exist_yet_is_said_and_the_rest_loads(
    python: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(tables(load(python, assets={"lake.db.orders": "raw/orders"}))) == 3
    assert (
        "ICM-126 assets names lake.db.orders, which is no table of this component. Fix: correct the name; if the table is "
        "new, run dg utils refresh-defs-state when it exists."
    ) in caplog.messages


def test_patterns_that_choose_no_table_are_said(python: str, caplog: pytest.LogCaptureFixture) -> None:
    assert tables(load(python, tables=["lak.*"])) == set()
    assert "ICM-126 tables ['lak.*'] without exclude [] choose none of 3 tables" in caplog.text


def test_wait_below_zero_is_refused(python: str) -> None:
    with pytest.raises(Exception, match="Error while loading component") as error:
        load(python, wait_minutes=-5)
    assert "wait_minutes" in str(error.value.__cause__)


def test_components_of_two_configurations_keep_their_tables_apart() -> None:
    keys = [
        IcebergMaintenanceComponent(config=config).defs_state_config.key
        for config in ("/ci/defs/a/lake.yaml", "/srv/defs/a/lake.yaml", "/ci/defs/b/lake.yaml")
    ]
    assert keys[0] == keys[1] != keys[2], "another checkout finds the state that was refreshed"


def test_translation_changes_both_assets_and_their_checks(python: str) -> None:
    definitions = load(
        python,
        tables=["*.events"],
        translation={
            "key": "lakehouse/{{ props.table }}",
            "group_name": "lake_{{ props.namespace }}",
            "owners": ["team:lake"],
            "tags": {"tier": "gold"},
        },
    )
    graph = definitions.resolve_asset_graph()
    data, housekeeping = (dg.AssetKey(["lakehouse", f"events{end}"]) for end in ("", "__housekeeping"))
    assert set(graph.get_all_asset_keys()) == {data, housekeeping}
    assert graph.get(data).group_name == "lake_db"
    assert graph.get(housekeeping).group_name == "lake_db__housekeeping"
    assert graph.get(housekeeping).owners == ["team:lake"]
    assert graph.get(data).tags["tier"] == "gold"
    assert {key.asset_key for key in graph.asset_check_keys} == {data, housekeeping}
    assert graph.get(housekeeping).parent_keys == {data}


def test_broken_environment_is_named_at_the_refresh(python: str) -> None:
    with pytest.raises(Exception, match="Error while building definitions") as error:
        load(f"{python}-of-nobody")
    assert f"ICM-184 `python` of the component, {python}-of-nobody, cannot be started" in str(
        error.value.__cause__
    )


def test_unknown_key_is_refused(python: str) -> None:
    with pytest.raises(Exception, match="Error while loading component") as error:
        load(python, thresholds={"small_files": 3})
    assert "attributes.thresholds at" in str(error.value.__cause__)


def test_every_key_has_a_description_for_editors() -> None:
    model = IcebergMaintenanceComponent.get_model_cls()
    assert model is not None
    properties = model.model_json_schema()["properties"]
    assert list(properties)[:3] == ["config", "python", "tables"]
    assert [name for name, schema in properties.items() if "description" not in schema] == [
        "translation"  # of Dagster's own form
    ]


def test_scaffold_writes_what_loads(tmp_path: Path) -> None:
    from dagster.components.component_scaffolding import scaffold_object

    scaffold_object(
        tmp_path / "maintenance",
        "iceberg_maint.component.IcebergMaintenanceComponent",
        json.dumps({"config": "lake.yaml"}),
        "yaml",
        None,
    )
    assert yaml.safe_load((tmp_path / "maintenance" / "defs.yaml").read_text("utf-8")) == {
        "type": "iceberg_maint.component.IcebergMaintenanceComponent",
        "attributes": {"config": "lake.yaml"},
    }
