"""What holds the due work of a table: one text for every screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.report.deferrals import deferral, refusal
from iceberg_maint_tests.support.core.values import measured_of

PUBLISH = {"pending": "branch audit", "pending_since_ms": "1"}
OTHER = {"foreign_maintainer": "trino"}


@pytest.mark.parametrize(
    ("verdict", "reason", "evidence", "text"),
    [
        (Verdict.RUN, Reason.SMALL_FILES, {}, ""),
        (Verdict.SKIP, Reason.ADVISE, {}, "mode: advise"),
        (Verdict.DEFER, Reason.PAUSED, {"by": "policy"}, "policy key paused: true"),
        (
            Verdict.DEFER,
            Reason.PAUSED,
            {"by": "operator", "who": "anna", "note": "migration"},
            "a pause by anna: migration (to end it: iceberg-maint resume lake.db.t)",
        ),
        (Verdict.DEFER, Reason.BLACKOUT, {"window": "22:00-06:00"}, "the blackout hours 22:00-06:00"),
        (Verdict.DEFER, Reason.PENDING_PUBLISH, PUBLISH, "branch audit, not yet published"),
        (
            Verdict.REFUSE,
            Reason.UNSUPPORTED_TYPE,
            {"columns": "s.at (geometry)"},
            "column s.at (geometry), which no operation on data can read (ICM-134)",
        ),
        (
            Verdict.REFUSE,
            Reason.UNSUPPORTED_TYPE,
            {"columns": "at (time)", "read_by": "columnar"},
            "column at (time), which only rewrite_data_files with the strategy columnar can read (ICM-134)",
        ),
        (Verdict.REFUSE, Reason.FOREIGN_MAINTAINER, OTHER, "another maintainer, trino (ICM-109)"),
        (Verdict.SKIP, Reason.FOREIGN_MAINTAINER, OTHER, ""),
        (Verdict.DEFER, Reason.LEASE_HELD, {"owner": "run-1"}, ""),
    ],
)
def test_decision_gives_its_hold_as_one_text(
    verdict: Verdict, reason: Reason, evidence: Mapping[str, str], text: str
) -> None:
    decision = Decision("lake.db.t", Operation.REWRITE_DATA_FILES, verdict, reason, 1, (), evidence)
    assert deferral(decision) == text


def test_refusal_for_a_type_is_none_without_a_column_of_such_a_type() -> None:
    """Files that no reader can read have the same reason."""
    plain = measured_of({})
    geometry = replace(plain, uncommon_types={"s.at": "geometry"})
    assert refusal("lake.db.t", Reason.UNSUPPORTED_TYPE, plain) is None
    assert str(refusal("lake.db.t", Reason.UNSUPPORTED_TYPE, geometry)).startswith(
        "ICM-134 no operation on data can read column s.at (geometry). Fix: "
    )
