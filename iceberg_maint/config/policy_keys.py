"""Policy keys at the boundary: values from YAML or text, each checked by pydantic.

The types and limits come from `core.policy`; nothing about a key is defined twice.
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from iceberg_maint.config.value_text import yaml_repr
from iceberg_maint.core.policy.data import Policy, PolicyKey, policy_keys
from iceberg_maint.errors import ConfigurationError

_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


@dataclass(frozen=True, slots=True)
class KeyType:
    """The check of a key's values. `rule` describes it in words."""

    key: PolicyKey
    adapter: TypeAdapter[Any]
    rule: str
    is_list: bool


@cache
def keys_by_path() -> Mapping[str, PolicyKey]:
    """Returns every policy key by its path."""
    return {key.path: key for key in policy_keys()}


@cache
def sections() -> tuple[str, ...]:
    """Returns the names of the policy's sections."""
    return tuple(dict.fromkeys(k.section for k in policy_keys() if k.section))


def flatten(document: object, where: str) -> dict[str, object]:
    """Returns checked values by key path of a policy that is a YAML mapping at `where`.

    Raises ConfigurationError ICM-100, with the path, for an unknown key, for a value of the wrong type or
    beyond its limit, and for a key written twice, with dots and nested.
    """
    values: dict[str, object] = {}
    for name, value in _mapping(document, where).items():
        if name not in sections():
            _refuse_twice(name, values, where)
            values[name] = from_yaml(name, value, f"{where}.{name}", where)
            continue
        section = f"{where}.{name}"
        for inner, inner_value in _mapping(value, section).items():
            path = f"{name}.{inner}"
            _refuse_twice(path, values, where)
            values[path] = from_yaml(path, inner_value, f"{section}.{inner}", section)
    return values


def _refuse_twice(path: str, values: Mapping[str, object], where: str) -> None:
    if path in values:
        raise ConfigurationError(
            "ICM-100", f"{where}.{path} is written twice, with dots and nested.", "remove one of the two."
        )


def from_yaml(path: str, value: object, where: str, parent: str) -> object:
    """Returns the checked value of one key. Types are not coerced."""
    kind = _key_type_at(path, where, parent)
    try:
        text = json.dumps(value)
    except TypeError:
        raise _wrong(kind, where, value) from None
    return _checked(kind, where, value, lambda: kind.adapter.validate_json(text, strict=True))


def from_text(path: str, text: str, where: str) -> object:
    """Returns the checked value of one key written as text: a table property or a command-line option.

    `null` means off. Commas separate the items of a list.
    """
    kind = _key_type_at(path, where, where.removesuffix(path).rstrip("."))
    if text.strip().lower() == "null":
        value: object = None
    elif kind.is_list:
        value = tuple(part.strip() for part in text.split(",") if part.strip())
    else:
        value = text.strip()
    return _checked(kind, where, text, lambda: kind.adapter.validate_python(value))


def build(values: Mapping[str, object]) -> Policy:
    """Returns the policy with these values by key path; other keys have the built-in values."""
    policy = Policy()
    nested: dict[str, dict[str, Any]] = {}
    top: dict[str, Any] = {}
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        if section:
            nested.setdefault(section, {})[name] = value
        else:
            top[name] = value
    for section, parts in nested.items():
        top[section] = replace(getattr(policy, section), **parts)
    return replace(policy, **top)


def unknown_key_error(where: str, name: str, known: typing.Iterable[str]) -> ConfigurationError:
    """Returns the error for an unknown key, with the nearest known one."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f". Did you mean {close[0]}?" if close else "."
    return ConfigurationError(
        "ICM-100", f"{where} is unknown{hint}", "see docs/reference/configuration.md for all keys."
    )


def _key_type_at(path: str, where: str, parent: str) -> KeyType:
    if path in keys_by_path():
        return _key_type(path)
    section, _, name = path.rpartition(".")
    siblings = [k.name for k in policy_keys() if (k.section or "") == section]
    others = [] if section else [*sections()]
    if section and section not in sections():
        raise unknown_key_error(where, section, sections())
    if not difflib.get_close_matches(name, [*siblings, *others], n=1, cutoff=0.5):
        # The key may belong to another section.
        for key in policy_keys():
            if key.name == name:
                raise ConfigurationError(
                    "ICM-100",
                    f"{where} is unknown. Did you mean {key.path}?",
                    f"move it below {key.section}." if key.section else f"move it out of {parent}.",
                )
    raise unknown_key_error(where, name, [*siblings, *others])


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            "ICM-100",
            f"{where} is {yaml_repr(value)}. It must be a mapping of policy keys.",
            "indent the keys of the section below its name.",
        )
    return {str(k): v for k, v in value.items()}


def _checked(kind: KeyType, where: str, shown: object, validate: typing.Callable[[], object]) -> object:
    try:
        value = validate()
    except ValidationError:
        raise _wrong(kind, where, shown) from None
    if kind.key.name == "blackout_hours" and isinstance(value, tuple):
        for window in value:
            start, _, end = str(window).partition("-")
            if not (_CLOCK.fullmatch(start) and _CLOCK.fullmatch(end)) or start == end:
                raise _wrong(kind, where, window)
    return value


def _wrong(kind: KeyType, where: str, value: object) -> ConfigurationError:
    return ConfigurationError(
        "ICM-100", f"{where} is {yaml_repr(value)}. It must be {kind.rule}.", f"set it to {kind.rule}."
    )


@cache
def _key_type(path: str) -> KeyType:
    """The check of one key. Each is built at its first use: all 92 take a tenth of the start of a command."""
    key = keys_by_path()[path]
    owner = Policy if key.section is None else typing.get_type_hints(Policy)[key.section]
    hint = typing.get_type_hints(owner)[key.name]
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    (base,) = (o for o in options if o is not type(None))
    constraints: dict[str, Any] = {"ge": key.minimum, "le": key.maximum}
    if base is float:
        constraints["allow_inf_nan"] = False
    limits = {k: v for k, v in constraints.items() if v is not None}
    annotated: Any = Annotated[base, Field(**limits)] if limits else base
    optional = type(None) in options
    adapter: TypeAdapter[Any] = TypeAdapter(annotated | None if optional else annotated)
    is_list = typing.get_origin(base) is tuple
    return KeyType(key, adapter, _rule(key, base, optional=optional, is_list=is_list), is_list)


def _rule(key: PolicyKey, base: Any, *, optional: bool, is_list: bool) -> str:
    if is_list:
        (item, _) = typing.get_args(base)
        clock = key.name == "blackout_hours"
        words = "a list of times of day in UTC as HH:MM-HH:MM" if clock else "a list of names"
        if issubclass(item, StrEnum):
            words = f"a list of {', '.join(member.value for member in item)}"
    elif isinstance(base, type) and issubclass(base, StrEnum):
        words = " or ".join(member.value for member in base)
    else:
        words = {bool: "true or false", int: "a whole number", float: "a number"}[base]
    if key.minimum is not None and key.maximum is not None:
        words += f" from {key.minimum:.12g} to {key.maximum:.12g}"
    elif key.minimum is not None:
        words += f" of at least {key.minimum:.12g}"
    off = ", or null" if key.unset else ", or null for off"
    return words + (off if optional else "")


def rule(path: str) -> str:
    """Returns the rule for the values of a key, in words."""
    return _key_type(path).rule
