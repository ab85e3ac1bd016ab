"""The table card as a function of measurements, decisions and stored outcomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.metrics import Measured, PartitionHealth, TableHealth
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import (
    Check,
    Decision,
    Finding,
    PartitionDecision,
    Reason,
    Severity,
    Verdict,
)
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.defs.assets.table_card import MAX_CHARACTERS, TableView, partition_label, table_card
from iceberg_maint.ports.stored import Report

pytestmark = pytest.mark.seconds

NOW_MS = 1_800_000_000_000
TABLE = TableId.parse("lake.db.t")
REWRITE = Operation.REWRITE_DATA_FILES
DONE = BatchOutcome(
    "b", (PartitionKey("day=1"),), OutcomeStatus.IMPROVED, Reason.SMALL_FILES, 8, 1, 800, 800, 0, 1.0, 1
)


def finding(value: float) -> Finding:
    return Finding(
        Check.SMALL_FILES, Severity.ERROR, Reason.SMALL_FILES, "small_files", value, 5,
        "rewrite_data_files.min_input_files",
    )  # fmt: skip


def view(due: int, healthy: int = 1) -> TableView:
    keys = [PartitionKey(f"day=2026-01-{n:02}") for n in range(1, due + healthy + 1)]
    health = PartitionHealth(data_files=8, small_files=8, size_histogram=(8, *[0] * 8))
    decisions = [
        PartitionDecision(k, Verdict.RUN, Reason.SMALL_FILES, (finding(8 + n),), score=n)
        for n, k in enumerate(keys[:due])
    ] + [PartitionDecision(k, Verdict.SKIP, Reason.HEALTHY) for k in keys[due:]]
    verdict, reason = (Verdict.RUN, Reason.SMALL_FILES) if due else (Verdict.SKIP, Reason.HEALTHY)
    measured = Measured(
        TABLE, "uuid", 1, 1, "mem://v1", TableHealth(), dict.fromkeys(keys, health), 1_000_000
    )
    return TableView(
        NOW_MS,
        measured,
        Policy(),
        [
            Decision(str(TABLE), REWRITE, verdict, reason, 1, tuple(decisions)),
            orphans(Verdict.SKIP, Reason.HEALTHY),
        ],
        [TableHistory(), TableHistory(last_done_ms=NOW_MS)],
        {REWRITE: Report(NOW_MS, DONE)},
    )


def orphans(verdict: Verdict, reason: Reason, *findings: Finding) -> Decision:
    unit = PartitionDecision(WHOLE_TABLE, verdict, reason, findings)
    return Decision(str(TABLE), Operation.REMOVE_ORPHAN_FILES, verdict, reason, 1, (unit,))


def test_card_of_an_unhealthy_table_names_its_operations_worst_partitions_sizes_and_proof() -> None:
    assert table_card(replace(view(7), before=(80, *[0] * 8), proof="Last proof: p.")) == (
        "**7 of 8 partitions are beyond a threshold.** State of 2027-01-15 08:00 UTC; the checks show the present.\n\n"
        "- `rewrite_data_files`: last 2027-01-15 08:00 (IMPROVED); next now\n"
        "- `remove_orphan_files`: last never; next 2027-01-22 08:00\n\n"
        "Worst partitions:\n"
        "- `day=2026-01-07`: 14 small_files, threshold 5\n"
        "- `day=2026-01-06`: 13 small_files, threshold 5\n"
        "- `day=2026-01-05`: 12 small_files, threshold 5\n"
        "- `day=2026-01-04`: 11 small_files, threshold 5\n"
        "- `day=2026-01-03`: 10 small_files, threshold 5\n\n"
        "Data files by size, before → now:\n"
        "- below 1 MiB: ████████████ 80 → ██████████ 64\n\n"
        "Last proof: p."
    )


def test_worst_partition_is_shown_with_the_metric_of_its_reason() -> None:
    sick = view(1)
    deletes = replace(finding(0.448), reason=Reason.DELETE_RATIO, metric="delete_ratio", threshold=0.3)
    decided = replace(
        sick.decisions[0].partitions[0], reason=Reason.DELETE_RATIO, findings=(finding(8), deletes)
    )
    decision = replace(sick.decisions[0], partitions=(decided,))
    card = table_card(replace(sick, decisions=[decision, sick.decisions[1]]))
    assert "Worst partitions:\n- `day=2026-01-01`: 0.448 delete_ratio, threshold 0.3\n" in card


def test_card_of_a_healthy_table_says_so_and_names_housekeeping_that_is_due() -> None:
    healthy = view(0, healthy=2)
    decisions = [healthy.decisions[0], orphans(Verdict.RUN, Reason.ORPHAN_FILES, finding(9))]
    assert table_card(replace(healthy, decisions=decisions)).startswith(
        "**Healthy:** every metric of 2 partitions is within its threshold. Due besides: `remove_orphan_files`. State"
    )


def test_housekeeping_that_the_policy_turns_off_is_not_due() -> None:
    healthy = view(0, healthy=2)
    decisions = [healthy.decisions[0], orphans(Verdict.SKIP, Reason.DISABLED, finding(9))]
    card = table_card(replace(healthy, decisions=decisions))
    assert "Due besides" not in card
    assert "- `remove_orphan_files`: last never; next never: the policy turns this operation off\n" in card


def test_blocker_of_an_operation_is_named_with_its_owner() -> None:
    held = TableHistory(lease_owner="run-7")
    sick = view(1)
    assert "; next after run run-7\n" in table_card(replace(sick, histories=[held, TableHistory()]))
    own = replace(sick, histories=[held, TableHistory()], run_id="run-7")
    assert "; next now, in this run\n" in table_card(own)
    # A conversion has nothing to do for the small files that the rewrite is due for.
    skipped = tuple(
        replace(p, verdict=Verdict.SKIP, reason=Reason.HEALTHY) for p in sick.decisions[0].partitions
    )
    conversion = replace(
        sick.decisions[0], operation=Operation.CONVERT_EQUALITY_DELETES,
        verdict=Verdict.DEFER, reason=Reason.LEASE_HELD, partitions=skipped,
    )  # fmt: skip
    beside = table_card(replace(own, decisions=[sick.decisions[0], conversion], histories=[held, held]))
    assert "- `convert_equality_deletes`: last never; next at a threshold\n" in beside
    assert "- `rewrite_data_files`: last 2027-01-15 08:00 (IMPROVED); next now, in this run\n" in beside
    # Another operation of the run has nothing to do.
    idle = table_card(replace(own, histories=[held, replace(held, last_done_ms=NOW_MS)]))
    assert "- `remove_orphan_files`: last never; next 2027-01-22 08:00\n" in idle
    paused = replace(sick.decisions[0], verdict=Verdict.DEFER, reason=Reason.PAUSED, evidence={"who": "anna"})
    card = table_card(replace(sick, decisions=[paused, sick.decisions[1]]))
    assert " The work is deferred by a pause by anna (to end it: iceberg-maint resume lake.db.t)." in card
    assert "; next after the end of a pause by anna" in card


def test_card_says_why_the_last_attempt_failed() -> None:
    sick = view(1)
    path = "file:/lake/db/t/data/day=2026-11-01/00000-5-a_b-00001.parquet"
    message = (
        f"ICM-101 lake.db.t: {path} cannot be read as Parquet: could not verify page integrity, CRC checksum "
        "verification failed for page_ordinal 0. Fix: restore or remove the file; nothing was committed."
    )
    failed = replace(DONE, outcome=OutcomeStatus.FAILED, reason=Reason.ERROR, message=message)
    card = table_card(replace(sick, last={REWRITE: Report(NOW_MS, failed)}))
    shown = (
        "ICM-101 lake.db.t: 00000-5-a\\_b-00001.parquet cannot be read as Parquet: could not verify page integrity, "
        "CRC checksum verification failed for page\\_ordinal 0. Fix: restore or remove the file; nothing was committed."
    )
    assert f"- `rewrite_data_files`: last 2027-01-15 08:00 (FAILED: {shown}); next" in card
    long = replace(failed, message=f"a*{'x' * 300}")
    card = table_card(replace(sick, last={REWRITE: Report(NOW_MS, long)}))
    assert f"(FAILED: a\\*{'x' * 257}…); next" in card
    # The note of an attempt that succeeded is no error.
    noted = replace(DONE, message="written by native")
    assert "(IMPROVED); next" in table_card(replace(sick, last={REWRITE: Report(NOW_MS, noted)}))


def test_card_is_never_longer_than_dagster_shows_at_once() -> None:
    long = view(9)
    keys = {
        f"long_name_of_a_field={'x' * 200}{n}": h for n, h in enumerate(long.measured.partitions.values())
    }
    measured = replace(long.measured, partitions={PartitionKey(k): h for k, h in keys.items()})
    decision = replace(
        long.decisions[0],
        partitions=tuple(
            PartitionDecision(PartitionKey(k), Verdict.RUN, Reason.SMALL_FILES, (finding(9),)) for k in keys
        ),
    )
    long = replace(long, measured=measured, decisions=[decision, long.decisions[1]], proof="p" * 300)
    card = table_card(long)
    assert len(card) <= MAX_CHARACTERS
    assert card.endswith("p" * 300)
    assert card.count("small_files, threshold") == 1
    assert len(table_card(replace(long, advice="a" * 2000))) == MAX_CHARACTERS


def test_partition_that_is_shortened_keeps_its_values() -> None:
    key = PartitionKey("departure_time_hour_month=2013-01/destination_airport=EWR")
    assert partition_label(key) == "departure_t…=2013-01/destination…=EWR"
    assert partition_label(PartitionKey("time_hour_month=2013-01")) == "time_hour_month=2013-01"
