"""Which pattern wins."""

from __future__ import annotations

import pytest

from iceberg_maint.config.policy_keys import keys_by_path
from iceberg_maint.config.policy_layers import Layer, Pattern, inherit, pattern_layers
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import ConfigurationError

TABLE = TableId.parse("lake.logs.web_2024")


def seconds(*patterns: str, only_catalog: bool = True) -> object:
    """The value of the pattern that wins; each one sets its position, starting at 1."""
    made = tuple(Pattern(text, {"max_run_seconds": at + 1}) for at, text in enumerate(patterns))
    return inherit(pattern_layers(TABLE, made, only_catalog)).policy.max_run_seconds


@pytest.mark.parametrize(
    "patterns",
    [
        ("lake.logs.web_2024", "lake.logs.web_202?"),
        ("lake.logs.web_2024", "lake.logs.*"),
        ("lake.logs.web_*", "lake.logs.*"),
        ("lake.logs.*", "lake.*"),
        ("lake.*.web_2024", "lake.logs.*"),
        ("logs.web_2024", "lake.logs.web_*"),
        ("logs.*", "lake.*"),
        ("*.web_2024", "*"),
        ("lake.logs.web_202?", "lake.logs.web_202*?"),
    ],
)
def test_more_specific_pattern_wins_whatever_the_order(patterns: tuple[str, str]) -> None:
    first, second = patterns
    assert seconds(first, second) == 1
    assert seconds(second, first) == 2


@pytest.mark.parametrize(
    "pattern", ["lake.logs", "logs", "web_2024", "LAKE.logs.*", "lake.logs.web", "other.*"]
)
def test_pattern_that_does_not_match_sets_nothing(pattern: str) -> None:
    assert seconds(pattern) == 3600


def test_catalog_may_only_be_left_out_when_there_is_one() -> None:
    assert seconds("logs.*") == 1
    assert seconds("logs.*", only_catalog=False) == 3600


@pytest.mark.parametrize(
    "patterns", [("lake.logs.web_2024", "logs.web_2024"), ("lake.logs.web_*", "lake.logs.*2024")]
)
def test_tie_on_one_key_is_refused(patterns: tuple[str, str]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"match lake\.logs\.web_2024 equally well and both set max_run_seconds"
    ):
        seconds(*patterns)


def test_tie_is_seen_past_a_third_pattern_of_the_same_rank() -> None:
    patterns = (
        Pattern("lake.logs.web_2*", {"max_run_seconds": 1}),
        Pattern("lake.logs.w*2024", {"paused": True}),
        Pattern("lake.logs.*_2024", {"max_run_seconds": 2}),
    )
    with pytest.raises(ConfigurationError, match="both set max_run_seconds"):
        pattern_layers(TABLE, patterns, only_catalog=True)


def test_tie_on_different_keys_is_none() -> None:
    patterns = (
        Pattern("lake.logs.web_*", {"paused": True}),
        Pattern("lake.logs.*2024", {"max_run_seconds": 5}),
    )
    policy = inherit(pattern_layers(TABLE, patterns, only_catalog=True)).policy
    assert (policy.paused, policy.max_run_seconds) == (True, 5)


def test_inherit_of_equal_layers_gives_one_policy_with_every_source() -> None:
    layers = [Layer("defaults", {"max_run_seconds": 7}), Layer("tables.'a'", {})]
    first, second = inherit(layers), inherit(list(reversed(layers)))
    assert first is second
    assert (first.policy.max_run_seconds, first.sources["max_run_seconds"]) == (7, "defaults")
    assert set(first.sources) == set(keys_by_path())
    other = inherit([Layer("command line", {"max_run_seconds": 7})])
    assert (other.policy, other.sources["max_run_seconds"]) == (first.policy, "command line")
