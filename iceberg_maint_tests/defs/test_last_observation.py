"""What Dagster has observed, in Dagster's own storage."""

from __future__ import annotations

import json

import dagster as dg
import pytest

from iceberg_maint.defs.automation.observations import (
    LastObservation,
    finished_runs,
    read_last_observation,
    read_last_observations,
    store_last_observation,
    store_run,
)
from iceberg_maint_tests.defs.conftest import World

pytestmark = pytest.mark.slow

KEY = dg.AssetKey(["lake", "db", "t"])
SEEN = LastObservation("v1.json", 5, 3, "a pause", "mode: advise", "q1")


def test_observation_is_read_as_stored_and_a_run_is_added_to_it(instance: dg.DagsterInstance) -> None:
    assert read_last_observation(instance, KEY) is None
    store_last_observation(instance, KEY, SEEN)
    assert read_last_observation(instance, KEY) == SEEN
    store_run(instance, KEY, "r1")
    assert read_last_observation(instance, KEY) == LastObservation(
        "v1.json", 5, 3, "a pause", "mode: advise", "q1", "r1"
    )


def test_run_on_a_table_that_was_never_observed_leaves_the_pointer_empty(
    instance: dg.DagsterInstance,
) -> None:
    store_run(instance, KEY, "r1")
    assert read_last_observation(instance, KEY) == LastObservation(run_id="r1")


def test_observation_of_another_version_is_read_by_the_fields_that_are_known(
    instance: dg.DagsterInstance,
) -> None:
    text = json.dumps({"pointer": "v1.json", "colour": "red"})
    instance.daemon_cursor_storage.set_cursor_values({"iceberg_maint/last_observation/lake/db/t": text})
    assert read_last_observation(instance, KEY) == LastObservation("v1.json")


def test_observations_of_many_tables_are_read_in_pieces(instance: dg.DagsterInstance) -> None:
    keys = [dg.AssetKey(["lake", "db", f"t{n}"]) for n in range(1001)]
    for key in (keys[0], keys[-1]):
        store_last_observation(instance, key, SEEN)
    assert read_last_observations(instance, keys) == {keys[0]: SEEN, keys[-1]: SEEN}


def test_run_that_dagster_no_longer_knows_has_finished(world: World) -> None:
    world.catalog.create("db.t")
    job = world.definitions.resolve_implicit_global_asset_job_def()
    runs = {
        status: world.instance.create_run_for_job(job, status=status).run_id
        for status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELED)
    }
    assert finished_runs(world.instance, [*runs.values(), "gone"]) == {
        runs[dg.DagsterRunStatus.CANCELED],
        "gone",
    }
    assert finished_runs(world.instance, []) == frozenset()
