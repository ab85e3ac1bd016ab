"""The proof certificate as a function of stored records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.outcomes.verification import Fingerprint, Proof
from iceberg_maint.report.certificate import (
    CertificateStatus,
    GateVerdict,
    Subject,
    certificate,
    certificate_document,
    certificate_markdown,
    certificates,
    gate_text,
    proof_text,
)

NOW_MS = 1_800_000_000_000
ONE = Fingerprint(7, ((1, 2), (3, 4)))
TWO = Fingerprint(5, ((10, 20), (30, 40)))
REWRITTEN = BatchOutcome(
    batch_id="b1",
    partitions=(PartitionKey("day=1"),),
    outcome=OutcomeStatus.IMPROVED,
    reason=Reason.SMALL_FILES,
    input_files=10,
    output_files=1,
    input_bytes=1000,
    output_bytes=900,
    delete_files_removed=1,
    seconds=4.0,
    snapshot_before=1,
    snapshot_after=2,
    commit_tries=1,
    proof=Proof("full", True, 10, 7, 3, ONE.text()),
)
SECOND = replace(
    REWRITTEN,
    batch_id="b2",
    partitions=(PartitionKey("day=2"),),
    snapshot_before=1,
    snapshot_after=3,
    commit_tries=2,
    proof=Proof("full", True, 5, 5, 0, TWO.text()),
)


def record(
    *batches: BatchOutcome, operation: Operation = Operation.REWRITE_DATA_FILES, **more: object
) -> Record:
    outcome = OperationOutcome(
        "lake.db.t", operation, OutcomeStatus.IMPROVED, Reason.SMALL_FILES, 1, 3, batches=batches
    )
    base = Record(
        record_id="r1",
        run_id="cli-host-a-12-0123abcd",
        table="lake.db.t",
        table_uuid="u1",
        operation=operation,
        started_ms=NOW_MS,
        ended_ms=NOW_MS + 9_000,
        plan_id="p1",
        policy_digest="d",
        versions={"spark": "4.1.4"},
        outcome=outcome,
    )
    return replace(base, **more)  # type: ignore[arg-type]


def failed(reason: Reason, message: str = "", tries: int = 0) -> BatchOutcome:
    return replace(
        REWRITTEN,
        batch_id="b9",
        outcome=OutcomeStatus.FAILED,
        reason=reason,
        snapshot_after=None,
        proof=None,
        commit_tries=tries,
        message=message,
    )


def test_rows_and_fingerprints_of_two_commits_are_added() -> None:
    proved = certificate([record(REWRITTEN, SECOND)])
    assert proved.status is CertificateStatus.PROVED
    assert (proved.rows_in, proved.rows_out, proved.rows_deleted) == (15, 12, 3)
    assert proved.fingerprint == (ONE + TWO).text()
    assert (proved.snapshot_before, proved.snapshot_after) == (1, 3)
    assert proved.sentence() == "2 commits proved: 15 rows in = 12 rows out + 3 deleted."
    assert [proof_text(b) for b in proved.batches] == [
        "10 rows in = 7 out + 3 deleted; full equal; written by native",
        "5 rows in = 5 out + 0 deleted; full equal; written by native",
    ]
    assert [gate_text(b) for b in proved.batches] == ["passed", "passed at try 2"]
    assert [b.attest for b in proved.batches] == [
        "iceberg-maint attest lake.db.t --snapshot 2",
        "iceberg-maint attest lake.db.t --snapshot 3",
    ]


@pytest.mark.parametrize(
    ("algorithm", "strategy"), [("sha256-files-1", "columnar"), ("xxh64x2-1", "native"), (None, "")]
)
def test_certificate_names_the_strategy_that_wrote_the_rows(algorithm: str | None, strategy: str) -> None:
    fingerprint = None if algorithm is None else replace(ONE, algorithm=algorithm).text()
    written = replace(REWRITTEN, proof=Proof("full", True, 10, 7, 3, fingerprint))
    [batch] = certificate([record(written)]).batches
    assert batch.strategy == strategy
    by = f"; written by {strategy}" if strategy else ""
    assert proof_text(batch) == f"10 rows in = 7 out + 3 deleted; full equal{by}"


def test_certificate_names_what_an_independent_decoder_compared() -> None:
    sample = "7 rows of row group 0 of file:/t/a.parquet, 3 of 3 columns"
    sampled = replace(REWRITTEN, proof=Proof("full", True, 10, 7, 3, sample=sample))
    [batch] = certificate([record(sampled)]).batches
    assert proof_text(batch) == f"10 rows in = 7 out + 3 deleted; full equal; sample: {sample}"


def test_commit_with_footers_only_leaves_the_sum_without_a_fingerprint() -> None:
    footers = replace(SECOND, proof=Proof("footer", True, 5, 5, 0))
    assert certificate([record(REWRITTEN, footers)]).fingerprint is None


@pytest.mark.parametrize(
    ("batch", "status", "gate", "text"),
    [
        (failed(Reason.GATE_REFUSED, "live_count: 3", 1), "PARTIAL", "REFUSED", "refused: live_count: 3"),
        (failed(Reason.STALE, "gone", 1), "PROVED", "STALE", "plan out of date: gone"),
        (failed(Reason.STALE, "gone"), "PROVED", "NOT_ASKED", "not asked: stale"),
        (failed(Reason.ERROR, "x"), "PARTIAL", "NOT_ASKED", "not asked: error"),
        (
            replace(failed(Reason.UNKNOWN_COMMIT), outcome=OutcomeStatus.UNKNOWN),
            "UNPROVED",
            "PASSED",
            "passed",
        ),
        (replace(SECOND, proof=None), "UNPROVED", "PASSED", "passed at try 2"),
    ],
)
def test_batch_beside_a_proved_one_decides_the_status(
    batch: BatchOutcome, status: str, gate: str, text: str
) -> None:
    proved = certificate([record(REWRITTEN, batch)])
    assert proved.status is CertificateStatus(status)
    assert proved.batches[1].gate is GateVerdict(gate)
    assert gate_text(proved.batches[1]) == text


def test_run_without_a_commit_certifies_no_commit() -> None:
    proved = certificate([record(failed(Reason.CONFLICT))])
    assert proved.status is CertificateStatus.NO_COMMIT
    assert proved.sentence() == "Nothing was committed. 1 batch ended without a commit."


def test_conversion_is_proved_by_positions_and_not_added_to_the_rows() -> None:
    converted = replace(REWRITTEN, proof=Proof("full", True, 10, 4, 3, ONE.text()))
    proved = certificate([record(converted, operation=Operation.CONVERT_EQUALITY_DELETES)])
    assert (proved.rows_in, proved.fingerprint) == (0, None)
    assert proved.batches[0].subject is Subject.POSITIONS
    assert proof_text(proved.batches[0]) == "4 positions written, 3 of them newly deleted rows; full equal"
    assert proved.sentence() == "1 commit proved: no data file was rewritten."


def test_orphan_pass_commits_nothing_and_has_no_command() -> None:
    swept = replace(REWRITTEN, proof=None, snapshot_after=None, commit_tries=0)
    proved = certificate([record(swept, operation=Operation.REMOVE_ORPHAN_FILES)])
    assert proved.status is CertificateStatus.NO_COMMIT
    assert gate_text(proved.batches[0]) == "not asked: moves files, commits nothing"
    assert proved.batches[0].attest is None
    assert proved.sentence() == "Nothing was committed."


def test_commit_settled_after_its_run_replaces_the_unknown_one() -> None:
    unknown = replace(REWRITTEN, outcome=OutcomeStatus.UNKNOWN, snapshot_after=None)
    proved = certificate([record(unknown), record(REWRITTEN, record_id="r2")])
    assert [b.outcome for b in proved.batches] == [REWRITTEN]
    assert proved.status is CertificateStatus.PROVED


@pytest.mark.parametrize(
    ("run_id", "recorded", "origin"),
    [
        ("cli-host-a-12-0123abcd", None, "command line on host-a"),
        ("cli-host-a-12-0123abcd", "command line, anna@host-a", "command line, anna@host-a"),
        ("orphans-12-0123abcd", None, "command line"),
        ("b5d0c1de-1111-4222-8333-123456789abc", None, "Dagster"),
        ("b5d0c1de-1111-4222-8333-123456789abc-1", None, "Dagster"),
        ("run-1", None, "unknown"),
    ],
)
def test_certificate_names_who_started_the_run(run_id: str, recorded: str | None, origin: str) -> None:
    assert certificate([record(REWRITTEN, run_id=run_id, started_by=recorded)]).run.started_by == origin


def test_records_of_two_runs_make_two_certificates_in_order() -> None:
    later = record(SECOND, run_id="run-2", started_ms=NOW_MS + 60_000)
    made = certificates([later, record(REWRITTEN)])
    assert [c.run.run_id for c in made] == ["cli-host-a-12-0123abcd", "run-2"]
    with pytest.raises(ValueError, match="one run on one table"):
        certificate([later, record(REWRITTEN)])


def test_document_has_every_batch_with_gate_and_command() -> None:
    document = certificate_document(certificate([record(REWRITTEN)]))
    assert (document["status"], document["rows_in"], document["rows_deleted"]) == ("PROVED", 10, 3)
    (batch,) = document["batches"]
    assert (batch["gate"], batch["subject"], batch["snapshot_after"]) == ("PASSED", "rows", 2)
    assert batch["attest"] == "iceberg-maint attest lake.db.t --snapshot 2"


def test_markdown_states_result_origin_snapshots_and_commands() -> None:
    text = certificate_markdown(certificate([record(REWRITTEN, failed(Reason.ERROR, "a|b"))]))
    assert text.splitlines()[0] == (
        "**PARTIAL**: 1 commit proved: 10 rows in = 7 rows out + 3 deleted. 1 batch ended without a commit."
    )
    assert "Snapshots: `1` → `2`." in text
    assert (
        "| `b1` | rewrite_data_files | day=1 | 10 rows in = 7 out + 3 deleted; full equal; written by native "
        "| passed | 2 |" in text
    )
    assert text.endswith("Prove it again:\n\n```\niceberg-maint attest lake.db.t --snapshot 2\n```")


def test_markdown_of_a_hostile_table_has_no_markup_of_its_name() -> None:
    name = "lake.db.`<b>x</b>`; $(touch pwned)"
    text = certificate_markdown(certificate([record(REWRITTEN, failed(Reason.ERROR, "<b>|"), table=name)]))
    assert "on lake.db.\\`\\<b\\>x\\</b\\>\\`; $(touch pwned), started by" in text
    assert f"\niceberg-maint attest '{name}' --snapshot 2\n" in text
