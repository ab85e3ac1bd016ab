"""The proof certificate of one run on one table: what it committed, and the evidence that no row changed.

A pure function of what the ledger stores. The command line and Dagster show the same certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby

from iceberg_maint.core.model.codec import to_data
from iceberg_maint.core.model.ids import POSITION_OPERATIONS, Operation, command_line
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.outcomes.verification import (
    FILES_ALGORITHM,
    FINGERPRINT_ALGORITHM,
    Fingerprint,
    Proof,
)
from iceberg_maint.report.formatting import counted, duration, moment, number, partitions_text, started_by
from iceberg_maint.report.json_documents import Document, batch_document
from iceberg_maint.report.page import markdown_text

_STRATEGIES = {FILES_ALGORITHM: "columnar", FINGERPRINT_ALGORITHM: "native"}
"""Algorithm of a fingerprint of rows → the strategy that stores it."""


class CertificateStatus(StrEnum):
    """What a certificate states.

    PROVED: every commit has an equal proof, and nothing failed. PARTIAL: every commit has an equal proof, and
    a batch failed or was stopped before its commit. UNPROVED: a commit without an equal proof, or one that is
    neither confirmed nor refuted. NO_COMMIT: the run changed nothing in the table.
    """

    PROVED = "PROVED"
    PARTIAL = "PARTIAL"
    UNPROVED = "UNPROVED"
    NO_COMMIT = "NO_COMMIT"


class GateVerdict(StrEnum):
    """The verdict of the gate on the commit of a batch. NOT_ASKED: the batch ended before its commit, or
    commits nothing. NONE: an engine elsewhere committed, and no gate saw it."""

    PASSED = "PASSED"
    REFUSED = "REFUSED"
    STALE = "STALE"
    NOT_ASKED = "NOT_ASKED"
    NONE = "NONE"


class Subject(StrEnum):
    """What the proof of a batch compares."""

    ROWS = "rows"
    POSITIONS = "deleted positions"
    METADATA = "metadata"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class CertifiedBatch:
    """One batch of the run. `attest` is the command that proves its commit again; None without a commit of
    rows or positions."""

    operation: Operation
    outcome: BatchOutcome
    subject: Subject
    gate: GateVerdict
    attest: str | None

    @property
    def is_committed(self) -> bool:
        """Whether the table shows a commit of this batch."""
        return self.outcome.snapshot_after is not None

    @property
    def strategy(self) -> str:
        """`columnar` or `native`, which wrote the rows, by the algorithm of their fingerprint. "" for other work, and
        without a fingerprint."""
        proof = self.outcome.proof
        if self.subject is not Subject.ROWS or proof is None or proof.fingerprint is None:
            return ""
        return _STRATEGIES.get(Fingerprint.parse(proof.fingerprint).algorithm, "")

    @property
    def is_proved(self) -> bool:
        """Whether the batch has a proof and its verdict is equal."""
        return self.outcome.proof is not None and self.outcome.proof.equal

    def equation(self) -> str:
        """The proof as one equation: rows in = rows out + deleted rows. A hyphen without a proof."""
        proof = self.outcome.proof
        return "-" if proof is None else _equation(self.subject, proof)


@dataclass(frozen=True, slots=True)
class CertifiedRun:
    """The run of a certificate: who worked on which table, when, with which policy and versions."""

    run_id: str
    table: str
    table_uuid: str
    started_by: str
    started_ms: int
    ended_ms: int
    policy_digest: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate of one run on one table. `rows_in` to `rows_deleted` are the sums of the committed
    rewrites. `fingerprint` is the sum of their fingerprints, None if one of them compared footers only."""

    run: CertifiedRun
    status: CertificateStatus
    snapshot_before: int | None
    snapshot_after: int | None
    rows_in: int
    rows_out: int
    rows_deleted: int
    fingerprint: str | None
    batches: tuple[CertifiedBatch, ...]

    @property
    def committed(self) -> tuple[CertifiedBatch, ...]:
        """The batches whose commit the table shows, in order."""
        return tuple(b for b in self.batches if b.is_committed)

    def sentence(self) -> str:
        """The result in one sentence."""
        commits = counted(len(self.committed), "commit")
        rest = sum(not b.is_committed and b.subject is not Subject.FILES for b in self.batches)
        ended = f" {counted(rest, 'batch', 'batches')} ended without a commit." if rest else ""
        rows = (
            f"{number(self.rows_in)} rows in = {number(self.rows_out)} rows out + "
            f"{number(self.rows_deleted)} deleted"
        )
        if all(b.subject is not Subject.ROWS for b in self.committed):
            rows = "no data file was rewritten"
        match self.status:
            case CertificateStatus.PROVED | CertificateStatus.PARTIAL:
                return f"{commits} proved: {rows}.{ended}"
            case CertificateStatus.UNPROVED:
                open_ = sum(not b.is_proved for b in self.committed)
                open_ += sum(b.outcome.outcome is OutcomeStatus.UNKNOWN for b in self.batches)
                return f"{counted(open_, 'commit')} without a proof.{ended}"
            case CertificateStatus.NO_COMMIT:
                return f"Nothing was committed.{ended}"


