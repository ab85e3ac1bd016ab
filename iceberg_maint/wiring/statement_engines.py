"""Engines that run statements: each a module of `iceberg_maint.engines`, loaded where the settings name it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from urllib.parse import urlsplit

from iceberg_maint import engines
from iceberg_maint.config.sections import is_loopback
from iceberg_maint.core.policy.engines import EngineSettings
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.ports.statement_engine import StatementEngine


def known_engines() -> tuple[str, ...]:
    """Returns the names of the engines that run statements, by name."""
    modules = pkgutil.iter_modules(engines.__path__)
    return tuple(sorted(m.name.replace("_", "-") for m in modules if not m.ispkg))


def statement_engines(settings: Mapping[str, EngineSettings]) -> Mapping[str, StatementEngine]:
    """Returns the engines of these settings, by name. Connects to nothing. Raises ConfigurationError ICM-100 for another name,
    and for an address that the engine does not take."""
    return {name: _engine(name, its) for name, its in settings.items()}


def _engine(name: str, settings: EngineSettings) -> StatementEngine:
    if name not in known_engines():
        known = ", ".join(known_engines())
        raise ConfigurationError("ICM-100", f"engines.{name} is unknown.", f"use one of {known}.")
    module = importlib.import_module(f"{engines.__name__}.{name.replace('-', '_')}")
    if settings.uri.partition(":")[0] not in module.SCHEMES:
        rule = " or ".join(f"{scheme}://" for scheme in module.SCHEMES)
        raise ConfigurationError(
            "ICM-100",
            f"engines.{name}.uri must begin with {rule}.",
            f"set engines.{name}.uri to such an address.",
        )
    parts = urlsplit(settings.uri)
    if (
        settings.password is not None
        and parts.scheme in module.CLEAR_SCHEMES
        and not is_loopback(str(parts.hostname))
    ):
        rule = " or ".join(f"{scheme}://" for scheme in module.SCHEMES if scheme not in module.CLEAR_SCHEMES)
        raise ConfigurationError(
            "ICM-100",
            f"engines.{name}.uri begins with {parts.scheme}://, which would send engines.{name}.password to {parts.hostname} in "
            "clear text.",
            f"set engines.{name}.uri to an address that begins with {rule}.",
        )
    engine: StatementEngine = module.statement_engine(settings)
    return engine
