"""History: every snapshot that was ever seen of a table, and what must hold of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from iceberg_maint_tests.qualification.chaos.journal import Answer, Attempt
from iceberg_maint_tests.qualification.chaos.lake import Row


@dataclass(frozen=True, slots=True)
class Seen:
    """One snapshot. `token` is the foreign writer's; `batch` and `fence` are ours, None when it is not;
    `added_bytes` are those of its files."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    operation: str
    token: str | None = None
    batch: str | None = None
    fence: int | None = None
    added_bytes: int = 0

    @property
    def ours(self) -> bool:
        return self.batch is not None


class GapError(Exception):
    """A snapshot's parent was never seen: what it was based on cannot be told."""


@dataclass(slots=True)
class History:
    """The snapshots of one table by id, and the last head."""

    seen: dict[int, Seen] = field(default_factory=dict)
    head: int | None = None

    def add(self, snapshots: Iterable[Seen], head: int | None) -> None:
        """What a table's metadata holds at a moment."""
        for snapshot in snapshots:
            self.seen.setdefault(snapshot.snapshot_id, snapshot)
        self.head = head

    def chain(self, head: int | None) -> list[Seen]:
        """A snapshot and all its ancestors, oldest first. Raises GapError."""
        found: list[Seen] = []
        at = head
        while at is not None:
            if at not in self.seen:
                raise GapError(f"snapshot {at} was never seen")
            found.append(self.seen[at])
            at = self.seen[at].parent_id
        return found[::-1]


def replay(chain: Iterable[Seen], attempts: Mapping[str, Attempt]) -> dict[int, Row]:
    """The rows by id that the foreign commits among these snapshots must have left, whatever they were told."""
    rows: dict[int, Row] = {}
    for snapshot in chain:
        if snapshot.token is None:
            continue
        effect = attempts[snapshot.token].effect
        for key in effect.delete:
            rows.pop(key, None)
        for row in effect.put:
            rows[row[0]] = row
    return rows


@dataclass(frozen=True, slots=True)
class Rows:
    """What a reader saw against the model: rows that are missing, and rows that must not be there."""

    lost: tuple[Row, ...]
    back: tuple[Row, ...]

    @property
    def equal(self) -> bool:
        return not self.lost and not self.back


def compare(expected: Mapping[int, Row], found: Iterable[Row]) -> Rows:
    """Both as multisets."""
    want, have = Counter(expected.values()), Counter(found)
    return Rows(tuple(sorted((want - have).elements())), tuple(sorted((have - want).elements())))


def commit_faults(history: History, attempts: Iterable[Attempt]) -> list[str]:
    """Acknowledged commits that are no ancestors of the head, failed ones that are, commits nobody
    wrote, and commits of ours that came twice or under a fence that went back. Raises GapError."""
    chain = history.chain(history.head)
    tokens = Counter(s.token for s in chain if s.token is not None)
    faults = []
    for attempt in attempts:
        there = tokens.pop(attempt.token, 0)
        what = f"{attempt.kind} {attempt.token}"
        if there > 1:
            faults.append(f"{what} was committed {there} times")
        if attempt.answer is Answer.ACKED and attempt.has_rows and not there:
            faults.append(f"{what} was acknowledged and is lost")
        if attempt.answer is Answer.FAILED and there:
            faults.append(f"{what} failed and is there")
    faults += [f"{token} was written by nobody" for token in tokens]
    unmarked = [s for s in chain if s.token is None and not s.ours and s.operation != "replace"]
    faults += [f"snapshot {s.snapshot_id} ({s.operation}) was written by nobody" for s in unmarked]
    mine = [s for s in chain if s.batch is not None]
    twice = Counter(s.batch for s in mine)
    faults += [f"batch {batch} was committed {n} times" for batch, n in twice.items() if n > 1]
    fences = [s.fence or 0 for s in mine]
    if fences != sorted(fences):
        faults.append("fences of our commits went back")
    return faults


def change_faults(
    attempts: Iterable[Attempt], tags: Mapping[str, int], columns: Mapping[int, str]
) -> list[str]:
    """Acknowledged tags and columns that are gone, or that are another snapshot's, and were not dropped by
    their writer; of a rename only the last counts."""
    attempts = list(attempts)
    kept = {a.change["tag"]: a.change["snapshot"] for a in attempts if _acked(a, "tag")}
    for a in attempts:
        kept.pop(a.change.get("drop_tag", ""), None)
    faults = [
        f"tag {name} of snapshot {snapshot} is now {tags.get(name)}"
        for name, snapshot in kept.items()
        if tags.get(name) != snapshot
    ]
    added = {a.change["column"] for a in attempts if _acked(a, "column")}
    dropped = {a.change.get("drop_column") for a in attempts}
    faults += [f"column {name} is gone" for name in sorted(added - dropped - set(columns.values()))]
    renames = [a for a in attempts if "rename" in a.change]
    if (
        renames
        and renames[-1].answer is Answer.ACKED
        and renames[-1].change["rename"] not in columns.values()
    ):
        faults.append(f"the column renamed to {renames[-1].change['rename']} has another name")
    return faults


def failed_by_us(attempt: Attempt, history: History) -> bool:
    """Whether a commit of ours landed on the table while the writer tried and failed; so much may be
    our doing. A file that is missing always is."""
    if attempt.answer is Answer.ACKED or attempt.ended_ms is None:
        return False
    if "NotFound" in attempt.error and "file" in attempt.error.lower():
        return True
    return any(
        s.ours and attempt.started_ms - 1000 <= s.timestamp_ms <= attempt.ended_ms
        for s in history.seen.values()
    )


def _acked(attempt: Attempt, what: str) -> bool:
    return attempt.answer is Answer.ACKED and what in attempt.change
