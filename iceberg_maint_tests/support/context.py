"""Contexts of tests: each part that a test does not give does nothing, or raises what says that it is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from iceberg_maint.core.decisions.applicability import SPARK_4
from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.loop.context import (
    Context,
    EngineAccess,
    Observers,
    OwnProcess,
    Policies,
    SparkAccess,
    Storage,
)
from iceberg_maint.loop.fleet.catalogs import Catalogs
from iceberg_maint.ports.engine import CommitContext
from iceberg_maint.ports.observers import NO_AUDIT, NO_TELEMETRY


def no_spark(*_arguments: object) -> Any:
    raise RuntimeError("this context has no Spark")


def no_orphan_scan(_table: object) -> Any:
    raise RuntimeError("this context has no orphan scan")


def spark_access(**parts: Any) -> SparkAccess:
    """The Spark of a context, with these parts."""
    missing = dict.fromkeys(("session", "conf", "engine_of", "verifier"), no_spark)
    return SparkAccess(**{**missing, "memory": None, **parts})


def context_with(
    catalogs: Mapping[str, Any],
    ledger: Any,
    clock: Any,
    policy_for: Any,
    engine: Any = no_spark,
    orphan_files: Any = no_orphan_scan,
    **parts: Any,
) -> Context:
    """A context of these parts; the further ones are those of `changed`. `engine` makes the engine."""
    return changed(
        Context(
            Catalogs(catalogs, calls=lambda: 0),
            ledger,
            clock,
            Policies(policy_for, None),
            EngineAccess(engine, spark_access(), SPARK_4),
            Storage(orphan_files, lambda _state: None),
            Observers(NO_TELEMETRY, NO_AUDIT),
            OwnProcess(str, lambda error: error, lambda: None, ()),
        ),
        **parts,
    )


_PLACES = {
    "catalogs": "catalogs.adapters",
    "catalog_calls": "catalogs.calls",
    "policy_for": "policies.of_table",
    "fleet_budget": "policies.fleet_budget",
    "orphan_files": "storage.orphan_files",
    "store_now_ms": "storage.now_ms",
    "telemetry": "observers.telemetry",
    "audit": "observers.audit",
    "masked": "process.masked",
    "redacted_error": "process.redacted_error",
    "cpu_seconds": "process.cpu_seconds",
    "scratch_folders": "process.scratch_folders",
    "end_process": "process.end",
}


def changed(context: Context, **parts: Any) -> Context:
    """The context with other parts, by the names of `_PLACES`, of its fields or of the fields of its engine."""
    access = context.engine
    engine = {
        "make": parts.pop("engine", access),
        "spark": parts.pop("spark", access.spark),
        "row_types": parts.pop("row_types", access.row_types),
        "measures": parts.pop("measures", access.measures),
        "elsewhere": parts.pop("elsewhere", access.elsewhere),
    }
    if engine["make"] is not access or any(
        getattr(access, name) is not engine[name] for name in ("spark", "row_types", "measures", "elsewhere")
    ):
        context = replace(context, engine=EngineAccess(**engine))
    for name, part in parts.items():
        outer, _, inner = _PLACES.get(name, name).partition(".")
        whole = replace(getattr(context, outer), **{inner: part}) if inner else part
        context = replace(context, **{outer: whole})
    return context


def commit_context(
    token: str = "token",
    fence: int = 1,
    run_id: str = "run",
    max_tries: int = 3,
    lease_is_held: Callable[[], bool] = lambda: True,
    record_try: Callable[[int, str], None] = lambda _base, _location: None,
    retention: Callable[[str], Retention | None] = lambda _location: None,
) -> CommitContext:
    """The right to commit of a process that keeps its lease, in a catalog that does not check the base of a commit."""
    return CommitContext(
        token,
        fence,
        run_id,
        max_tries,
        lease_is_held,
        record_try,
        retention,
        checks_commit_base=False,
        publish_wait=lambda _pending: None,
        installation="",
    )
