"""Partition keys of any names, values and texts."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from iceberg_maint.core.model.partition_key import (
    PartitionSpec,
    decode_partition,
    encode_partition,
)
from iceberg_maint_tests.support.core.partition_keys import (
    STRINGS,
    UNSAFE,
    back,
    field,
    key_of,
    same,
    spec_of,
)
from iceberg_maint_tests.support.examples import examples

names = st.text(min_size=1, max_size=8)
texts = st.one_of(
    st.text(max_size=12), st.text(alphabet="./%=|,[]~_- spec", max_size=12), st.sampled_from(STRINGS)
)


@settings(max_examples=examples(400), deadline=None)
@given(
    fields=st.lists(
        st.tuples(names, st.one_of(st.none(), texts)), min_size=1, max_size=4, unique_by=lambda p: p[0]
    ),
    spec_id=st.integers(0, 3),
)
@example(fields=[("spec", "1"), ("x", None)], spec_id=0)
@example(fields=[("__all__", None)], spec_id=0)
def test_any_names_and_texts_come_back(fields: list[tuple[str, str | None]], spec_id: int) -> None:
    spec = PartitionSpec(spec_id, tuple(field(n) for n, _ in fields))
    values = tuple(v for _, v in fields)
    key = encode_partition(spec, values, 0)
    assert not UNSAFE & set(key)
    assert ".." not in key
    assert decode_partition(key, {spec_id: spec}, 0) == (spec_id, values)


@settings(max_examples=examples(300), deadline=None)
@given(
    a=st.tuples(st.one_of(st.none(), texts), st.one_of(st.none(), texts)),
    b=st.tuples(st.one_of(st.none(), texts), st.one_of(st.none(), texts)),
)
def test_different_tuples_have_different_keys(
    a: tuple[str | None, str | None], b: tuple[str | None, str | None]
) -> None:
    spec = spec_of(field("x"), field("y"))
    assert (encode_partition(spec, a, 0) == encode_partition(spec, b, 0)) == (a == b)


@settings(max_examples=examples(300), deadline=None)
@given(value=st.integers(-(2**63), 2**63 - 1), kind=st.sampled_from(["timestamp", "timestamptz_ns", "long"]))
def test_any_long_comes_back(value: int, kind: str) -> None:
    one = field("t", "identity", kind)
    assert back(one, key_of(one, value)) == value


@settings(max_examples=examples(300), deadline=None)
@given(value=st.integers(-(2**31), 2**31 - 1), transform=st.sampled_from(["year", "month", "day", "hour"]))
def test_any_ordinal_of_a_time_transform_comes_back(value: int, transform: str) -> None:
    one = field("t", transform, "date" if transform == "day" else "int")
    assert back(one, key_of(one, value)) == value


@settings(max_examples=examples(300), deadline=None)
@given(value=st.floats())
def test_any_double_comes_back(value: float) -> None:
    one = field("x", "identity", "double")
    assert same(back(one, key_of(one, value)), value)


@settings(max_examples=examples(300), deadline=None)
@given(key=st.text(max_size=20))
def test_decode_of_anything_is_a_value_error_or_exact(key: str) -> None:
    specs = {
        0: spec_of(field("f", "identity", "decimal(9, 2)")),
        1: spec_of(field("f", "identity", "date"), spec_id=1),
        2: PartitionSpec(2, ()),
    }
    try:
        spec_id, values = decode_partition(key, specs, 0)
    except ValueError:
        return
    assert encode_partition(specs[spec_id], values, 0) == key
