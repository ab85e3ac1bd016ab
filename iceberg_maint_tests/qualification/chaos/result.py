"""The one row that a run leaves: what was done, what was found, and whether that is good."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from iceberg_maint_tests.qualification.chaos.history import failed_by_us
from iceberg_maint_tests.qualification.chaos.journal import Answer
from iceberg_maint_tests.qualification.chaos.lake import TABLES
from iceberg_maint_tests.qualification.chaos.observer import Observer
from iceberg_maint_tests.qualification.chaos.processes import MAINTAINERS, Run

MOST_FAILED_BY_US = 0.01
"""Share of foreign commits."""
LONGEST_PAUSE_SECONDS = 600.0
SURELY_KILLED_SECONDS = 900.0
"""A run of so long in which none of ours was killed has not tested it."""
MOST_LEFT_BATCHES = 2
"""Bytes never committed that a kill or a failed batch may leave, in batches. Those of a whole run add up:
no orphan scan takes a young file, and what it takes lies in the trash."""


def result(run: Run, observer: Observer, began: float, ended: float, rounds: int | None) -> dict[str, Any]:
    """The row. `good` holds when nothing is among the faults, those of the limits included."""
    attempts = list(run.attempts().values())
    histories = {str(table): history for table, history in observer.histories.items()}
    answers = Counter(a.answer or Answer.UNKNOWN for a in attempts)
    acked = Counter(a.kind for a in attempts if a.answer is Answer.ACKED)
    hurt = [a for a in attempts if failed_by_us(a, histories[a.table])]
    share = len(hurt) / max(1, len(attempts))
    done = _maintenance(run)
    pause = longest_pause(
        [s.timestamp_ms / 1000 for h in observer.histories.values() for s in h.seen.values() if s.ours],
        began,
        ended,
    )
    left = {str(table): observer.leftovers(table) for table in TABLES}
    faults = list(run.faults)
    ours = sum(s.ours for h in observer.histories.values() for s in h.seen.values())
    if not answers[Answer.ACKED] or not ours or not run.checked:
        faults.append("nothing was shown: nobody wrote, nothing was maintained or nothing was read")
    if ended - began >= SURELY_KILLED_SECONDS and not run.kills:
        faults.append("nobody was killed")
    if rounds is None:
        faults.append("something is due again and again with nobody writing")
    if share >= MOST_FAILED_BY_US:
        faults.append(f"{share:.2%} of foreign commits failed beside one of ours")
    if pause > LONGEST_PAUSE_SECONDS:
        faults.append(f"no maintenance for {pause:.0f} s")
    largest = max(
        (s.added_bytes for h in observer.histories.values() for s in h.seen.values() if s.ours), default=0
    )
    broken_off = sum(run.kills.values()) + done.failed
    orphan_bytes = sum(leftovers.data_bytes for leftovers in left.values())
    if orphan_bytes > MOST_LEFT_BATCHES * largest * broken_off:
        faults.append(f"{orphan_bytes} bytes of orphans after {broken_off} kills and failures")
    faults += unreadable_faults(done.errors)
    return {
        "good": not faults,
        "seed": run.seed,
        "seconds": round(ended - began),
        "tables": [str(table) for table in TABLES],
        "foreign": {
            "acknowledged": answers[Answer.ACKED],
            "acknowledged_snapshots": sum(a.has_rows for a in attempts if a.answer is Answer.ACKED),
            "by_kind": dict(sorted(acked.items())),
            "failed": answers[Answer.FAILED],
            "unknown": answers[Answer.UNKNOWN],
            "failed_beside_ours": len(hurt),
            "failed_beside_ours_share": round(share, 5),
            "errors": dict(Counter(a.error[:120] for a in attempts if a.error).most_common(8)),
        },
        "maintenance": {
            "commits": ours,
            "batches": dict(sorted(done.batches.items())),
            "errors": dict(done.errors.most_common(8)),
            "memo_damages": dict(sorted(done.memo_damages.items())),
            "kills": dict(sorted(run.kills.items())),
            "lives": {name: m.lives for name, m in run.members.items() if m.lives > 1},
            "longest_pause_seconds": round(pause, 1),
            "rounds_to_end": rounds,
        },
        "checks": {
            "snapshots_read": run.checked,
            "rows_lost": run.lost,
            "rows_brought_back": run.back,
            "looks_missed": run.missed[:8],
            "commits_seen": sum(len(h.seen) for h in observer.histories.values()),
        },
        "orphans": {
            "bytes": orphan_bytes,
            "largest_batch_bytes": largest,
            "kills_and_failed_batches": broken_off,
            "tables": {table: asdict(leftovers) for table, leftovers in left.items()},
        },
        "cpu_seconds": round(sum(run.cpu.values())),
        "faults": faults[:40],
    }


def unreadable_faults(errors: Counter[str]) -> list[str]:
    """Maintenance that could not read metadata: nobody here damages a table, and a damaged memo is rebuilt."""
    return [f"{n} times: {error}" for error, n in errors.items() if "ICM-101" in error or "Unicode" in error]


def longest_pause(times: list[float], began: float, ended: float) -> float:
    """Seconds between two commits of ours, the ends of the run included."""
    marks = sorted([began, *(t for t in times if began < t < ended), ended])
    return max(b - a for a, b in itertools.pairwise(marks))


class _Maintenance:
    """What our maintainers wrote down: batches by operation and outcome, those that failed, errors."""

    def __init__(self) -> None:
        self.batches: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.failed = 0
        self.memo_damages: Counter[str] = Counter()

    def take(self, line: dict[str, Any]) -> None:
        if line.get("memo_damage"):
            self.memo_damages[line["memo_damage"]] += 1
        if "error" in line:
            self.errors[line["error"][:160]] += 1
        for operation in line.get("outcomes", ()):
            for outcome, reason, message in operation["batches"]:
                self.batches[f"{operation['operation']} {outcome}"] += 1
                if outcome not in ("IMPROVED", "COMMITTED", "NO_OP"):
                    self.failed += 1
                    self.errors[f"{operation['operation']} {reason}: {message}"[:160]] += 1


def _maintenance(run: Run) -> _Maintenance:
    found = _Maintenance()
    for name in MAINTAINERS:
        for raw in run.place.journal(name).read_text("utf-8").splitlines():
            # A kill may have cut the last line of a life off.
            with suppress(json.JSONDecodeError):
                found.take(json.loads(raw))
    return found