def certificate(records: Sequence[Record]) -> Certificate:
    """The certificate from the records of one run on one table, in any order. Raises ValueError if there is
    no record, or if the records are of several runs or tables."""
    if len({(r.run_id, r.table_uuid) for r in records}) != 1:
        raise ValueError("a certificate needs records of one run on one table")
    ordered = sorted(records, key=lambda r: (r.started_ms, r.ended_ms))
    first, last = ordered[0], ordered[-1]
    batches = [(r.operation, b) for r in ordered for b in r.outcome.batches]
    settled = {b.batch_id for _, b in batches if b.outcome is not OutcomeStatus.UNKNOWN}
    run = CertifiedRun(
        run_id=first.run_id,
        table=last.table,
        table_uuid=first.table_uuid,
        started_by=started_by(first.run_id, next((r.started_by for r in ordered if r.started_by), None)),
        started_ms=first.started_ms,
        ended_ms=max(r.ended_ms for r in ordered),
        policy_digest=next((r.policy_digest for r in reversed(ordered) if r.policy_digest), ""),
        versions=next((r.versions for r in reversed(ordered) if r.versions), {}),
    )
    # A commit that was unknown when the run ended and was settled later has a record of each.
    return certificate_of(
        run,
        [(o, b) for o, b in batches if b.outcome is not OutcomeStatus.UNKNOWN or b.batch_id not in settled],
    )


def certificates(records: Iterable[Record]) -> tuple[Certificate, ...]:
    """One certificate per run and table of these records, the earliest first."""
    by_run = sorted(records, key=lambda r: (r.run_id, r.table_uuid))
    made = (certificate(tuple(group)) for _, group in groupby(by_run, lambda r: (r.run_id, r.table_uuid)))
    return tuple(sorted(made, key=lambda c: (c.run.started_ms, c.run.table, c.run.run_id)))


def certificate_of(run: CertifiedRun, batches: Sequence[tuple[Operation, BatchOutcome]]) -> Certificate:
    """The certificate from the batches of a run, whose records need not be stored yet."""
    certified = tuple(_certified(run.table, operation, outcome) for operation, outcome in batches)
    committed = [b.outcome for b in certified if b.is_committed]
    rewrites = [b for b in certified if b.is_committed and b.subject is Subject.ROWS]
    proofs = [b.outcome.proof for b in rewrites if b.outcome.proof is not None]
    return Certificate(
        run=run,
        status=_status(certified),
        snapshot_before=committed[0].snapshot_before if committed else None,
        snapshot_after=committed[-1].snapshot_after if committed else None,
        rows_in=sum(p.input_records for p in proofs),
        rows_out=sum(p.output_records for p in proofs),
        rows_deleted=sum(p.removed_records for p in proofs),
        fingerprint=_sum(
            [None if b.outcome.proof is None else b.outcome.proof.fingerprint for b in rewrites]
        ),
        batches=certified,
    )


def certificate_document(proved: Certificate) -> Document:
    """The JSON document of `proof`."""
    return {
        **to_data(replace(proved.run, versions=dict(sorted(proved.run.versions.items())))),
        "status": proved.status.value,
        "sentence": proved.sentence(),
        "snapshot_before": proved.snapshot_before,
        "snapshot_after": proved.snapshot_after,
        "rows_in": proved.rows_in,
        "rows_out": proved.rows_out,
        "rows_deleted": proved.rows_deleted,
        "fingerprint": proved.fingerprint,
        "batches": [
            {
                "operation": b.operation.value,
                "subject": b.subject.value,
                "gate": b.gate.value,
                "attest": b.attest,
                **batch_document(b.outcome),
            }
            for b in proved.batches
        ],
    }


def certificate_markdown(proved: Certificate) -> str:
    """The certificate as Markdown, for Dagster."""
    lines = [
        f"**{proved.status.value}**: {proved.sentence()}",
        "",
        (
            f"Run `{proved.run.run_id}` on {markdown_text(proved.run.table)}, started by {markdown_text(proved.run.started_by)}, "
            f"{moment(proved.run.started_ms)} to {moment(proved.run.ended_ms)} "
            f"({duration((proved.run.ended_ms - proved.run.started_ms) / 1000)})."
        ),
    ]
    if proved.committed:
        lines += ["", f"Snapshots: `{proved.snapshot_before}` → `{proved.snapshot_after}`."]
    if proved.fingerprint is not None:
        lines += ["", f"Fingerprint of the rows: `{proved.fingerprint}`."]
    if proved.batches:
        lines += [
            "",
            "| batch | operation | partitions | proof | gate | snapshot |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| `{b.outcome.batch_id}` | {b.operation.value} | {markdown_text(partitions_text(b.outcome.partitions))} "
            f"| {markdown_text(proof_text(b))} | {markdown_text(gate_text(b))} | {b.outcome.snapshot_after or '-'} |"
            for b in proved.batches
        ]
    commands = [b.attest for b in proved.batches if b.attest is not None]
    if commands:
        lines += ["", "Prove it again:", "", "```", *commands, "```"]
    return "\n".join(lines)


