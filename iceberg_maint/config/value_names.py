"""Values of the configuration in the words of its file, not of Python."""

from __future__ import annotations

from datetime import date


def type_name(value: object) -> str:
    """What sort of value it is, to be read after "is"; the value itself may be a secret."""
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
    """The value as it would be written."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)
