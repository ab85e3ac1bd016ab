"""A runless check evaluation of a partition can be reported once only

Versions: Dagster 1.13.27, SQLite and PostgreSQL storage.

Expected: `DagsterInstance.report_runless_asset_event` records every evaluation of a check, those of a partition included.

Spec: "Record an event log entry related to assets that does not belong to a Dagster run" (docstring of
report_runless_asset_event)

Actual: the second evaluation of one check and partition violates a unique index over asset, check, run and partition: all
evaluations without a run have the empty run id.
"""

import dagster
from dagster import AssetCheckEvaluation, AssetKey, DagsterInstance
from sqlalchemy.exc import IntegrityError


def reproduce():
    with DagsterInstance.ephemeral() as instance:
        for passed in (False, True):
            evaluation = AssetCheckEvaluation(
                AssetKey("t"), "small_files", passed, {}, partition="2026-01-01"
            )
            try:
                instance.report_runless_asset_event(evaluation)
            except IntegrityError as error:
                return f"the evaluation passed={passed} is refused: {str(error).splitlines()[0]}"
    return None


print("Dagster", dagster.__version__)
fault = reproduce()
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
