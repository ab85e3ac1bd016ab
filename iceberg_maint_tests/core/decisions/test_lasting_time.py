"""The time that keeps for how long a decision stays the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.decisions.waits import decided
from iceberg_maint_tests.support.examples import examples

EVER = 1 << 62


@pytest.mark.parametrize(
    ("rule", "first_ms", "last_ms"),
    [
        (lambda now: now < 1500, -EVER, 1499),
        (lambda now: now < 1000, 1000, EVER),
        (lambda now: now <= 1000, -EVER, 1000),
        (lambda now: now >= 1000.5, -EVER, 1000),
        (lambda now: (now - 400) / 1000 >= 1, -EVER, 1399),
        (lambda now: now - 400 > 599, 1000, EVER),
        (lambda now: now // 300 % 2, 900, 1199),
        (lambda now: now < 2000 and now < 1200, -EVER, 1199),
        (lambda _: True, -EVER, EVER),
    ],
)
def test_comparison_lasts_until_it_has_another_answer(
    rule: Callable[[int], object], first_ms: int, last_ms: int
) -> None:
    assert decided(rule, 1000) == (rule(1000), first_ms, last_ms)


@pytest.mark.parametrize(
    "rule", [lambda now: now + 1, str, lambda now: now == 5, bool, hash, lambda now: now % 7, float]
)
def test_what_else_is_asked_of_the_time_lasts_for_no_other_time(rule: Callable[[int], object]) -> None:
    assert decided(rule, 1000) == (rule(1000), 1000, 1000)


def test_comparison_with_infinity_lasts_for_no_other_time() -> None:
    assert decided(lambda now: now < float("inf"), 1000) == (True, 1000, 1000)


_numbers = st.integers(-50, 50) | st.floats(-50, 50) | st.sampled_from([2**60, 1e300, 0.1, 1e-9])
_rules = st.one_of(
    st.builds(lambda x: lambda now: now < x, _numbers),
    st.builds(lambda x: lambda now: now > x, _numbers),
    st.builds(lambda x: lambda now: now >= x, _numbers),
    st.builds(lambda x: lambda now: now <= x, _numbers),
    st.builds(
        lambda s, d, x: lambda now: (now - s) / d >= x, st.integers(-9, 9), st.integers(1, 7), _numbers
    ),
    st.builds(lambda s, d, x: lambda now: (now - s) / d < x, st.integers(-9, 9), st.integers(1, 7), _numbers),
    st.builds(lambda s, d: lambda now: (now - s) // d, st.integers(-9, 9), st.integers(1, 7)),
)


@given(st.lists(_rules, min_size=1, max_size=3), st.integers(-30, 30), st.integers(-30, 30))
@settings(max_examples=examples(2000))
def test_any_rules_have_the_same_answers_while_they_last(
    rules: list[Callable[[int], object]], now_ms: int, other_ms: int
) -> None:
    def ask(at_ms: int) -> list[object]:
        return [rule(at_ms) for rule in rules]

    answers, first_ms, last_ms = decided(ask, now_ms)
    assert answers == ask(now_ms)
    assert first_ms <= now_ms <= last_ms
    if first_ms <= other_ms <= last_ms:
        assert ask(other_ms) == answers
