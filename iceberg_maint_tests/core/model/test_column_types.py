"""Columns of types that not every engine reads, by path, wherever they are nested."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.columns import base_type, uncommon_types


def field(name: str, kind: object) -> dict[str, object]:
    return {"id": 1, "name": name, "required": False, "type": kind}


def test_common_types_are_left_out() -> None:
    common = (
        "boolean int long float double date timestamp timestamptz string uuid binary fixed[16] decimal(9,2)"
    )
    fields = [field(kind, kind) for kind in (*common.split(), "decimal(38, 10)")]
    assert uncommon_types({"type": "struct", "fields": fields}) == {}


@pytest.mark.parametrize(
    "kind",
    [
        "time",
        "timestamp_ns",
        "timestamptz_ns",
        "unknown",
        "variant",
        "geometry",
        "geometry(srid:4326)",
        "geography(srid:4326, karney)",
        "a type of later",
    ],
)
def test_other_types_are_named_with_their_column(kind: str) -> None:
    assert uncommon_types({"type": "struct", "fields": [field("id", "int"), field("at", kind)]}) == {
        "at": kind
    }


def test_nested_columns_are_named_by_their_path() -> None:
    nested = {
        "type": "struct",
        "fields": [
            field("s", {"type": "struct", "fields": [field("x", "time")]}),
            field(
                "l", {"type": "list", "element-id": 2, "element": "timestamp_ns", "element-required": False}
            ),
            field(
                "m",
                {
                    "type": "map",
                    "key-id": 3,
                    "key": "time",
                    "value-id": 4,
                    "value": {
                        "type": "list",
                        "element-id": 5,
                        "element": {"type": "struct", "fields": [field("g", "geometry")]},
                    },
                },
            ),
        ],
    }
    assert uncommon_types(nested) == {
        "s.x": "time",
        "l.element": "timestamp_ns",
        "m.key": "time",
        "m.value.element.g": "geometry",
    }


def test_nested_type_of_later_is_named_by_its_kind() -> None:
    assert uncommon_types({"type": "struct", "fields": [field("v", {"type": "vector", "length": 3})]}) == {
        "v": "vector"
    }


def test_base_type_has_no_parameters() -> None:
    assert [base_type(t) for t in ("geometry(srid:4326)", "fixed[16]", "time")] == [
        "geometry",
        "fixed",
        "time",
    ]
