"""A real Prometheus on loopback."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iceberg_maint_tests.support.servers.programs import free_port, process


class Prometheus:
    """A real Prometheus' answers."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def query(self, expression: str) -> list[Any]:
        """The result of an instant query. Raises an error for a query that Prometheus refuses."""
        return list(self._get("query", query=expression)["result"])

    def query_range(self, expression: str, start: float, end: float, step_seconds: float) -> list[Any]:
        """The series of a query over a time, in seconds since 1970."""
        return list(
            self._get("query_range", query=expression, start=start, end=end, step=step_seconds)["result"]
        )

    def firing(self) -> set[tuple[str, str]]:
        """Name and table of the alerts that fire."""
        return {
            (a["labels"]["alertname"], a["labels"].get("table", ""))
            for a in self._get("alerts")["alerts"]
            if a["state"] == "firing"
        }

    def _get(self, what: str, **parameters: Any) -> Any:
        with urllib.request.urlopen(
            f"{self._url}/{what}?{urllib.parse.urlencode(parameters)}", timeout=30
        ) as answer:
            return json.load(answer)["data"]

    def wait(self, expression: str, seconds: float = 60) -> list[Any]:
        """The result of the query, once there is one."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if result := self.query(expression):
                    return result
            except OSError:
                pass
            time.sleep(0.3)
        raise TimeoutError(f"Prometheus has no result for {expression}")


@contextmanager
def prometheus(
    program: str, folder: Path, target: int, *, rules: Path | None = None, alertmanager: str = ""
) -> Iterator[Prometheus]:
    """A real Prometheus that scrapes a port of loopback every second. It evaluates the `rules`, and sends alerts to
    the Alertmanager at this address."""
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"scrape_configs: [{{job_name: iceberg_maint, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
        + (f"rule_files: ['{rules}']\n" if rules else "")
        + (
            f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}\n"
            if alertmanager
            else ""
        )
    )
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with process(command, folder / "prometheus.log"):
        yield Prometheus(port)
