"""The fields of Parquet's structs that this package reads, with their types (parquet-format's `parquet.thrift`).

Thrift's compact protocol names no struct, so damaged bytes may be a struct of other fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint.columnar.thrift import BINARY, FALSE, I16, I32, I64, LIST, STRUCT, TRUE
from iceberg_maint.columnar.thrift import Struct as Fields

_INTEGERS = (I16, I32, I64)
_FLAGS = (TRUE, FALSE)


@dataclass(frozen=True)
class ListOf:
    """A list of elements of one of these types, or of structs of one form."""

    kinds: tuple[int, ...]
    form: Form | None = None


@dataclass(frozen=True)
class Form:
    """The fields of a struct that are read: the types of a field, its list or its struct, by its number."""

    name: str
    required: Mapping[int, tuple[int, ...] | ListOf | Form]
    optional: Mapping[int, tuple[int, ...] | ListOf | Form] = field(default_factory=dict)


_STATISTICS = Form(
    "statistics",
    {},
    {3: _INTEGERS, 5: (BINARY,), 6: (BINARY,), 7: _FLAGS, 8: _FLAGS},
)
_ENCODING_COUNT = Form("encoding count", {1: _INTEGERS, 2: _INTEGERS, 3: _INTEGERS})
_SIZES = Form("size statistics", {}, {1: _INTEGERS})
_COLUMN_METADATA = Form(
    "column metadata",
    {
        1: _INTEGERS,
        2: ListOf(_INTEGERS),
        3: ListOf((BINARY,)),
        4: _INTEGERS,
        5: _INTEGERS,
        6: _INTEGERS,
        7: _INTEGERS,
        9: _INTEGERS,
    },
    {11: _INTEGERS, 12: _STATISTICS, 13: ListOf((STRUCT,), _ENCODING_COUNT), 16: _SIZES},
)
COLUMN_INDEX = Form(
    "column index",
    {1: ListOf(_FLAGS), 2: ListOf((BINARY,)), 3: ListOf((BINARY,)), 4: _INTEGERS},
    {5: ListOf(_INTEGERS)},
)
OFFSET_INDEX = Form(
    "offset index",
    {1: ListOf((STRUCT,), Form("page location", {1: _INTEGERS, 2: _INTEGERS, 3: _INTEGERS}))},
)
_CHUNK = Form(
    "column chunk",
    {},
    {3: _COLUMN_METADATA, 4: _INTEGERS, 5: _INTEGERS, 6: _INTEGERS, 7: _INTEGERS},
)
_SCHEMA = ListOf(
    (STRUCT,),
    Form(
        "schema element",
        {4: (BINARY,)},
        {**dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 9), _INTEGERS), 10: (STRUCT,)},
    ),
)
START_OF_FOOTER = Form("footer", {1: _INTEGERS, 2: _SCHEMA})
FOOTER = Form(
    "footer",
    {
        2: _SCHEMA,
        3: _INTEGERS,
        4: ListOf((STRUCT,), Form("row group", {1: ListOf((STRUCT,), _CHUNK), 2: _INTEGERS, 3: _INTEGERS})),
    },
)
_DATA_PAGE = Form("data page", {1: _INTEGERS, 2: _INTEGERS})
_DATA_PAGE_OF_VERSION_2 = Form("data page", {1: _INTEGERS, 4: _INTEGERS})
PAGE_HEADER = Form(
    "page header",
    {1: _INTEGERS, 2: _INTEGERS, 3: _INTEGERS},
    {4: _INTEGERS, 5: _DATA_PAGE, 8: _DATA_PAGE_OF_VERSION_2},
)


def form_difference(fields: Fields, form: Form) -> str:
    """Returns which field of a struct is missing or has another type than its form states, "" if none."""
    for fields_of_form, is_required in ((form.required, True), (form.optional, False)):
        for number, wanted in fields_of_form.items():
            if number in fields:
                if not _has_form(*fields[number], wanted):
                    return f"field {number} of the {form.name} has another type"
            elif is_required:
                return f"the {form.name} lacks field {number}"
    return ""


def _has_form(kind: int, value: Any, wanted: tuple[int, ...] | ListOf | Form) -> bool:
    if isinstance(wanted, tuple):
        return kind in wanted
    if isinstance(wanted, Form):
        return kind == STRUCT and not form_difference(value, wanted)
    if kind != LIST:
        return False
    of_elements, elements = value
    if not elements:
        return True
    if of_elements not in wanted.kinds:
        return False
    return wanted.form is None or not any(form_difference(e, wanted.form) for e in elements)
