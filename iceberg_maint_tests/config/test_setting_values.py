"""Settings of a wrong type: the message has the setting, the value, the rule and the fix. Rules agree with the checks of ranges."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from iceberg_maint.config.document import ALERT_RECEIVERS, RECEIVERS, Document
from iceberg_maint.config.load import check_text
from iceberg_maint.errors import ConfigurationError

LAKE: dict[str, Any] = {"type": "jdbc", "uri": "sqlite:////x/c.db", "warehouse": "file:///x/w"}
EMAIL = {"kind": "email", "host": "h", "sender": "a@b.c", "to": ["a@b.c"]}
SECTIONS: dict[str, dict[str, Any]] = {
    "catalogs.lake": {**LAKE, "read_timeout_seconds": 1},
    "spark": {},
    "telemetry": {},
    "telemetry.dogstatsd": {},
    "audit": {"location": "file:///x/audit"},
    "report": {},
    "fleet_budget": {"max_bytes": 1},
    "alerts": {},
    "alerts.receivers.mail": EMAIL,
    "dagster": {},
}
"""Every section with settings that have a rule, and what else it must have."""


def model(section: str) -> type[BaseModel]:
    parts = section.split(".")
    if parts[0] == "telemetry" and len(parts) > 1:
        return RECEIVERS[parts[1]]
    if parts[:2] == ["alerts", "receivers"]:
        return ALERT_RECEIVERS["email"]
    annotation: Any = Document.model_fields[parts[0]].annotation
    arguments = getattr(annotation, "__args__", ())
    return next((a for a in reversed(arguments) if isinstance(a, type) and a is not type(None)), annotation)


RULES = [
    (f"{section}.{name}", field.description)
    for section in SECTIONS
    for name, field in model(section).model_fields.items()
    if field.description
]


def load(setting: str, value: object) -> None:
    section, _, name = setting.rpartition(".")
    document: dict[str, Any] = {"catalogs": {"lake": dict(LAKE)}, "report": {"run_hour_price": 1.0}}
    place = document
    for part in section.split("."):
        place = place.setdefault(part, {})
    place |= SECTIONS[section] | {name: value}
    check_text(json.dumps(document), Path("/x/maint.yaml"), {})


def refusal(setting: str, value: object) -> str:
    with pytest.raises(ConfigurationError) as why:
        load(setting, value)
    return str(why.value)


def test_every_number_of_the_document_has_a_rule() -> None:
    numbers = [
        f"{section}.{name}"
        for section in SECTIONS
        for name, field in model(section).model_fields.items()
        if {"int", "float"} & set(re.findall(r"\w+", str(field.annotation)))
        and "str" not in str(field.annotation)
    ]
    assert len(numbers) == 15
    assert numbers == [setting for setting, _ in RULES if setting != "fleet_budget.period"]


@pytest.mark.parametrize(("setting", "rule"), RULES)
def test_value_of_a_wrong_type_is_named_with_the_rule_and_the_fix(setting: str, rule: str) -> None:
    wrong = 2.5 if rule.startswith("a whole") else True
    expected = f"{setting} is {json.dumps(wrong)}. It must be {rule}. Fix: set {setting} to {rule}."
    assert refusal(setting, wrong) == f"ICM-100 {expected}"


@pytest.mark.parametrize(("setting", "rule"), [r for r in RULES if r[0] != "fleet_budget.period"])
def test_rule_has_the_limits_that_are_checked(setting: str, rule: str) -> None:
    whole = rule.startswith("a whole")
    numbers = [float(n.replace(",", "")) for n in re.findall(r"[0-9][0-9.,]*[0-9]|[0-9]", rule)]
    least, *most = numbers
    step = 1 if whole else 0.05

    def value(number: float) -> float:
        return int(number) if whole else number

    if "above" in rule:
        assert "must be" in refusal(setting, value(least))
        load(setting, value(least + step))
    else:
        assert "must be" in refusal(setting, value(least - step)).lower()
        load(setting, value(least))
    for greatest in most:
        assert "must be" in refusal(setting, value(greatest + step)).lower()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Yes", "'Yes'"),
        ("-1,000 MiB", "'-1,000 MiB'"),
        ("", "''"),
        ("many", "text"),
        ("swordfish", "text"),
        ("4711secret", "text"),
        ("0123456789abcdefghi", "text"),
        ("5s", "'5s'"),
        ("2.5 hours", "'2.5 hours'"),
        (None, "null"),
        ("hunter2", "text"),
        ("sk-abc/def", "text"),
        ([1], "a list"),
        ({"env": "X"}, "a mapping"),
    ],
)
def test_text_is_shown_only_where_it_is_no_secret(value: object, shown: str) -> None:
    assert refusal("catalogs.lake.read_concurrency", value).startswith(
        f"ICM-100 catalogs.lake.read_concurrency is {shown}. It must be a whole number from 1 to 64."
    )


def test_setting_that_may_hold_a_secret_shows_no_value() -> None:
    with pytest.raises(ConfigurationError, match=r"catalogs\.lake\.uri is a list\. It must be text, or"):
        load("catalogs.lake.uri", ["hunter2"])


@pytest.mark.parametrize(
    ("value", "shown"), [("sometimes", "'sometimes'"), ("Always", "text"), (True, "true")]
)
def test_setting_of_a_few_words_is_refused_with_them(value: object, shown: str) -> None:
    assert refusal("spark.start", value) == (
        f"ICM-100 spark.start is {shown}. It must be 'always' or 'when_needed'. Fix: set spark.start to 'always' or 'when_needed'."
    )
