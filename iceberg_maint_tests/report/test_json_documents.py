"""The text of JSON documents."""

from __future__ import annotations

import json
from enum import StrEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.report.json_documents import render
from iceberg_maint_tests.support.examples import examples

pytestmark = pytest.mark.seconds


class Colour(StrEnum):
    RED = "red"


TEXTS = st.text(st.characters(codec="utf-8"))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    SCALARS | st.just(Colour.RED),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(TEXTS, inner),
)


@settings(max_examples=examples(100))
@given(st.dictionaries(TEXTS, VALUES))
def test_render_of_any_document_is_the_printable_text_of_the_standard_library(
    document: dict[str, object],
) -> None:
    text = render(document)
    assert json.loads(text) == json.loads(json.dumps(document))
    assert text.replace("\n", "").isprintable()
    standard = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    assert text == standard or not standard.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("é 日本 😀", '"é 日本 😀"'),
        ("\u202egpj", '"\\u202egpj"'),
        ("a\x9b2J\x7f", '"a\\u009b2J\\u007f"'),
        ("\U000e0041", '"\\udb40\\udc41"'),
        ("\ud800", '"\\ud800"'),
    ],
)
def test_render_of_characters_that_steer_a_terminal_escapes_them(value: str, text: str) -> None:
    assert render({"a": value, value: 1}) == f'{{\n  "a": {text},\n  {text}: 1\n}}'
    assert json.loads(render({"a": value})) == {"a": value}


def test_render_of_nested_values_indents_by_two_spaces() -> None:
    assert render({"a": [1, {"b": None}], "c": {}, "d": []}) == (
        '{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ],\n  "c": {},\n  "d": []\n}'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_render_of_a_number_that_json_lacks_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render({"value": value})
