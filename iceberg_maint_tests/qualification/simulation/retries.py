"""I-20: back-off and quarantine are written ahead, respected, and counted by what happened."""

from __future__ import annotations

from collections import Counter
from typing import Any

from iceberg_maint.core.model.reasons import LOST_RACES, Reason
from iceberg_maint.loop.maintain import MAX_REPLANS
from iceberg_maint_tests.qualification.simulation.ledger_rows import CLEAN, Attempted, Key, Past
from iceberg_maint_tests.qualification.simulation.rule_context import RuleContext


class Retries:
    """What the watch demands of back-off and quarantine."""

    def __init__(self, watch: RuleContext) -> None:
        self._watch = watch
        self.stale: Counter[tuple[str, str, str]] = Counter()
        # Runs that were at work when an operator released something.
        self.unaware: set[str] = set()

    def may_start(self, attempt: Attempted, before: dict[Key, Past]) -> None:
        """Back-off and quarantine are respected, and written ahead of the work."""
        process = self._watch.caller
        assert process is not None
        if attempt.run_id in self.unaware:
            return
        request, now_ms = process.request, self._watch.world.lake.now_ms + process.skew_ms
        for partition in attempt.partitions:
            key = (attempt.table_uuid, attempt.operation, partition)
            past, now = before.get(key, CLEAN), self._watch.seen.pasts.get(key, CLEAN)
            self._watch.hold(
                "I-20", request.force or not past.quarantined, f"{attempt} of a partition in quarantine"
            )
            waits = past.not_before_ms is not None and past.not_before_ms > now_ms
            asked = request.force or request.partitions is not None
            self._watch.hold("I-20", asked or not waits, f"{attempt} of a partition that waits: {past}")
            self._watch.hold("I-20", now.crashes == past.crashes + 1, f"{attempt}: {past}, then {now}")
            self._watch.hold("I-20", now.ineffective == past.ineffective, f"{attempt}: {past}, then {now}")
            quarantines = now.crashes >= self._watch.world.policy.retry.quarantine_after_crashes
            self._watch.hold("I-20", now.quarantined or not quarantines, f"{attempt}: {now} is not held")

    def backed_off(self, attempt: Attempted, status: str, body: dict[str, Any]) -> None:
        """What a report does to back-off."""
        process, retry = self._watch.caller, self._watch.world.policy.retry
        assert process is not None
        now_ms = self._watch.world.lake.now_ms + process.skew_ms
        reason = Reason(body["reason"])
        if reason is Reason.STALE:
            for partition in attempt.partitions:
                key = (process.request.run_id, attempt.operation, partition)
                self.stale[key] += 1
                limit = (MAX_REPLANS + 1) * 3
                self._watch.hold("I-20", self.stale[key] <= limit, f"{key} was planned again {limit} times")
        if attempt.run_id in self.unaware:
            return
        for partition, past in attempt.before.items():
            now = self._watch.seen.pasts.get((attempt.table_uuid, attempt.operation, partition), CLEAN)
            if status == "UNKNOWN":
                self._watch.hold(
                    "I-20", now.crashes == past.crashes + 1, f"{attempt}: UNKNOWN ends its back-off"
                )
            elif status == "DONE" and body["outcome"] == "IMPROVED":
                self._watch.hold("I-20", now == CLEAN, f"{attempt}: success leaves {now}")
            elif status == "FAILED" and reason is Reason.CLOCK_SKEW:
                same = (now.ineffective, now.crashes) == (past.ineffective, past.crashes)
                self._watch.hold("I-20", same, f"{attempt}: clocks are no fault of it, {past}, then {now}")
            elif status == "FAILED" and reason not in (Reason.STALE, Reason.TERMINATED):
                # A failure after lost races is the first one.
                is_first = past.reason in LOST_RACES and reason not in LOST_RACES
                counted = 1 if is_first else past.ineffective + 1
                right = (now.ineffective, now.crashes) == (counted, past.crashes)
                self._watch.hold("I-20", right, f"{attempt} failed: {past}, then {now}")
                waits_ms = (now.not_before_ms or 0) - now_ms
                most_ms = min(retry.backoff_max_seconds, retry.backoff_seconds * 2 ** (counted - 1)) * 1000
                self._watch.hold("I-20", 0 < waits_ms <= most_ms, f"{attempt} failed: waits {waits_ms} ms")
                lost = reason in LOST_RACES
                held = now.quarantined or lost or now.ineffective < retry.quarantine_after
                self._watch.hold("I-20", held, f"{attempt} failed: {now} is not held")
