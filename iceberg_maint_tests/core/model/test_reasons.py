"""The closed sets: each reason has a sentence and is produced somewhere; each policy key has its words."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import iceberg_maint
from iceberg_maint.core.model.reasons import SENTENCES, Decision, Reason, Verdict
from iceberg_maint.core.policy.data import Policy, policy_keys
from iceberg_maint_tests.support.core.values import due

PACKAGE = Path(iceberg_maint.__file__).parent


@pytest.mark.parametrize("reason", list(Reason), ids=lambda r: r.value)
def test_reason_has_a_sentence(reason: Reason) -> None:
    assert SENTENCES[reason]
    assert not SENTENCES[reason].endswith(".")


def test_sentences_are_for_reasons_only() -> None:
    assert set(SENTENCES) == set(Reason)


def test_unknown_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="'warm' is not a valid Reason"):
        Reason("warm")


@cache
def produced_reasons() -> frozenset[str]:
    modules = [p for room in ("core", "loop") for p in (PACKAGE / room).rglob("*.py")]
    texts = [p.read_text("utf-8") for p in modules if p.name != "reasons.py"]
    return frozenset(name for text in texts for name in re.findall(r"\bReason\.(\w+)", text))


@pytest.mark.parametrize("reason", list(Reason), ids=lambda r: r.value)
def test_reason_is_produced_by_core_or_the_loop(reason: Reason) -> None:
    assert reason.name in produced_reasons(), f"{reason} is never produced: remove it"


def test_due_are_the_partitions_to_run_in_order() -> None:
    waiting = due("p=b").__class__("p=b", Verdict.DEFER, Reason.RECENTLY_CHANGED)
    first, second = due("p=c"), due("p=a")
    found = Decision("t", "op", Verdict.RUN, Reason.SMALL_FILES, 1, (first, waiting, second))
    assert found.due() == (first, second)


def test_policy_keys_cover_every_field_once() -> None:
    paths = [k.path for k in policy_keys()]
    assert len(paths) == len(set(paths))
    assert {"mode", "paused", "windows.order", "rewrite_data_files.min_input_files"} <= set(paths)
    assert all(k.doc for k in policy_keys())


def test_policy_defaults_lie_within_their_limits() -> None:
    for key in policy_keys():
        if isinstance(key.default, (int, float)):
            assert key.minimum is None or key.default >= key.minimum, key.path
            assert key.maximum is None or key.default <= key.maximum, key.path


def test_built_in_policy_is_the_suggested_one() -> None:
    rewrite = Policy().rewrite_data_files
    assert (rewrite.small_file_ratio, rewrite.min_input_files) == (0.75, 5)
    assert (rewrite.delete_ratio_warn, rewrite.delete_ratio_act) == (0.1, 0.3)
    assert rewrite.equality_delete_max_age_seconds == 3600
    assert Policy().retry.quarantine_after == 4
