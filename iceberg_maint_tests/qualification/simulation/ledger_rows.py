"""The ledger's rows as the watch reads them: plain SQL, not the code's own words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Attempted:
    """What the watch remembers of an attempt."""

    attempt_id: str
    batch_id: str
    table_uuid: str
    operation: str
    run_id: str
    fence: int
    token: str
    partitions: tuple[str, ...]
    before: dict[str, Past]
    files: frozenset[str] | None = None
    tries: int = 0
    status: str = "STARTED"
    given_up: bool = False
    handed_back: bool = False


@dataclass(frozen=True)
class Past:
    """A partition's row of back-off and quarantine."""

    ineffective: int = 0
    crashes: int = 0
    not_before_ms: int | None = None
    quarantined: bool = False
    reason: str = ""


CLEAN = Past()
Key = tuple[str, str, str]


@dataclass
class Seen:
    """The ledger as of the last step."""

    attempts: dict[str, Attempted] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("attempt", "outcome", "record"), 0))
    intents: int = 0
    tries: int = 0
    leases: dict[str, tuple[str | None, int, int]] = field(default_factory=dict)
    batches: dict[str, tuple[str, int]] = field(default_factory=dict)
    cursors: dict[tuple[str, str], tuple[str, int | None]] = field(default_factory=dict)
    pasts: dict[Key, Past] = field(default_factory=dict)


class LedgerRows:
    """The tables of one ledger, over its connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def total_changes(self) -> int:
        return int(self._connection.total_changes)

    def lease(self, uuid: str) -> tuple[str | None, int, int]:
        (row,) = self.rows(f"SELECT owner, fence, expires_ms FROM icm_lease WHERE table_uuid = '{uuid}'") or [
            {"owner": None, "fence": 0, "expires_ms": 0}
        ]
        return row["owner"], row["fence"], row["expires_ms"]

    def pasts(self) -> dict[Key, Past]:
        return {
            (r["table_uuid"], r["operation"], r["partition"]): Past(
                r["ineffective"], r["crashes"], r["not_before_ms"], bool(r["quarantined"]), r["reason"]
            )
            for r in self.rows("SELECT * FROM icm_partition_history")
        }

    def batches(self) -> dict[str, tuple[str, int]]:
        rows = self.rows(
            "SELECT batch_id, status, (SELECT COUNT(*) FROM icm_attempt a WHERE a.batch_id = b.batch_id) AS attempts "
            "FROM icm_batch b"
        )
        return {r["batch_id"]: (r["status"], r["attempts"]) for r in rows}

    def cursors(self) -> dict[tuple[str, str], tuple[str, int | None]]:
        rows = self.rows("SELECT table_uuid, operation, batch_id, snapshot_id FROM icm_cursor")
        return {(r["table_uuid"], r["operation"]): (r["batch_id"], r["snapshot_id"]) for r in rows}

    def rows(self, query: str) -> list[dict[str, Any]]:
        cursor = self._connection.execute(query)
        names = [d[0] for d in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
