"""Section `engines`: engines elsewhere that run statements, and the lists of the policy that name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from iceberg_maint.config.alerts import secret_reference
from iceberg_maint.config.document import EngineSection
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.core.policy.engines import EngineSettings
from iceberg_maint.core.policy.housekeeping import OWN_ENGINE
from iceberg_maint.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_SECONDS = 604_800


def engine_settings(name: str, section: EngineSection, resolver: Resolver) -> EngineSettings:
    """Returns the checked settings of an engine. Raises ConfigurationError ICM-100, ICM-118."""
    where = f"engines.{name}"
    uri, user = resolver.text(section.uri, f"{where}.uri"), resolver.text(section.user, f"{where}.user")
    parts = urlsplit(uri)
    if not parts.scheme or not parts.hostname or not uri.isascii() or not uri.isprintable() or " " in uri:
        raise _error(f"{where}.uri", "an address with a scheme and a host")
    if not re.fullmatch(r"[A-Za-z0-9_.@-]+", user):
        raise _error(f"{where}.user", "a name of letters, digits, '_', '.', '@' and '-'")
    for catalog in section.catalogs.values():
        if not _NAME.fullmatch(catalog):
            raise _error(
                f"{where}.catalogs", "a mapping of our catalogs to names of ASCII letters, digits and '_'"
            )
    if not 1 <= section.timeout_seconds <= _LONGEST_SECONDS:
        raise _error(f"{where}.timeout_seconds", "a number from 1 to 604,800")
    password = None
    if section.password is not None:
        password = secret_reference(section.password, f"{where}.password", resolver)
    return EngineSettings(uri.rstrip("/"), user, password, dict(section.catalogs), section.timeout_seconds)


def check_named_engines(engines: Iterable[str], policies: Mapping[str, Mapping[str, object]]) -> None:
    """Raises ConfigurationError ICM-100 for a policy, by the place of its keys, that names an engine which is not configured,
    names one twice, or names none."""
    known = {OWN_ENGINE, *engines}
    for where, values in policies.items():
        for path, names in values.items():
            if not path.endswith(".engines") or not isinstance(names, tuple):
                continue
            if unknown := [n for n in names if n not in known]:
                raise ConfigurationError(
                    "ICM-100",
                    f"{where}.{path} names the engine {unknown[0]}, which is not configured.",
                    f"add engines.{unknown[0]} with its uri, or remove {unknown[0]}.",
                )
            if not names or len(set(names)) < len(names):
                raise _error(f"{where}.{path}", f"a list of {', '.join(sorted(known))}, each at most once")


def _error(path: str, rule: str) -> ConfigurationError:
    return ConfigurationError("ICM-100", f"{path} must be {rule}.", f"set {path} to {rule}.")
