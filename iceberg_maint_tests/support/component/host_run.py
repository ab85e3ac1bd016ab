"""Runs in the environment of a project: loads its definitions, and executes what the arguments select. Prints the events as JSON.

    python host_run.py PROJECT observe | KEY [PARTITION …]

It imports nothing of the tests: the environment has Dagster and this package only.
"""

import json
import os
import sys
from pathlib import Path

import dagster as dg

KEY = dg.AssetKey(["iceberg_maint", "lake", "db", "events"])


def facts(entry: dg.EventLogEntry) -> dict[str, object] | None:
    """What the tests compare of an event."""
    event = entry.dagster_event
    if event is None:
        return {"kind": "log", "text": entry.user_message}
    data = event.event_specific_data
    match event.event_type_value:
        case "ASSET_MATERIALIZATION":
            materialization = data.materialization
            return {
                "kind": "materialization",
                "asset": materialization.asset_key.to_user_string(),
                "partition": materialization.partition,
                "metadata": {
                    name: value.value
                    for name, value in materialization.metadata.items()
                    if isinstance(value.value, int | str)
                },
            }
        case "ASSET_OBSERVATION":
            observation = data.asset_observation
            return {
                "kind": "observation",
                "partition": observation.partition,
                "labels": sorted(observation.metadata),
            }
        case "ASSET_CHECK_EVALUATION":
            return {
                "kind": "check",
                "asset": data.asset_key.to_user_string(),
                "name": data.check_name,
                "partition": data.partition,
                "passed": data.passed,
                "is_current": data.target_materialization_data is not None,
            }
        case "STEP_FAILURE":
            error = data.user_failure_data
            return {"kind": "failure", "text": error.description if error else data.error.message}
        case "RUN_CANCELED" | "PIPELINE_CANCELED":
            return {"kind": "canceled"}
    return None


def main(project: str, what: str, *partitions: str) -> None:
    """Executes one run on the instance of DAGSTER_HOME."""
    # As `dg dev` does, read the tables at the load.
    os.environ["DAGSTER_IS_DEV_CLI"] = "1"
    definitions = dg.load_from_defs_folder(path_within_project=Path(project) / "src" / "host")
    dg.Definitions.validate_loadable(definitions)
    job = definitions.resolve_implicit_global_asset_job_def()
    tags = {}
    if what == "observe":
        job = job.get_subset(
            asset_selection=set(), asset_check_selection={dg.AssetCheckKey(KEY, "no_progress")}
        )
    else:
        job = job.get_subset(asset_selection={dg.AssetKey.from_user_string(what)})
    if partitions:
        tags = {
            "dagster/asset_partition_range_start": partitions[0],
            "dagster/asset_partition_range_end": partitions[-1],
        }
    with dg.DagsterInstance.get() as instance:
        done = job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)
        events = [fact for entry in instance.all_logs(done.run_id) if (fact := facts(entry)) is not None]
        name = "iceberg/lake.db.events"
        document = {
            "success": done.success,
            "events": events,
            "partitions": list(instance.get_dynamic_partitions(name)),
            "materialized": sorted(instance.get_materialized_partitions(KEY)),
            "pools": {
                pool: instance.event_log_storage.get_concurrency_info(pool).slot_count
                for pool in instance.event_log_storage.get_concurrency_keys()
            },
        }
    print(json.dumps(document))


if __name__ == "__main__":
    main(*sys.argv[1:])
