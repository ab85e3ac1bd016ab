"""Combines layers of policy values into one policy, with the source of every value."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from iceberg_maint.config import policy_keys
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import ConfigurationError

PROPERTY_PREFIX = "maintenance."
"""Table properties with this prefix are policy keys."""
BUILT_IN = "built-in"
DEFAULTS = "defaults"
COMMAND_LINE = "command line"
_WILDCARDS = "*?["


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policy of one table. `sources` maps every key path to the source of its value."""

    policy: Policy
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Layer:
    """Values by key path from one source."""

    source: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A key of the `tables` section with its values by key path."""

    text: str
    values: Mapping[str, object]

    @property
    def source(self) -> str:
        """The name of the pattern in messages."""
        return f"tables.'{self.text}'"

    @property
    def is_exact(self) -> bool:
        """Whether the pattern names one table, without wildcards."""
        return not any(c in self.text for c in _WILDCARDS)

    def specificity(self, table: TableId, only_catalog: bool) -> tuple[bool, int, int] | None:
        """Returns how closely the pattern names the table; None if it does not match.

        Exact names rank first, then more literal characters, then fewer wildcards. The pattern may omit
        the catalog if there is only one.
        """
        full = str(table)
        if fnmatch.fnmatchcase(full, self.text):
            implied = 0
        elif only_catalog and fnmatch.fnmatchcase(".".join(table.in_catalog), self.text):
            implied = len(table.catalog) + 1
        else:
            return None
        wildcards = sum(self.text.count(c) for c in _WILDCARDS)
        literal = len(self.text.translate({ord(c): None for c in "*?[]!"})) + implied
        return (wildcards == 0, literal, -wildcards)


def inherit(layers: Iterable[Layer]) -> EffectivePolicy:
    """Returns the policy of all layers. Later layers override earlier ones. Tables with equal layers share one policy."""
    return _inherit(*((layer.source, tuple(layer.values.items())) for layer in layers if layer.values))


@lru_cache(maxsize=1024)
def _inherit(*layers: tuple[str, tuple[tuple[str, object], ...]]) -> EffectivePolicy:
    values: dict[str, object] = {}
    sources = dict.fromkeys(policy_keys.keys_by_path(), BUILT_IN)
    for source, of_layer in layers:
        for path, value in of_layer:
            values[path] = value
            sources[path] = source
    return EffectivePolicy(policy_keys.build(values), MappingProxyType(sources))


def pattern_layers(table: TableId, patterns: tuple[Pattern, ...], only_catalog: bool) -> list[Layer]:
    """Returns the layers of the matching patterns, the most specific last.

    Raises ConfigurationError ICM-100 if two equally specific patterns set the same key.
    """
    ranked = [
        (rank, pattern)
        for pattern in patterns
        if (rank := pattern.specificity(table, only_catalog)) is not None
    ]
    ranked.sort(key=lambda item: item[0])
    for (rank, first), (other_rank, second) in itertools.combinations(ranked, 2):
        shared = sorted(set(first.values) & set(second.values))
        if rank == other_rank and shared:
            raise ConfigurationError(
                "ICM-100",
                f"{first.source} and {second.source} match {table} equally well and both set {shared[0]}.",
                "make one of the patterns more specific.",
            )
    return [Layer(pattern.source, pattern.values) for _, pattern in ranked]


def property_layer(table: TableId, properties: Mapping[str, str]) -> list[Layer]:
    """Returns one layer per table property `maintenance.*`.

    Raises ConfigurationError ICM-100 for an unknown key, a wrong value, or a key that only the
    configuration may set.
    """
    return [
        Layer(f"table property {name}", _property_value(table, name, text))
        for name, text in sorted(properties.items())
        if name.startswith(PROPERTY_PREFIX)
    ]


def _property_value(table: TableId, name: str, text: str) -> dict[str, object]:
    path, where = name.removeprefix(PROPERTY_PREFIX), f"{table}: table property {name}"
    value = policy_keys.from_text(path, text, where)
    if policy_keys.keys_by_path()[path].configured_only:
        raise ConfigurationError(
            "ICM-100",
            f"{where} may be set in the configuration file only, because a writer to the table must not decide it.",
            f"remove the property; set {path} in the configuration file.",
        )
    return {path: value}
