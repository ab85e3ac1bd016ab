"""Names values of the configuration as its file writes them, not as Python does."""

from __future__ import annotations

from datetime import date


def type_name(value: object) -> str:
    """Returns the type of a value as words that follow "is". The value itself may be a secret."""
    if value is None:
        return "nothing"
    kinds: dict[type, str] = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a mapping",
        date: "a date",
    }
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), "of another kind")


def yaml_repr(value: object) -> str:
    """Returns the value as YAML would write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)
