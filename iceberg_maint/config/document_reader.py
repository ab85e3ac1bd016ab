"""Reads the configuration file: YAML, safely, in the shape of a `Document`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from iceberg_maint.config.document import Document
from iceberg_maint.config.document_errors import first_error
from iceberg_maint.errors import ConfigurationError


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a duplicate key, where YAML takes the last one, and an alias within its own anchor."""

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
            f"{name} has too many mappings or lists in each other. No setting has more than five levels.",
            "remove the brackets or the indentation that nothing needs.",
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
