"""The screens of orphan files, of the trash, and of open incidents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from iceberg_maint.cli.pages.console import draw_rows
from iceberg_maint.core.alerts import Incident
from iceberg_maint.core.model.ids import command_line
from iceberg_maint.core.removal.orphan_rules import (
    Orphan,
    OrphanSummary,
    ScanCounts,
    TrashBatchHeader,
    UnloggedMetadata,
    printable_path,
)
from iceberg_maint.report.formatting import counted, escape_control_chars, moment, number, size
from iceberg_maint.report.grid import write
from iceberg_maint.report.json_documents import Document

if TYPE_CHECKING:
    from rich.console import Console


def incident_documents(incidents: Sequence[Incident]) -> list[Document]:
    """The incidents in `alerts --json`."""
    return [
        {
            "id": i.incident_id,
            "kind": i.kind.value,
            "table": i.table,
            "owners": list(i.owners),
            "summary": i.summary,
            "action": i.action,
            "since_ms": i.since_ms,
            "fired_ms": i.fired_ms,
            "cleared_ms": i.cleared_ms,
            "fired_to": list(i.fired_to),
            "cleared_to": list(i.cleared_to),
        }
        for i in incidents
    ]


def draw_incidents(console: Console, incidents: Sequence[Incident]) -> None:
    """Draws the open incidents that have fired, and counts the conditions that have not lasted long enough."""
    fired = [i for i in incidents if i.fired_ms is not None and i.cleared_ms is None]
    waiting = [i for i in incidents if i.fired_ms is None]
    for i in fired:
        owners = f" [dim]({escape(', '.join(i.owners))})[/]" if i.owners else ""
        write(console, f"[bold]{escape(i.table)}[/] {i.kind.value} since {moment(i.since_ms)}{owners}", "  ")
        write(console, f"  {escape(escape_control_chars(i.summary))}", "    ")
        write(console, f"  {escape(i.action)}", "    ")
    if not fired:
        console.print("No open alert.")
    if waiting:
        console.print(f"Not long enough for an alert yet: {counted(len(waiting), 'condition')}.")


def scan_document(
    table: str,
    counts: ScanCounts,
    summary: OrphanSummary,
    *,
    digest: str,
    needs_approval: bool,
    unlogged: UnloggedMetadata,
) -> Document:
    """The JSON document of `orphans scan`."""
    return {
        "table": table,
        "listed_files": counts.listed_files,
        "listed_bytes": counts.listed_bytes,
        "orphan_files": counts.orphan_files,
        "orphan_bytes": counts.orphan_bytes,
        "oldest_ms": summary.oldest_ms,
        "youngest_ms": summary.youngest_ms,
        "kept": {why.value: files for why, files in sorted(counts.kept.items())},
        "folders": [
            {"folder": printable_path(f.folder), "files": f.files, "bytes": f.size_bytes}
            for f in summary.folders
        ],
        "largest": [orphan_document(o) for o in summary.largest],
        "needs_approval": needs_approval,
        "digest": digest,
        "unlogged": {"files": unlogged.files, "paths": list(unlogged.paths)},
    }


def orphan_document(orphan: Orphan) -> Document:
    """The JSON document of one orphan file."""
    return {
        "path": printable_path(orphan.path),
        "bytes": orphan.size_bytes,
        "modified_ms": orphan.modified_ms,
    }


def mark_document(
    header: TrashBatchHeader, files: int, size_bytes: int, delete_after_seconds: int, *, restored: bool
) -> Document:
    """The JSON document of one mark of the trash; `sweep_after_ms` is null for restored files."""
    return {
        "mark_id": header.mark_id,
        "prefix": printable_path(header.prefix),
        "state": "restored" if restored else "retained",
        "released": header.released,
        "marked_ms": header.marked_ms,
        "sweep_after_ms": None if restored else header.marked_ms + delete_after_seconds * 1000,
        "files": files,
        "bytes": size_bytes,
        "digest": header.digest,
    }


def draw_scan(console: Console, document: Mapping[str, object], summary: OrphanSummary, limit: float) -> None:
    """Draws a scan."""
    from rich.markup import escape

    files, listed = document["orphan_files"], document["listed_files"]
    console.print(
        f"[bold]{escape(str(document['table']))}[/]: {number(files)} of {counted(_int(listed), 'file')} orphaned, "
        f"{size(_int(document['orphan_bytes']))} of {size(_int(document['listed_bytes']))}"
    )
    kept = document["kept"]
    if isinstance(kept, Mapping):
        console.print("kept: " + (", ".join(f"{why} {number(n)}" for why, n in kept.items()) or "none"))
    if summary.oldest_ms is None or summary.youngest_ms is None:
        return
    console.print(f"last written between {moment(summary.oldest_ms)} and {moment(summary.youngest_ms)}")
    folders = [
        [escape(escape_control_chars(printable_path(f.folder))), number(f.files), size(f.size_bytes)]
        for f in summary.folders
    ]
    draw_rows(console, ["folder", "files", "size"], folders)
    largest = [
        [escape(escape_control_chars(printable_path(o.path))), size(o.size_bytes), moment(o.modified_ms)]
        for o in summary.largest
    ]
    draw_rows(console, ["largest files", "size", "last written"], largest)
    if document["needs_approval"]:
        console.print(
            f"[yellow]more than {limit:.0%}: a person must approve the move[/]: "
            f"{escape(command_line('orphans', 'trash', str(document['table']), '--approve', str(document['digest'])))}"
        )


def draw_marks(console: Console, marks: list[Document]) -> None:
    """Draws the trash of a table."""
    from rich.markup import escape

    if not marks:
        console.print("the trash is empty")
        return
    rows = [
        [
            m["mark_id"],
            m["state"],
            "expiry" if m["released"] else "orphan scan",
            moment(m["marked_ms"]),
            "" if m["sweep_after_ms"] is None else moment(m["sweep_after_ms"]),
            number(m["files"]),
            size(m["bytes"]),
            escape(escape_control_chars(m["prefix"])),
        ]
        for m in marks
    ]
    draw_rows(console, ["mark", "state", "from", "marked", "swept after", "files", "size", "prefix"], rows)


def draw_releases(console: Console, releases: Sequence[Document]) -> None:
    """Draws the expiries whose files are not yet in the trash; nothing without any."""
    for release in releases:
        snapshots = counted(release["snapshots"], "snapshot")
        write(
            console,
            f"The files that expiry {release['release_id']} of {snapshots} releases are not in the trash. Their retention "
            "begins with the next expire_snapshots or remove_orphan_files.",
        )


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
