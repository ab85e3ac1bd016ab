"""The screen of `proof`: the certificates of a run."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from iceberg_maint.report.certificate import (
    Certificate,
    CertificateStatus,
    CertifiedBatch,
    gate_text,
    proof_text,
)
from iceberg_maint.report.formatting import duration, escape_control_chars, moment, partitions_text
from iceberg_maint.report.grid import write

_COLOURS = {
    CertificateStatus.PROVED: "green",
    CertificateStatus.PARTIAL: "yellow",
    CertificateStatus.UNPROVED: "red",
    CertificateStatus.NO_COMMIT: "cyan",
}


def draw_certificate(console: Console, proved: Certificate) -> None:
    """Draws one certificate."""
    colour = _COLOURS[proved.status]
    write(
        console, f"[bold]{escape(proved.table)}[/]: [{colour}]{proved.status.value}[/]. {proved.sentence()}"
    )
    span = duration((proved.ended_ms - proved.started_ms) / 1000)
    _line(console, "run", proved.run_id)
    _line(console, "started by", proved.started_by)
    _line(console, "time", f"{moment(proved.started_ms)} to {moment(proved.ended_ms)} ({span})")
    if proved.committed:
        _line(console, "snapshots", f"{proved.snapshot_before} → {proved.snapshot_after}")
    if proved.fingerprint is not None:
        _line(console, "fingerprint", proved.fingerprint)
    if proved.versions:
        _line(console, "versions", ", ".join(f"{k} {v}" for k, v in sorted(proved.versions.items())))
    for batch in proved.batches:
        _draw_batch(console, batch)


def _draw_batch(console: Console, batch: CertifiedBatch) -> None:
    outcome = batch.outcome
    console.print()
    write(
        console,
        f"[bold]{outcome.batch_id}[/] {batch.operation.value}: {outcome.outcome.value} {outcome.reason.value}",
    )
    _line(console, "partitions", partitions_text(outcome.partitions))
    _line(console, "proof", proof_text(batch))
    _line(console, "gate", gate_text(batch))
    if batch.is_committed:
        _line(console, "snapshot", f"{outcome.snapshot_before} → {outcome.snapshot_after}")
    if outcome.message and outcome.message not in gate_text(batch):
        _line(console, "message", outcome.message)
    if batch.verify is not None:
        write(console, "  [dim]prove it again:[/]")
        write(console, f"    {escape(batch.verify)}", "      ")


def _line(console: Console, title: str, text: str) -> None:
    write(console, f"  [dim]{title}:[/] {escape(escape_control_chars(text))}", "    ")
