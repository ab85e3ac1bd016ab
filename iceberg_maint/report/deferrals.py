"""Refusals: the public code, the text and the fix of every reason for which a table is refused.

The command line and Dagster show the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.decisions.applicability import (
    COLUMNAR_TYPES,
    SPARK_4,
    column_list,
    unsupported_columns,
)
from iceberg_maint.core.decisions.history import Pause
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import TableId, command_line, shell_argument
from iceberg_maint.core.model.reasons import SENTENCES, Decision, Reason, Verdict
from iceberg_maint.core.removal.clock_skew import FIX
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.stored import StoredPause
from iceberg_maint.report.formatting import moment
from iceberg_maint.report.grid import write
from iceberg_maint.report.json_documents import Document

FLEET = "*"
ADVISE = "mode: advise"


def deferral(decision: Decision) -> str:
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


_CODES = {
    Reason.UNSUPPORTED_KEY: "ICM-119",
    Reason.MEMORY: "ICM-124",
    Reason.FORMAT_VERSION: "ICM-108",
    Reason.DROPPED_SOURCE: "ICM-131",
    Reason.UNSUPPORTED_TYPE: "ICM-134",
    Reason.WRITER_PROPERTY: "ICM-180",
    Reason.LEASE_HELD: "ICM-109",
    Reason.FOREIGN_MAINTAINER: "ICM-109",
    Reason.APPROVAL_REQUIRED: "ICM-122",
    Reason.GC_DISABLED: "ICM-110",
    Reason.CLOCK_SKEW: "ICM-115",
}
_FIXES = {
    Reason.UNSUPPORTED_KEY: "apply the equality deletes with the engine that wrote them.",
    Reason.MEMORY: "raise equality_deletes.memory, equality_deletes.scratch or spark.driver.memory, or lower "
    "windows.max_files_per_batch.",
    Reason.FORMAT_VERSION: "use a version of this program that supports it.",
    Reason.DROPPED_SOURCE: "set commit.manifest-merge.enabled=false on the table at once, for the commits of other "
    "writers, and write the table again (INSERT OVERWRITE of all of it, or a new table).",
    Reason.UNSUPPORTED_TYPE: "set rewrite_data_files.strategy to auto if it is native; else rewrite the files with an engine that "
    "reads the column, or change its type. Manifests, snapshots and orphan files are maintained.",
    Reason.WRITER_PROPERTY: "correct or unset the property of the table.",
    Reason.LEASE_HELD: "wait until that run ends.",
    Reason.FOREIGN_MAINTAINER: "stop it, or set foreign_maintainers.mode to coexist or ignore; see "
    "`iceberg-maint why {table}`.",
    Reason.APPROVAL_REQUIRED: "read `iceberg-maint orphans scan {table}`. If it is right, run `iceberg-maint orphans "
    "trash {table} --approve DIGEST`.",
    Reason.GC_DISABLED: "none if other tables use these files; else let the table's owner remove gc.enabled=false.",
    Reason.CLOCK_SKEW: FIX,
}


def fix_of(table: str, reason: Reason) -> str:
    """What ends the refusal of a table for this reason, and the code, as a clause. Empty if the reason is no refusal."""
    if reason not in _CODES:
        return ""
    return f"{_FIXES[reason].format(table=shell_argument(table)).removesuffix('.')}: see {_CODES[reason]}"


def refusal(table: str, reason: Reason, measured: Measured | None) -> RefusedError | None:
    """The refusal of a table for this reason; None if the reason is no refusal.

    `measured` is the table's stored health: some texts contain values of it.
    """
    code = _CODES.get(reason)
    # Files that no reader can read have this reason too. The fault of their partition says which.
    is_of_files = reason is Reason.UNSUPPORTED_TYPE and measured is not None and not measured.uncommon_types
    if code is None or is_of_files:
        return None
    return RefusedError(
        code,
        _message(reason, measured) or f"{SENTENCES[reason]}.",
        _FIXES[reason].format(table=shell_argument(table)),
    )


def _message(reason: Reason, measured: Measured | None) -> str | None:
    """A text with values of this table, if the reason has any."""
    if reason is Reason.DROPPED_SOURCE and measured is not None:
        specs = ", ".join(map(str, measured.specs_losing_values))
        return (
            f"the column by which partition spec {specs} partitions live files was dropped. Iceberg loses their "
            "partitions in any commit that copies their manifests, and deleted rows come back."
        )
    if reason is Reason.UNSUPPORTED_TYPE and measured is not None:
        types = measured.uncommon_types
        evidence = {} if unsupported_columns(types, (COLUMNAR_TYPES,)) else {"read_by": "columnar"}
        columns = column_list(unsupported_columns(types, (*SPARK_4, COLUMNAR_TYPES)) or types)
        return f"{reader_of(evidence)} column {columns}."
    if reason is Reason.WRITER_PROPERTY and measured is not None:
        return f"{measured.wrong_property}."
    if reason is Reason.FOREIGN_MAINTAINER and measured is not None and measured.foreign:
        newest = measured.foreign[0]
        return (
            f"{newest.maintainer} rewrote files of the table in snapshot {newest.snapshot_id}. Two maintainers "
            "undo each other's work."
        )
    return None
