"""Numbers, times, reasons and progress as text for people."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import WHOLE_TABLE, shell_argument
from iceberg_maint.core.model.reasons import SENTENCES, Reason
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import policy_keys
from iceberg_maint.errors import printable
from iceberg_maint.ports.engine import WorkProgress

# Select Graphic Rendition: the only escape sequences that drawing uses.
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")
_COMMAND = re.compile(r"(?<![\w./-])(iceberg-maint|dagster)(?= (--config|[a-z]))")
_WITHOUT_CONFIG = re.compile(r"(?<![\w./-])iceberg-maint(?= [a-z])(?![^\n`']* --config )")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count_bytes: float) -> str:
    """Bytes with a binary unit: `1.5 GiB`."""
    value = float(count_bytes)
    unit = 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """A time span: `4 s`, `3 min`, `2 h 5 min`, `3 d`."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} d"


def moment(time_ms: int) -> str:
    """A point in time, UTC, to the second. A time beyond the year 9999, which metadata can state, in milliseconds."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def setting(path: str, value: object) -> str:
    """The value of a policy key. None becomes what it stands for."""
    unset = next((k.unset for k in policy_keys() if k.path == path), "") if value is None else ""
    return unset or number(value)


def number(value: object) -> str:
    """A metric or threshold; None becomes `off`."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() or abs(value) >= 999.5 else f"{value:,.3g}"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def metric_value(metric: str, value: float) -> str:
    """The value of a metric: bytes as a size, other values to four digits."""
    return size(value) if metric.endswith("_bytes") else number(float(f"{value:.4g}"))


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 file`, `2 files`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def share(count: int, total: int, noun: str, verb: str = "") -> str:
    """A part of a total with its noun and verb: `1 of 3 partitions is`, `2 of 3 partitions are`."""
    one = count == 1 or total == 1
    does = {"": "is" if one else "are"}.get(verb, f"{verb}s" if one else verb)
    return f"{number(count)} of {counted(total, noun)} {does}"


def partitions_text(partitions: Sequence[str]) -> str:
    """Up to three partition keys, and how many more there are."""
    if tuple(partitions) == (WHOLE_TABLE,):
        return "the whole table"
    return shortened(partitions, 3)


def shortened(names: Sequence[str], limit: int = 5) -> str:
    """The first names and the number of the others."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {number(rest)} more" if rest > 0 else "")


def escape_control_chars(text: str, *, styled: bool = False) -> str:
    """Replaces characters that steer a terminal or change the text direction by their escapes.

    Names of tables and texts of other engines may contain them. `styled` keeps colours.
    """
    pieces = _STYLE.split(text) if styled else [text]
    return "".join(piece if n % 2 else printable(piece) for n, piece in enumerate(pieces))


def as_invoked(text: str, config_path: Path | None = None) -> str:
    """The text with commands that a shell runs as they stand: by the path that was typed, if no folder of PATH has the
    program, and with the configuration file that was given."""
    if config_path is not None:
        option = f" --config {shell_argument(str(config_path))}"
        text = _WITHOUT_CONFIG.sub(lambda command: f"{command[0]}{option}", text)
    program = Path(sys.argv[0])
    if program.parts[-2:] == ("iceberg_maint", "__main__.py"):
        script = Path(sys.executable).with_name("iceberg-maint")
        program = script if script.exists() else program
    if program.name != "iceberg-maint" or str(program) == program.name or shutil.which(program.name):
        return text
    return _COMMAND.sub(lambda command: shell_argument(str(program.with_name(command[0]))), text)


def failures_in_a_row(history: PartitionHistory) -> str:
    """The attempts without effect, by kind, and the reason of the last one."""
    environment = history.environment_failures
    of_environment = f", of the environment: {environment}" if environment else ""
    return f"{history.ineffective}, crashes: {history.crashes}{of_environment}; {history.reason}"


def sentence(reason: Reason) -> str:
    """The reason's sentence."""
    return SENTENCES[reason]


_DONE = {
    Reason.MANIFESTS: "the manifests were regrouped",
    Reason.SNAPSHOTS: "snapshots or refs past their retention were expired",
    Reason.ORPHAN_FILES: "storage was searched for orphan files",
}
_LOST_LEASE = "the run lost the lease of the table; the next run continues"


def outcome_sentence(outcome: OutcomeStatus, reason: Reason, *, ran: bool) -> str:
    """The sentence of an outcome. Housekeeping that `ran` with success says what it did: its reason held
    before it, and holds no longer. A run that found the lease of another did nothing; one that did more lost its own, which
    perhaps no other run has taken."""
    if reason is Reason.LEASE_HELD and outcome is not OutcomeStatus.NO_OP:
        return _LOST_LEASE
    done = ran and outcome in SUCCESSFUL
    return _DONE.get(reason, SENTENCES[reason]) if done else SENTENCES[reason]


_CLI = re.compile(r"(cli-(?P<host>.+)|orphans)-\d+-[0-9a-f]{8}")
_DAGSTER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\d+)?")


def started_by(run_id: str, recorded: str | None) -> str:
    """Who started the run. A record of a run that died does not say it. Then the form of the id does."""
    if recorded:
        return recorded
    if found := _CLI.fullmatch(run_id):
        return f"command line on {found['host']}" if found["host"] else "command line"
    return "Dagster" if _DAGSTER.fullmatch(run_id) else "unknown"


ESTIMATE_RECORDS = 50
"""Newest records whose speed an estimate uses."""


def bytes_per_second(records: Iterable[Record]) -> float | None:
    """Input bytes per second of the committed batches in these records that read data; None without any."""
    total_bytes, total_seconds = 0, 0.0
    for record in records:
        for batch in record.outcome.batches:
            # An expiry and a rewrite of manifests read no data: they say nothing about the speed.
            if batch.snapshot_after is not None and batch.seconds > 0 and batch.input_bytes:
                total_bytes += batch.input_bytes
                total_seconds += batch.seconds
    return total_bytes / total_seconds if total_seconds else None


def estimate_seconds(backlog_bytes: int, records: Iterable[Record]) -> float | None:
    """Seconds for the backlog at the speed of these records; 0 without a backlog, None if no batch that reads data
    has been committed yet.
    """
    if not backlog_bytes:
        return 0.0
    speed = bytes_per_second(records)
    return None if speed is None else round(backlog_bytes / speed, 1)


def progress_line(step: str, batch: Batch | None, seconds: float, work: WorkProgress | None) -> str:
    """The step, how far it is, its rate and, if it can be estimated, the remaining time."""
    facts = [work.step if work is not None and work.step else step]
    if work is not None:
        seconds = work.seconds or seconds
        if work.groups > 1:
            facts.append(f"group {number(min(work.groups, work.groups_done + 1))} of {number(work.groups)}")
        facts += _figures(batch, work, seconds)
    facts.append(duration(seconds))
    return ", ".join(facts)


def _figures(batch: Batch | None, work: WorkProgress, seconds: float) -> list[str]:
    facts = []
    total = batch.input_bytes if batch is not None else 0
    if work.bytes_read:
        read = (
            f"{size(work.bytes_read)} of {size(total)}" if work.bytes_read < total else size(work.bytes_read)
        )
        rate = f" ({size(work.bytes_read / seconds)}/s)" if seconds >= 1 else ""
        facts.append(f"{counted(work.rows_read, 'row')} and {read} read{rate}")
    elif work.rows_read:
        facts.append(f"{counted(work.rows_read, 'row')} read")
    if work.rows_written:
        facts.append(f"{counted(work.rows_written, 'row')} and {size(work.bytes_written)} written")
    remaining = remaining_seconds(total, work, seconds)
    if remaining is not None:
        facts.append(f"about {duration(remaining)} left")
    return facts


def remaining_seconds(total_bytes: int, work: WorkProgress, seconds: float) -> float | None:
    """The seconds left at the rate so far, by bytes read or by finished groups, the less advanced. None before
    either says anything."""
    shares = []
    if total_bytes and work.bytes_read:
        shares.append(min(1.0, work.bytes_read / total_bytes))
    if work.groups > 1:
        shares.append(work.groups_done / work.groups)
    share = min(shares, default=0.0) or max(shares, default=0.0)
    if not 0 < share < 1 or seconds < 1:
        return None
    return seconds * (1 - share) / share