def verdict_text(operation: Operation, proof: Proof) -> str:
    """The verdict of a proof and its equation, as one text of a materialization."""
    verdict = "equal" if proof.equal else "UNEQUAL"
    return f"{proof.level} {verdict}: {_equation(_subject(operation), proof)}"


def _equation(subject: Subject, proof: Proof) -> str:
    match subject:
        case Subject.ROWS:
            sign = "=" if proof.input_records == proof.output_records + proof.removed_records else "≠"
            return (
                f"{number(proof.input_records)} rows in {sign} {number(proof.output_records)} out + "
                f"{number(proof.removed_records)} deleted"
            )
        case Subject.POSITIONS:
            return (
                f"{number(proof.output_records)} positions written, {number(proof.removed_records)} of them "
                "newly deleted rows"
            )
        case Subject.METADATA | Subject.FILES:
            return "no row read or written"


def proof_text(batch: CertifiedBatch) -> str:
    """The proof of one batch: what was compared, how, the verdict, the strategy that wrote the rows, and what an
    independent decoder compared."""
    proof = batch.outcome.proof
    if proof is None:
        return "-"
    if batch.subject in (Subject.METADATA, Subject.FILES):
        return batch.equation()
    verdict = "equal" if proof.equal else f"NOT EQUAL: {proof.detail}"
    by = f"; written by {batch.strategy}" if batch.strategy else ""
    sample = "" if proof.sample is None else f"; sample: {proof.sample}"
    return f"{batch.equation()}; {proof.level} {verdict}{by}{sample}"


def gate_text(batch: CertifiedBatch) -> str:
    """The verdict of the gate on one batch, as a sentence without its end."""
    outcome = batch.outcome
    match batch.gate:
        case GateVerdict.PASSED:
            tries = outcome.commit_tries
            return "passed" if tries <= 1 else f"passed at try {tries}"
        case GateVerdict.REFUSED:
            return f"refused: {outcome.message}"
        case GateVerdict.STALE:
            return f"plan out of date: {outcome.message}"
        case GateVerdict.NOT_ASKED:
            why = "moves files, commits nothing" if batch.subject is Subject.FILES else outcome.reason.value
            return f"not asked: {why}"
        case GateVerdict.NONE:
            return f"none: {outcome.engine} committed"


def _certified(table: str, operation: Operation, outcome: BatchOutcome) -> CertifiedBatch:
    subject = _subject(operation)
    provable = subject in (Subject.ROWS, Subject.POSITIONS) and outcome.snapshot_after is not None
    attest = command_line("attest", table, "--snapshot", str(outcome.snapshot_after)) if provable else None
    return CertifiedBatch(operation, outcome, subject, _gate(outcome), attest)


def _subject(operation: Operation) -> Subject:
    if operation in POSITION_OPERATIONS:
        return Subject.POSITIONS
    if operation is Operation.REMOVE_ORPHAN_FILES:
        return Subject.FILES
    if operation in (Operation.REWRITE_MANIFESTS, Operation.EXPIRE_SNAPSHOTS):
        return Subject.METADATA
    return Subject.ROWS


def _gate(outcome: BatchOutcome) -> GateVerdict:
    if outcome.engine and outcome.snapshot_after is not None:
        return GateVerdict.NONE
    if outcome.snapshot_after is not None or outcome.outcome is OutcomeStatus.UNKNOWN:
        return GateVerdict.PASSED
    if outcome.reason is Reason.GATE_REFUSED:
        return GateVerdict.REFUSED
    if outcome.reason is Reason.STALE and outcome.commit_tries:
        return GateVerdict.STALE
    return GateVerdict.NOT_ASKED


def _status(batches: Sequence[CertifiedBatch]) -> CertificateStatus:
    committed = [b for b in batches if b.is_committed]
    unknown = any(b.outcome.outcome is OutcomeStatus.UNKNOWN for b in batches)
    if unknown or not all(b.is_proved for b in committed):
        return CertificateStatus.UNPROVED
    if not committed:
        return CertificateStatus.NO_COMMIT
    failed = (OutcomeStatus.FAILED, OutcomeStatus.DEFERRED, OutcomeStatus.UNSUPPORTED)
    partial = any(b.outcome.outcome in failed and b.outcome.reason is not Reason.STALE for b in batches)
    return CertificateStatus.PARTIAL if partial else CertificateStatus.PROVED


def _sum(fingerprints: Sequence[str | None]) -> str | None:
    """The fingerprint of all rows. None for none, if one is missing, or if their algorithms differ."""
    parts = [Fingerprint.parse(f) for f in fingerprints if f is not None]
    if not parts or len(parts) != len(fingerprints) or len({p.algorithm for p in parts}) > 1:
        return None
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total.text()
