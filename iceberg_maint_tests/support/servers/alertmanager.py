"""A real Alertmanager on loopback."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iceberg_maint_tests.support.servers.programs import free_port

CONFIG = """\
route: {{receiver: hook, group_by: [alertname, table], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers:
  - name: hook
    webhook_configs: [{{url: "{url}", send_resolved: true}}]
"""
SECONDS = 60


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


def wait_until(holds: Any, seconds: float = SECONDS) -> None:
    """Waits until the condition holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} seconds")
        time.sleep(0.1)
