"""Refusals: code, text and fix of each reason."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.report.refusals import _CODES, _FIXES, refusal

T = "lake.db.t"


def test_refusal_has_the_code_the_sentence_of_the_reason_and_a_fix() -> None:
    assert str(refusal(T, Reason.LEASE_HELD, None)) == (
        "ICM-109 another run works on the table. Fix: wait until that run ends."
    )


def test_fix_names_the_table() -> None:
    refused = refusal(T, Reason.APPROVAL_REQUIRED, None)
    assert refused is not None
    assert refused.fix == (
        "read 'iceberg-maint orphans scan lake.db.t'. If it is right, run 'iceberg-maint orphans trash lake.db.t "
        "--approve DIGEST'."
    )


@pytest.mark.parametrize("reason", _CODES, ids=lambda r: r.value)
def test_every_refusal_ends_its_sentences_with_a_full_stop(reason: Reason) -> None:
    refused = refusal(T, reason, None)
    assert refused is not None
    assert refused.message.endswith(".")
    assert refused.fix.endswith(".")


def test_every_code_has_a_fix() -> None:
    assert set(_FIXES) == set(_CODES)


def test_healthy_is_no_refusal() -> None:
    assert refusal(T, Reason.HEALTHY, None) is None
