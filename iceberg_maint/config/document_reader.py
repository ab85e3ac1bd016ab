"""Reads and checks a configuration file. An error names the path, the value and the rule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from iceberg_maint.config.document import ALERT_RECEIVERS, Document, section_at
from iceberg_maint.config.policy_keys import unknown_key_error
from iceberg_maint.config.value_text import type_name, yaml_repr
from iceberg_maint.errors import ConfigurationError


def first_error(errors: ValidationError) -> ConfigurationError:
    """Returns the first error of a document, ICM-100."""
    # An unknown key explains a missing one, so it is reported first.
    error = min(errors.errors(), key=lambda e: e["type"] != "extra_forbidden")
    parts = [str(p) for p in error["loc"] if p not in _UNION_BRANCHES]
    # pydantic adds the kind of a receiver after its name.
    written = parts[:3] + parts[4:] if parts[:2] == ["alerts", "receivers"] else parts
    where = ".".join(f"'{p}'" if "." in p else p for p in written)
    if error["type"] == "extra_forbidden":
        return unknown_key_error(where, parts[-1], list(section_at(parts[:-1]).model_fields))
    if error["type"] == "missing":
        return ConfigurationError("ICM-100", f"{where} is missing.", "see docs/reference/configuration.md.")
    if error["type"] in _KIND_ERRORS:
        return _kind_error(where, error["input"])
    is_reference = any(part in _UNION_BRANCHES for part in error["loc"])
    words = error.get("ctx", {}).get("expected", "text")
    rule = "text, or {env: NAME}" if is_reference else _rule(parts, error["type"], words)
    shown = type_name(error["input"]) if is_reference else _shown(error["input"], error["type"])
    return ConfigurationError("ICM-100", f"{where} is {shown}. It must be {rule}.", f"set {where} to {rule}.")


_KIND_ERRORS = ("union_tag_not_found", "union_tag_invalid", "model_attributes_type")
_WORD = re.compile(r"[a-z_]{1,16}")


def _kind_error(where: str, value: object) -> ConfigurationError:
    """The error of a receiver of alerts whose kind is missing or unknown."""
    kinds = f"{', '.join([*ALERT_RECEIVERS][:-1])} or {[*ALERT_RECEIVERS][-1]}"
    if not isinstance(value, dict):
        shown = (
            f"{where} is {_shown(value, 'model_type')}. It must be a mapping with the key 'kind': {kinds}."
        )
        return ConfigurationError("ICM-100", shown, f"set {where} to a mapping with the key 'kind'.")
    if "kind" not in value:
        return ConfigurationError("ICM-100", f"{where}.kind is missing.", f"set {where}.kind to {kinds}.")
    kind = value["kind"]
    shown = repr(kind) if isinstance(kind, str) and _WORD.fullmatch(kind) else type_name(kind)
    return ConfigurationError(
        "ICM-100", f"{where}.kind is {shown}. It must be {kinds}.", f"set {where}.kind to {kinds}."
    )


def _rule(parts: list[str], kind: str, words: str) -> str:
    """What the values of a setting must be: its own rule, else its type, else its words."""
    field = section_at(parts[:-1]).model_fields.get(parts[-1])
    own = None if field is None else field.description
    return own or _RULES.get(kind, words)


def _shown(value: object, kind: str) -> str:
    """The value as the message has it. Text may be a secret in the wrong place: it is shown only if a number or flag was
    expected, and if it is a short number with a unit or the word of a flag, or if one of some words was expected, and it
    is a word. Else the message has its type."""
    form = _WORD if kind == "literal_error" else _HARMLESS if kind in _SCALARS else None
    is_shown = isinstance(value, (bool, int, float)) or (
        form is not None and (value is None or (isinstance(value, str) and form.fullmatch(value) is not None))
    )
    return yaml_repr(value) if is_shown else type_name(value)


_SCALARS = ("int_type", "float_type", "bool_type", "int_from_float")
_UNITS = r"%|ns|us|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?|w|weeks?|bytes?|[kKMGT]?i?B|[kKMGT]"
_HARMLESS = re.compile(
    rf"[-+]?[0-9][0-9.,_]{{0,9}} ?({_UNITS})?(/[smhd])?|true|false|yes|no|on|off|null|none|", re.IGNORECASE
)
_RULES = {
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "list_type": "a list",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
_UNION_BRANCHES: set[Any] = {"str", "int", "float", "bool", "dict[str,any]", "dict[str,Any]"}


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a duplicate key, of which PyYAML takes the last, and an alias within its own anchor."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.deep_construct = True  # else PyYAML builds a value that contains itself

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[object] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int, float, bool)):
                if key in keys:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} is written twice", key_node.start_mark
                    )
                keys.add(key)
        result: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return result


def read_document(path: Path) -> Document:
    """Reads the file and checks its shape.

    Raises ConfigurationError ICM-100 if the file is missing, is not YAML, has an unknown key or a value
    of the wrong type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        reason = why.strerror if isinstance(why, OSError) else "is not UTF-8 text"
        raise ConfigurationError(
            "ICM-100",
            f"configuration file {path} cannot be read: {reason}.",
            "check the path of --config and the permissions of the file.",
        ) from why
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """Parses the document in `text`; messages call it `name`."""
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - _Loader is a SafeLoader
    except yaml.YAMLError as why:
        mark = getattr(why, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(why, "problem", None) or "malformed"
        raise ConfigurationError(
            "ICM-100", f"{name}{where} is not valid YAML: {problem}.", "correct the YAML at this place."
        ) from None
    except RecursionError:
        raise ConfigurationError(
            "ICM-100",
            f"{name} nests mappings or lists too deeply. No setting has more than five levels.",
            "remove needless brackets or indentation.",
        ) from None
    if not isinstance(data, dict):
        raise ConfigurationError(
            "ICM-100",
            f"{name} is empty or not a mapping. It must have at least the key 'catalogs'.",
            "see docs/reference/configuration.md.",
        )
    try:
        return Document.model_validate(data)
    except ValidationError as errors:
        raise first_error(errors) from None
