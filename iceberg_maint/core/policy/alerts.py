"""Policy of alerts: who owns a table, and the limits beyond which a person must know."""

from __future__ import annotations

from dataclasses import dataclass, field

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class AlertsPolicy:
    """Section `alerts`: the owners of the table and the limits of its alerts."""

    enabled: bool = field(default=True, metadata={"doc": "whether the table has alerts"})
    owners: tuple[str, ...] = field(
        default=(),
        metadata={"doc": "owners of the table; a receiver with owners gets the alerts of theirs only"},
    )
    failures: int = field(
        default=3,
        metadata={
            "doc": "alert when as many attempts in a row failed or had no effect on one partition",
            "minimum": 1,
        },
    )
    not_observed_seconds: int | None = field(
        default=1800,
        metadata={
            "doc": "alert when the last observation is longer ago; null: never",
            "minimum": 60,
        },
    )
    due_seconds: int | None = field(
        default=DAY_SECONDS,
        metadata={"doc": "alert when work is due for longer without a break; null: never", "minimum": 60},
    )
    no_progress_seconds: int | None = field(
        default=21_600,
        metadata={
            "doc": "alert when work is due and nothing was committed for longer; null: never",
            "minimum": 60,
        },
    )
    expiry_grace_seconds: int | None = field(
        default=7 * DAY_SECONDS,
        metadata={
            "doc": "alert when the oldest snapshot is this much older than expire_snapshots keeps; null: never",
            "minimum": 0,
        },
    )
    orphan_passes: int = field(
        default=3,
        metadata={
            "doc": "alert when each of as many orphan passes counts more orphan files than the one before",
            "minimum": 2,
            "maximum": 10,
        },
    )
    orphan_files: int = field(
        default=100,
        metadata={"doc": "no alert on growing orphans below this number of files", "minimum": 1},
    )
