"""Refusals: code, text and fix of each reason."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ports.engine import Written
from iceberg_maint.report.deferrals import _CODES, _FIXES, refusal
from iceberg_maint_tests.cli.conftest import Lake

T = "lake.db.t"


def test_refusal_has_the_code_the_sentence_of_the_reason_and_a_fix() -> None:
    assert str(refusal(T, Reason.LEASE_HELD, None)) == (
        "ICM-109 another run works on the table. Fix: wait until that run ends."
    )


def test_fix_names_the_table() -> None:
    refused = refusal(T, Reason.APPROVAL_REQUIRED, None)
    assert refused is not None
    assert refused.fix == (
        "read `iceberg-maint orphans scan lake.db.t`. If it is right, run `iceberg-maint orphans trash lake.db.t "
        "--approve DIGEST`."
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


def test_run_that_lost_its_lease_says_which_and_names_no_other_run(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise FenceLostError(
            "the lease of 'run-1' on lake.db.sick (fence 1) is over: no owner holds fence 1."
        )

    monkeypatch.setattr(lake.context.ledger.work, "record_intent", lost)
    result = lake("run", "db.sick", "--operation", "rewrite_data_files")
    assert result.exit_code == 3
    assert "ICM-109 the lease of 'run-1' on lake.db.sick (fence 1) is over" in result.stderr
    assert "another run works on the table" not in result.stderr


def test_run_that_loses_its_lease_after_a_batch_says_so_on_every_screen(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    write = lake.engine.write

    def written(batch: Batch, policy: Policy) -> Written:
        if len(lake.engine.batches) == 1:
            raise FenceLostError(
                "the lease of 'run-1' on lake.db.sick (fence 1) is over: 'other' holds fence 2."
            )
        return write(batch, policy)

    monkeypatch.setattr(lake.engine, "write", written)
    result = lake("run", "db.sick", "--set", "windows.max_partitions_per_batch=1")
    lost = "ICM-109 the lease of 'run-1' on lake.db.sick (fence 1) is over: 'other' holds fence 2"
    first, last = result.stdout.splitlines()[0], lake("history", "db.sick").stdout
    assert (result.exit_code, lost in result.stderr, lost in first, "ICM-109" in last) == (
        3,
        True,
        True,
        True,
    )
    assert ("IMPROVED lease_held" in first, "IMPROVED lease_held" in last) == (True, True)
    assert "another run works on the table" not in result.output
