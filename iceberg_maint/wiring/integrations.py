"""Integrations: loaded by name where the settings ask for one. Nothing imports `iceberg_maint.integrations`; what the rest
of the program knows of an integration is here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iceberg_maint.config import Config
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.observers import NO_AUDIT, NO_TELEMETRY, Audit, Telemetry

SECTIONS: Mapping[str, str] = {
    "telemetry": "telemetry",
    "audit": "audit",
    "alerts": "alerts",
    "reports": "report",
}
"""Module of `iceberg_maint.integrations` → section of the configuration that asks for it."""


@dataclass(frozen=True, slots=True)
class WorkReport:
    """What one turn of a fleet's work did. `page` is Markdown, `counts` are numbers by name, such as `backlog_bytes`, `files` were written."""

    summary: str
    warnings: tuple[str, ...] = ()
    page: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetWork:
    """Work on the fleet as a whole, which a scheduler starts. `schedule` is a cron expression in UTC, the value of the setting
    `schedule_key`; None for work of seconds that is due every minute."""

    name: str
    description: str
    run: Callable[[], WorkReport]
    schedule: str | None = None
    schedule_key: str = ""


@dataclass(frozen=True, slots=True)
class Integration:
    """The interface: what an integration adds, by default nothing. Its module has the value as `INTEGRATION`. The functions
    open nothing, and raise ConfigurationError."""

    telemetry: Callable[[Config], Telemetry] = lambda _config: NO_TELEMETRY
    audit: Callable[[Config, Ledger], Audit] = lambda _config, _ledger: NO_AUDIT
    fleet_work: Callable[[Config, Context], FleetWork | None] = lambda _config, _context: None


def integration(config: Config, name: str) -> Integration:
    """The integration of this name, loaded; one that adds nothing if the configuration does not ask for it."""
    if getattr(config, SECTIONS[name]) is None:
        return Integration()
    found: Integration = importlib.import_module(f"iceberg_maint.integrations.{name}").INTEGRATION
    return found


def fleet_work(config: Config, context: Context) -> Iterator[FleetWork]:
    """The work of all integrations on the fleet."""
    for name in SECTIONS:
        if (work := integration(config, name).fleet_work(config, context)) is not None:
            yield work
