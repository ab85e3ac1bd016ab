"""Every kind of alert through a real Alertmanager to a webhook, and beside it to our own webhook: `make test-alerts`.

Each kind begins and ends on a table of its own. Both receivers must get each beginning and each end once, although our
passes send every open alert to the Alertmanager again and again.
"""

from __future__ import annotations

import argparse
import collections
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iceberg_maint.alerts.receivers import Alertmanager, Receiver, Webhook
from iceberg_maint.core.alerts.condition import AlertKind, Condition
from iceberg_maint.core.alerts.incident import Incident, TableConditions, follow, messages_for, taken
from iceberg_maint_tests.support.alerts.receivers import HttpReceiver, serving

CONFIG = """\
route: {{receiver: hook, group_by: [alertname, table], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers:
  - name: hook
    webhook_configs: [{{url: "{url}", send_resolved: true}}]
"""
PASSES = 8
"""Passes while the alerts are open."""
SECONDS = 60


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def alertmanager(program: str, folder: Path, hook: str) -> Iterator[str]:
    """A running Alertmanager that sends to `hook`; its address."""
    (folder / "alertmanager.yml").write_text(CONFIG.format(url=hook), encoding="utf-8")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    ]
    with (folder / "alertmanager.log").open("wb") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: is_ready(url))
            yield url
        finally:
            started.terminate()
            started.wait(10)


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {SECONDS} seconds")
        time.sleep(0.1)


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
    parser = argparse.ArgumentParser(prog="make test-alerts")
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
