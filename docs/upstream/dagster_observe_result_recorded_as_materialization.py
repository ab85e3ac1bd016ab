"""An asset that returns an ObserveResult is recorded as materialized

Versions: Dagster 1.13.27.

Expected: an error, or an observation of the asset and no materialization.

Spec: "An object representing a successful observation of an asset. These can be returned from an @observable_source_asset
decorated function to pass metadata." (docstring of ObserveResult)

Actual: the object is stored by the IO manager as the asset's value, and the asset counts as materialized.
"""

import dagster
from dagster import DagsterEventType, DagsterInstance, ObserveResult, asset, materialize


@asset
def t():
    return ObserveResult(metadata={"files": 3})


def reproduce():
    result = materialize([t], raise_on_error=False, instance=DagsterInstance.ephemeral())
    kinds = {event.event_type for event in result.all_events}
    if DagsterEventType.ASSET_MATERIALIZATION not in kinds:
        return None
    return "the run has an ASSET_MATERIALIZATION event for an asset that was only observed"


print("Dagster", dagster.__version__)
fault = reproduce()
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
