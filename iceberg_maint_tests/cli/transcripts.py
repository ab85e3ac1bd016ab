"""Writes docs/reference/transcripts.md: what the commands print at 80 columns. A test reads them at 200, too.

python -m iceberg_maint_tests.cli.transcripts > docs/reference/transcripts.md

The lake is in memory, its clock stands still, and host, user and ids are fixed, so that the page changes only with the
program. The loop, the ledger and the screens are the real ones.
"""

from __future__ import annotations

import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.outcomes.verification import (
    Evidence,
    Fingerprint,
    MaintenanceCommit,
    Side,
    Verification,
    judge_commit,
)
from iceberg_maint_tests.cli.conftest import REJECTED, Lake, lake_of
from iceberg_maint_tests.support.context import changed, spark_access

WIDTHS = (80, 200)
HEAD = """\
# Screens

What the commands print on a terminal of 80 columns. `python -m iceberg_maint_tests.cli.transcripts` writes this page, and a test
compares it with the program. The lake is in memory.
"""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Read the state",
        ("tables", "observe db.orders", "plan db.orders", "why db.orders", "why db.orders --partition day=2"),
    ),
    ("Read every detail", ("why db.customers --all",)),
    ("Maintain", ("run db.orders", "why db.orders", "run db.customers", "tables")),
    ("Read what was done", ("history", "history db.orders", "report")),
    ("Prove", ("proof db.orders", "attest db.orders")),
    (
        "Stop and continue",
        (
            "pause db.customers --note migration",
            "tables",
            "why db.customers",
            "resume db.customers",
            "release db.returns",
            "reconcile",
        ),
    ),
    (
        "Readers",
        ("readers set db.orders nightly", "readers list db.orders"),
    ),
    ("Mistakes", ("tabels", "why db.order", "proof cli-nobody", "orphans scna")),
)
_UNSHOWN = frozenset(
    {
        "why db.customers --all",
        "why db.orders --partition day=2",
        "observe db.orders",
        "why db.customers",
        "reconcile",
        "readers set db.orders nightly",
        "readers list db.orders",
        "release db.returns",
        "resume db.customers",
        "proof cli-nobody",
        "orphans scna",
        "run db.customers",
        "history",
        "history db.orders",
        "report",
    }
)
"""Commands that the test reads and the page leaves out."""
NEWLINE = "\n"


class _Verifier:
    """Finds equal rows on both sides of each commit."""

    def verify(self, commit: MaintenanceCommit) -> Verification:
        rows = Fingerprint(10, ((1, 2), (3, 4)))
        evidence = Evidence(Side(18, 0, rows), Side(2, 0, rows))
        return judge_commit(commit, evidence)


def lake(folder: Path) -> Lake:
    """A table that is due, one whose commits lose, one in quarantine, one in mode advise and a healthy one."""
    made = lake_of(
        folder,
        {
            "lake.db.orders": {"1": 10, "2": 8, "3": 2},
            "lake.db.customers": {"1": 9},
            "lake.db.returns": {"1": 12},
            "lake.db.archive": {"1": 7, "2": 7},
            "lake.db.countries": {"1": 2},
        },
    )
    made.configure("tables: {db.archive: {mode: advise}, db.orders: {max_run_seconds: 900}}\n")
    returns = made.catalog.content[TableId.parse("lake.db.returns")].state.uuid
    made.context.ledger.health.set_partition_history(
        returns,
        Operation.REWRITE_DATA_FILES,
        {PartitionKey("day=1"): PartitionHistory(ineffective=4, quarantined=True, reason="proof_mismatch")},
    )
    made.context = changed(made.context, spark=spark_access(verifier=_Verifier))
    return made


def transcript(width: int) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The sections with each command and its output."""
    ids = (uuid.UUID(int=n << 96 | n) for n in range(1, 10_000))
    fixed = (
        mock.patch("uuid.uuid4", side_effect=ids),
        mock.patch("socket.gethostname", return_value="box"),
        mock.patch("os.getpid", return_value=4711),
        mock.patch("getpass.getuser", return_value="anna"),
        mock.patch.dict(os.environ, {"COLUMNS": str(width)}),
    )
    with tempfile.TemporaryDirectory() as folder:
        for patch in fixed:
            patch.start()
        try:
            made = lake(Path(folder))
            for title, commands in _COMMANDS:
                yield title, [(line, _output(made, line)) for line in commands]
        finally:
            for patch in reversed(fixed):
                patch.stop()


def _output(made: Lake, line: str) -> str:
    if line == "run db.customers":
        made.engine.results = [REJECTED]
    result = made(*line.split())
    text = _MOMENT.sub("2027-01-15 08:00:00", result.stdout + result.stderr)
    code = f"[exit {result.exit_code}]\n" if result.exit_code else ""
    return f"{text}{code}"


def page() -> str:
    """The page."""
    parts = [HEAD]
    for title, commands in transcript(WIDTHS[0]):
        shown = [f"$ iceberg-maint {line}\n{text}" for line, text in commands if line not in _UNSHOWN]
        if shown:
            parts.append(f"\n## {title}\n\n```text\n{NEWLINE.join(shown)}```\n")
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
