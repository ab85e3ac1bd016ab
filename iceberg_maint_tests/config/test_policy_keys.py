"""One policy key at a time: types, limits, text forms. The keys come from the policy itself."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from iceberg_maint.config import policy_keys
from iceberg_maint.core.policy.data import OutputSpec, Policy, ProofLevel
from iceberg_maint.core.policy.data import policy_keys as all_keys
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.errors import ConfigurationError


def yaml(path: str, value: Any) -> object:
    return policy_keys.from_yaml(path, value, f"defaults.{path}", "defaults")


@pytest.mark.parametrize("key", all_keys(), ids=lambda k: k.path)
def test_built_in_value_of_every_key_is_accepted(key: Any) -> None:
    value = list(key.default) if isinstance(key.default, tuple) else key.default
    assert yaml(key.path, value) == key.default
    text = "null" if value is None else ",".join(value) if isinstance(value, list) else str(value)
    assert policy_keys.from_text(key.path, text, key.path) == key.default


@pytest.mark.parametrize("key", [k for k in all_keys() if k.minimum is not None], ids=lambda k: k.path)
def test_value_below_the_minimum_is_refused(key: Any) -> None:
    assert yaml(key.path, key.minimum) == key.minimum
    below = key.minimum - (0.001 if isinstance(key.minimum, float) else 1)
    with pytest.raises(
        ConfigurationError, match=rf"defaults.{key.path} is .*. It must be .*{key.minimum:.12g}"
    ):
        yaml(key.path, below)
    with pytest.raises(ConfigurationError):
        policy_keys.from_text(key.path, str(below), key.path)


@pytest.mark.parametrize("key", [k for k in all_keys() if k.maximum is not None], ids=lambda k: k.path)
def test_value_above_the_maximum_is_refused(key: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"to {key.maximum:.12g}"):
        yaml(key.path, key.maximum + 0.001)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("paused", "yes"),
        ("paused", 1),
        ("paused", None),
        ("mode", "ACT"),
        ("mode", None),
        ("max_run_seconds", "60"),
        ("max_run_seconds", 60.5),
        ("max_run_seconds", True),
        ("windows.cold_after_seconds", False),  # YAML's "off"
        ("windows.order", 1),
        ("rewrite_data_files.small_file_ratio", float("nan")),
        ("rewrite_data_files.delete_ratio_act", float("inf")),
        ("rewrite_data_files.min_input_files", None),
        ("rewrite_data_files.min_input_files", {"a": 1}),
        ("rewrite_data_files.min_input_files", object()),
        ("blackout_hours", "22:00-06:00"),
        ("blackout_hours", ["22-06"]),
        ("blackout_hours", ["24:00-06:00"]),
        ("blackout_hours", ["06:00-06:00"]),
        ("blackout_hours", ["22:00-06:00-07:00"]),
    ],
)
def test_value_of_another_type_is_refused(path: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"ICM-100 defaults.{path} is .*. It must be "):
        yaml(path, value)


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("paused", "true", True),
        ("max_run_seconds", " 60 ", 60),
        ("max_run_seconds", "NULL", None),
        ("rewrite_data_files.small_file_ratio", "0.5", 0.5),
        ("rewrite_data_files.proof", "footer", ProofLevel.FOOTER),
        ("rewrite_data_files.output_spec", "current", OutputSpec.CURRENT),
        ("blackout_hours", "22:00-06:00, 12:00-13:00", ("22:00-06:00", "12:00-13:00")),
        ("blackout_hours", "", ()),
    ],
)
def test_text_is_read_by_the_key_s_type(path: str, text: str, value: object) -> None:
    assert policy_keys.from_text(path, text, path) == value


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("paused", "perhaps"),
        ("paused", "null"),
        ("max_run_seconds", "1h"),
        ("mode", "Act"),
        ("blackout_hours", "x"),
    ],
)
def test_wrong_text_is_refused(path: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{path} is '{text}'. It must be"):
        policy_keys.from_text(path, text, path)


def test_build_puts_values_where_they_belong() -> None:
    policy = policy_keys.build({"paused": True, "retry.commit_tries": 9})
    assert (policy.paused, policy.retry.commit_tries) == (True, 9)
    assert policy.windows == Policy().windows


def test_rule_says_type_and_limits_in_words() -> None:
    assert policy_keys.rule("rewrite_data_files.min_input_files") == "a whole number of at least 2"
    assert policy_keys.rule("windows.cold_after_seconds") == "a whole number of at least 0, or null for off"
    assert policy_keys.rule("mode") == "advise or act"
    assert policy_keys.rule("rewrite_data_files.small_file_ratio") == "a number from 0 to 1"


def test_engines_locations_and_spellings_of_a_scan_are_set_in_the_configuration_only() -> None:
    configured = [f.name for f in fields(RemoveOrphanFilesPolicy) if f.metadata.get("configured_only")]
    assert configured == ["engines", "exclusive_prefixes", "equal_schemes", "equal_authorities"]
