"""The fields of Parquet's structs that this package reads, with their types (parquet-format's `parquet.thrift`)."""

from __future__ import annotations

from iceberg_maint.columnar.parquet.thrift import BINARY, FALSE, INTEGERS, STRUCT, TRUE, Form, ListOf

_FLAGS = (TRUE, FALSE)

_STATISTICS = Form(
    "statistics",
    {},
    {3: INTEGERS, 5: (BINARY,), 6: (BINARY,), 7: _FLAGS, 8: _FLAGS},
)
_ENCODING_COUNT = Form("encoding count", {1: INTEGERS, 2: INTEGERS, 3: INTEGERS})
_SIZES = Form("size statistics", {}, {1: INTEGERS, 2: ListOf(INTEGERS), 3: ListOf(INTEGERS)})
_COLUMN_METADATA = Form(
    "column metadata",
    {
        1: INTEGERS,
        2: ListOf(INTEGERS),
        3: ListOf((BINARY,)),
        4: INTEGERS,
        5: INTEGERS,
        6: INTEGERS,
        7: INTEGERS,
        9: INTEGERS,
    },
    {11: INTEGERS, 12: _STATISTICS, 13: ListOf((STRUCT,), _ENCODING_COUNT), 16: _SIZES},
)
COLUMN_INDEX = Form(
    "column index",
    {1: ListOf(_FLAGS), 2: ListOf((BINARY,)), 3: ListOf((BINARY,)), 4: INTEGERS},
    {5: ListOf(INTEGERS)},
)
OFFSET_INDEX = Form(
    "offset index",
    {1: ListOf((STRUCT,), Form("page location", {1: INTEGERS, 2: INTEGERS, 3: INTEGERS}))},
)
_CHUNK = Form(
    "column chunk",
    {},
    {3: _COLUMN_METADATA, 4: INTEGERS, 5: INTEGERS, 6: INTEGERS, 7: INTEGERS},
)
_SCHEMA = ListOf(
    (STRUCT,),
    Form(
        "schema element",
        {4: (BINARY,)},
        {**dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 9), INTEGERS), 10: (STRUCT,)},
    ),
)
START_OF_FOOTER = Form("footer", {1: INTEGERS, 2: _SCHEMA})
FOOTER = Form(
    "footer",
    {
        2: _SCHEMA,
        3: INTEGERS,
        4: ListOf((STRUCT,), Form("row group", {1: ListOf((STRUCT,), _CHUNK), 2: INTEGERS, 3: INTEGERS})),
    },
)
_DATA_PAGE = Form("data page", dict.fromkeys((1, 2, 3, 4), INTEGERS))
_DATA_PAGE_OF_VERSION_2 = Form("data page", {1: INTEGERS, 4: INTEGERS})
PAGE_HEADER = Form(
    "page header",
    {1: INTEGERS, 2: INTEGERS, 3: INTEGERS},
    {4: INTEGERS, 5: _DATA_PAGE, 8: _DATA_PAGE_OF_VERSION_2},
)
