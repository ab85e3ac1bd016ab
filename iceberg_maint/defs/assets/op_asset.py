"""An asset with its checks as one op that logs its own events.

No `from __future__ import annotations` here: Dagster reads the annotations of its functions.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

_ASSET = dg.Out(dg.Nothing, is_required=False)
_CHECK = dg.Out(dg.Any, is_required=False)
_DEPENDENCY = dg.In(dg.Nothing)
"""One object each for all ops: Dagster resolves the type of every new one."""


Metadata = Mapping[str, Any]
"""Of an event."""


@dataclass(frozen=True, slots=True)
class Op:
    """The op of an asset: its name, its pool, the resources that it needs, and what it calls. What that returns, if anything, is
    the output after which assets downstream begin in the same run. Without it Dagster skips them."""

    name: str
    pool: str
    execute: Callable[[dg.AssetExecutionContext], Metadata | None]
    resources: frozenset[str] = frozenset()


def build_op_asset(
    spec: dg.AssetSpec,
    check_specs: Sequence[dg.AssetCheckSpec],
    op: Op,
    backfill_policy: dg.BackfillPolicy | None = None,
) -> dg.AssetsDefinition:
    """The asset of `spec` with its checks. What the op calls logs every event itself.

    `dagster.multi_asset` builds the same from a function. For each asset it examines the function's signature and resolves
    its annotations, which takes more time than all the rest of the definition of a table.

    All outputs are optional, and the asset can be selected without its checks: only what was maintained is
    materialized.
    """

    def run_op(context: dg.AssetExecutionContext, _inputs: Mapping[str, object]) -> Iterator[Any]:
        metadata = op.execute(context)
        # Else yields nothing. Dagster would take a function that returns as a materialization of all that was requested.
        if metadata is not None:
            yield dg.Output(None, output, metadata=metadata)

    output = spec.key.to_python_identifier()
    checks = {check.get_python_identifier(): check for check in check_specs}
    inputs = {dep.asset_key.to_python_identifier(): dep.asset_key for dep in spec.deps}
    node = dg.OpDefinition(
        run_op,
        op.name,
        ins=dict.fromkeys(inputs, _DEPENDENCY),
        outs={output: _ASSET, **dict.fromkeys(checks, _CHECK)},
        required_resource_keys=set(op.resources),
        pool=op.pool,
    )
    return dg.AssetsDefinition(
        keys_by_input_name=inputs,
        keys_by_output_name={output: spec.key},
        node_def=node,
        can_subset=True,
        backfill_policy=backfill_policy,
        check_specs_by_output_name=checks,
        specs=[spec],
    )


def omit_missing_outputs(log: logging.Logger) -> None:
    """Omits Dagster's message on outputs without a result from the log. The run logs its events when they
    happen; an output would be an event at its end."""
    log.addFilter(lambda record: "did not yield or return expected outputs" not in record.getMessage())
