"""Every kind of alert through a real Alertmanager to a webhook, and beside it to our own webhook: `make qualify SUITE=alerts`.

Each kind begins and ends on a table of its own. Both receivers must get each beginning and each end once, although our
passes send every open alert to the Alertmanager again and again.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from iceberg_maint.core.alerts import (
    AlertKind,
    Condition,
    Incident,
    TableConditions,
    follow,
    messages_for,
    taken,
)
from iceberg_maint.integrations.alerts.receivers import Alertmanager, Receiver, Webhook
from iceberg_maint_tests.support.alerts.receivers import HttpReceiver, serving
from iceberg_maint_tests.support.servers.alertmanager import alertmanager, wait_until

PASSES = 8
"""Passes while the alerts are open."""


def look(incidents: Sequence[Incident], kinds: Sequence[AlertKind], now_ms: int) -> tuple[Incident, ...]:
    tables = [
        TableConditions(
            f"lake.db.{kind.value}",
            f"uuid-{kind.value}",
            ("team-a",),
            (Condition(kind, f"{kind.value} <b>&\n"),) if kind in kinds else (),
        )
        for kind in AlertKind
    ]
    return follow(incidents, tables, {t.table_uuid for t in tables}, now_ms)


def send(
    incidents: tuple[Incident, ...], receivers: dict[str, Receiver], now_ms: int
) -> tuple[Incident, ...]:
    still_open = tuple(i for i in incidents if i.fired_ms is not None and i.cleared_ms is None)
    for name, receiver in receivers.items():
        messages = messages_for(name, frozenset(), incidents)
        receiver.send(messages, still_open, now_ms)
        incidents = taken(name, messages, incidents)
    return incidents


def by_alertmanager(hook: HttpReceiver) -> collections.Counter[tuple[str, str]]:
    """How often Alertmanager sent the status of each kind."""
    return collections.Counter(
        (document["status"], alert["labels"]["alertname"].removeprefix("iceberg_maint_"))
        for document in hook.documents
        for alert in document["alerts"]
    )


def by_us(hook: HttpReceiver) -> collections.Counter[tuple[str, str]]:
    return collections.Counter(
        (status, incident["kind"])
        for document in hook.documents
        for status, key in (("firing", "fired"), ("resolved", "cleared"))
        for incident in document[key]
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make qualify SUITE=alerts")
    parser.add_argument("--alertmanager", default="prometheus-alertmanager")
    program = parser.parse_args(arguments).alertmanager
    behind, own = HttpReceiver(), HttpReceiver()
    kinds = [k.value for k in AlertKind]
    firing = collections.Counter({("firing", k): 1 for k in kinds})
    both = firing + collections.Counter({("resolved", k): 1 for k in kinds})
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(behind.server),
        serving(own.server),
        alertmanager(program, Path(folder), behind.url) as url,
    ):
        receivers: dict[str, Receiver] = {
            "am": Alertmanager(url, {}, 5),
            "hook": Webhook(own.url, {}, 5),
        }
        incidents: tuple[Incident, ...] = ()
        for _ in range(PASSES):
            now_ms = time.time_ns() // 1_000_000
            incidents = send(look(incidents, tuple(AlertKind), now_ms), receivers, now_ms)
            time.sleep(0.5)
        wait_until(lambda: len(by_alertmanager(behind)) >= len(kinds))
        time.sleep(2)
        begun = by_alertmanager(behind)
        now_ms = time.time_ns() // 1_000_000
        incidents = send(look(incidents, (), now_ms), receivers, now_ms)
        wait_until(lambda: len(by_alertmanager(behind)) >= 2 * len(kinds))
        time.sleep(2)
    results = {
        f"{PASSES} passes: Alertmanager sent each of {len(kinds)} kinds once": begun == firing,
        "Alertmanager sent each beginning and each end once": by_alertmanager(behind) == both,
        "our webhook got each beginning and each end once": by_us(own) == both,
    }
    for claim, holds in results.items():
        print(f"{'ok  ' if holds else 'FAIL'} {claim}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
