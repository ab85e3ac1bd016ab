"""What holds the due work of a whole table, as one text: who or what, since when, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.decisions.history import Pause
from iceberg_maint.core.model.ids import TableId, command_line
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.ports.stored import StoredPause
from iceberg_maint.report.formatting import moment
from iceberg_maint.report.grid import write
from iceberg_maint.report.json_documents import Document

FLEET = "*"
ADVISE = "mode: advise"


def hold(decision: Decision) -> str:
    """What keeps the due work of the whole table from running, as a noun phrase: mode advise, the pause and what
    ends it, blackout hours, a pending publish, columns that nothing reads. Empty if nothing does, and for another
    run: that run does the work. `tables`, `why`, the checks and the card show this text."""
    evidence = decision.evidence
    match decision.reason:
        case Reason.ADVISE:
            return ADVISE
        case Reason.PAUSED if evidence.get("by") == "policy":
            return "policy key paused: true"
        case Reason.PAUSED:
            return f"a pause{_scope(evidence)}{_origin(evidence)} (to end it: {resumption(decision)})"
        case Reason.BLACKOUT:
            return f"the blackout hours {evidence.get('window', '')}".rstrip()
        case Reason.PENDING_PUBLISH:
            return f"{evidence['pending']}, not yet published"
        case Reason.UNSUPPORTED_TYPE:
            return f"column {evidence['columns']}, which {reader_of(evidence)} (ICM-134)"
        case Reason.WRITER_PROPERTY:
            return f"the table property {evidence['property']} (ICM-180)"
        case Reason.FOREIGN_MAINTAINER if decision.verdict is Verdict.REFUSE:
            return f"another maintainer, {evidence['foreign_maintainer']} (ICM-109)"
        case _:
            return ""


def reader_of(evidence: Mapping[str, str]) -> str:
    """What reads the columns of a refusal for their types, as the end of a clause."""
    if evidence.get("read_by") == "columnar":
        return "only rewrite_data_files with the strategy columnar can read"
    return "no operation on data can read"


def pause_of(evidence: Mapping[str, str]) -> str:
    """The pause in a decision's evidence, as the start of a sentence."""
    if evidence.get("by") == "policy":
        return "Paused by policy key paused: true"
    fleet = evidence.get("scope") == "fleet"
    return f"{'The whole fleet is paused' if fleet else 'Paused'}{_origin(evidence)}"


def _scope(evidence: Mapping[str, str]) -> str:
    return " of the whole fleet" if evidence.get("scope") == "fleet" else ""


def _origin(evidence: Mapping[str, str]) -> str:
    who = f" by {evidence['who']}" if evidence.get("who") else ""
    since = f" since {moment(int(evidence['since_ms']))}" if evidence.get("since_ms") else ""
    note = f": {evidence['note']}" if evidence.get("note") else ""
    return f"{who}{since}{note}"


def resumption(decision: Decision) -> str:
    """What ends the pause of this decision. A table's pause and the fleet's pause end separately."""
    evidence = decision.evidence
    if evidence.get("by") == "policy":
        return "policy key paused: false"
    of_table, of_fleet = command_line("resume", decision.table), command_line("resume")
    return {"fleet": of_fleet, "table and fleet": f"{of_table} and {of_fleet}"}.get(
        evidence.get("scope", ""), of_table
    )


def pauses_text(pauses: Sequence[StoredPause], table: TableId, table_uuid: str | None) -> str:
    """The pauses of one table as one text, empty without a pause."""
    own = [
        p
        for p in pauses
        if p.table in (FLEET, str(table)) or (p.table_uuid is not None and p.table_uuid == table_uuid)
    ]
    return "; ".join(map(pause_line, own))


def pause_line(stored: StoredPause) -> str:
    """One pause as a sentence without its end."""
    subject = "the whole fleet" if stored.pause.fleet else stored.table
    return f"{subject} is {_phrase(stored.pause)}"


def pause_documents(pauses: Sequence[StoredPause]) -> list[Document]:
    """The pauses in `tables --json` and `report --json`."""
    return [
        {
            "table": p.table,
            "note": p.pause.note,
            "by": p.pause.by,
            "since_ms": p.pause.since_ms,
            "end": _end(p),
        }
        for p in pauses
    ]


def draw_pauses(console: Console, pauses: Sequence[StoredPause]) -> None:
    """Draws the banner of the pauses: one line each."""
    for p in pauses:
        write(console, f"[bold yellow]PAUSED[/] {escape(pause_line(p))}. To end it: {escape(_end(p))}", "  ")


def _end(stored: StoredPause) -> str:
    return command_line("resume", *(() if stored.pause.fleet else (stored.table,)))


def _phrase(pause: Pause) -> str:
    who = f" by {pause.by}" if pause.by else ""
    note = f": {pause.note}" if pause.note else ""
    return f"paused{who} since {moment(pause.since_ms)}{note}"
