"""Bounds as stored, in the order Iceberg gives their columns."""

from __future__ import annotations

import struct

import pytest

from iceberg_maint.core.model.columns import is_orderable, is_outside, range_of


def i4(n: int) -> bytes:
    return struct.pack("<i", n)


def i8(n: int) -> bytes:
    return struct.pack("<q", n)


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "found"),
    [
        ("int", i4(-5), i4(7), (-5, 7)),
        ("long", i4(-5), i8(1 << 40), (-5, 1 << 40)),  # promoted since the file was written
        ("date", i4(-1), i4(20_000), (-1, 20_000)),
        ("timestamptz", i8(-1), i8(1), (-1, 1)),
        ("boolean", b"\0", b"\1", (0, 1)),
        ("float", struct.pack("<f", -0.5), struct.pack("<f", 0.5), (-0.5, 0.5)),
        ("double", struct.pack("<f", -0.5), struct.pack("<d", 0.25), (-0.5, 0.25)),
        ("double", struct.pack("<d", float("nan")), struct.pack("<d", 1), None),
        ("double", struct.pack("<d", 1), struct.pack("<d", float("nan")), None),
        ("double", b"\0\0\0", struct.pack("<d", 1), None),
        ("float", b"", b"", None),
        ("decimal(9, 2)", b"\xff", b"\x01\x00", (-1, 256)),
        ("string", b"a", "ü".encode(), (b"a", "ü".encode())),
        ("uuid", b"\0" * 16, b"\xff" * 16, (b"\0" * 16, b"\xff" * 16)),
        ("long", None, i8(1), None),
        ("long", i8(1), None, None),
        ("long", i8(2), i8(1), None),
    ],
)
def test_range_of_stored_bounds(kind: str, lower: bytes, upper: bytes, found: object) -> None:
    assert range_of(kind, lower, upper) == found


@pytest.mark.parametrize(
    ("lower", "upper", "point"),
    [
        ("https://a.org/xy", "https://a.org/xz", True),
        ("https://a.org/ay", "https://a.org/xz", False),
        ("https://a.ö/xyyy", "https://a.ö/xyyz", True),  # characters are counted, not bytes
        ("short", "shorz", False),
        ("https://a.org/xyz0", "https://a.org/xyz1", False),  # not truncated: these can be sorted
    ],
)
def test_range_of_text_cut_to_the_same_is_a_point(lower: str, upper: str, point: bool) -> None:
    low, high = lower.encode(), upper.encode()
    assert range_of("string", low, high) == ((low, low) if point else (low, high))


def test_range_of_binary_cut_to_the_same_is_a_point() -> None:
    assert range_of("binary", bytes(16), bytes(15) + b"\1") == (bytes(16), bytes(16))
    assert range_of("binary", bytes(15), bytes(14) + b"\1") == (bytes(15), bytes(14) + b"\1")


def test_types_without_an_order() -> None:
    known = ("long", "decimal(9, 2)", "fixed[4]", "string", "time", "timestamp_ns")
    assert [k for k in known if not is_orderable(k)] == []
    assert not any(map(is_orderable, ("variant", "geometry(srid:1)", "unknown", "")))


@pytest.mark.parametrize(
    ("kind", "value", "bounds", "expected"),
    [
        ("int", -1, (b"\x00\x00\x00\x00", None), True),
        ("long", 0, (b"\x00\x00\x00\x00", b"\x00\x00\x00\x00"), False),
        ("string", b"ab", (b"a", b"ac"), False),
        ("string", b"\xc3\xa4", (None, b"z"), True),
        ("decimal(9, 2)", 150, (b"\xff", b"\x00\x95"), True),
        ("timestamptz", 86_400_000_000, (b"\x01\x00\x00\x00", b"\x01\x00\x00\x00"), False),
        ("timestamptz", 8, (b"\x00" * 8, b"\x07" + b"\x00" * 7), True),
        ("uuid", b"\xff" * 16, (b"\x00" * 16, b"\x00" * 16), False),
    ],
)
def test_value_is_outside_bounds_that_all_readers_compare_alike(
    kind: str, value: int | bytes, bounds: tuple[bytes | None, bytes | None], expected: bool
) -> None:
    lower, upper = (b if b is None else b.hex() for b in bounds)
    assert is_outside(kind, value, (lower, upper)) is expected
