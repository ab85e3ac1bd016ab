"""The demo lake beside a real Prometheus and Alertmanager: a table fails, is alerted, recovers: `make demo DEMO=observe`.

A data file of one table is taken away. Three runs fail, the webhook and the Alertmanager get the alert, and so does
the rule of Prometheus. The file comes back, a run succeeds, and the alert ends. The other tables are maintained. At
the end the panels of each dashboard are drawn from their own queries.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from docs.dashboards import DASHBOARDS, Panel
from iceberg_maint.integrations.telemetry.samples import ZERO_SECONDS
from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.qualification.observe.plots import Plot, draw
from iceberg_maint_tests.support.alerts.receivers import HttpReceiver, serving
from iceberg_maint_tests.support.servers.alertmanager import alertmanager, wait_until
from iceberg_maint_tests.support.servers.programs import free_port, process
from iceberg_maint_tests.support.servers.prometheus import Prometheus, prometheus

TABLE = "weather"
"""Its partition has small files from the start."""
SECTIONS = """
telemetry:
  prometheus: {{listen: "127.0.0.1:{port}"}}
alerts:
  receivers:
    hook: {{kind: webhook, url: "{hook}"}}
    alertmanager: {{kind: alertmanager, url: "{alertmanager}"}}
"""
RULES = PROJECT / "deploy" / "observability" / "prometheus" / "rules.yaml"
STEP_SECONDS = 2.0
WITHOUT_DATA = {"Bytes deleted from the trash", "Bytes written and not committed", "Conflicts"}
"""Panels on what does not happen in the demo."""
INTERVAL = "30s"
"""What a dashboard takes for the interval of its plots."""


class Demo:
    """The lake, and what was checked."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.failures: list[str] = []
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._started:4.0f} s] {text}", flush=True)

    def check(self, holds: bool, claim: str) -> None:
        self.say(f"{'ok  ' if holds else 'FAIL'} {claim}")
        if not holds:
            self.failures.append(claim)

    def program(self, *arguments: str) -> int:
        """Runs the program; its exit code."""
        command = [sys.executable, "-m", "iceberg_maint", *arguments, "--config", str(self.config)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    def data_file(self) -> Path:
        """A data file of the table."""
        home = self.config.parent
        catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse")
        (task, *_) = catalog.load_table(("demo", TABLE)).scan().plan_files()
        return Path(task.file.file_path.removeprefix("file:"))


def kinds_of(hook: HttpReceiver, list_name: str) -> list[tuple[str, str]]:
    """Kind and table of the incidents that our webhook got."""
    return [(i["kind"], i["table"]) for d in hook.documents for i in d.get(list_name, ())]


def statuses_of(hook: HttpReceiver) -> set[tuple[str, str]]:
    """Status and name of the alerts that the Alertmanager sent."""
    return {(d["status"], a["labels"]["alertname"]) for d in hook.documents for a in d.get("alerts", ())}


def fail_and_recover(demo: Demo, own: HttpReceiver, behind: HttpReceiver, server: Prometheus) -> None:
    """Takes a file away, and brings it back."""
    name, alert = f"lake.demo.{TABLE}", ("repeated_failure", f"lake.demo.{TABLE}")
    file = demo.data_file()
    hidden = file.with_name(f"{file.name}.away")
    file.rename(hidden)
    demo.say(f"a data file of {name} is gone")
    run = ("run", name, "--operation", "rewrite_data_files", "--force")
    demo.check([demo.program(*run) for _ in range(3)] == [1, 1, 1], "three runs fail, each with exit 1")
    demo.program("alerts", "send")
    demo.check(kinds_of(own, "fired") == [alert], "our webhook gets the alert once")
    wait_until(lambda: ("firing", "iceberg_maint_repeated_failure") in statuses_of(behind))
    demo.say("ok   the Alertmanager sends it")
    wait_until(lambda: ("IcebergMaintenanceFailsRepeatedly", TABLE) in server.firing(), ZERO_SECONDS + 60)
    demo.say("ok   the rule of Prometheus fires")
    hidden.rename(file)
    demo.say("the data file is back")
    demo.check(demo.program(*run) == 0, "the next run succeeds")
    demo.program("alerts", "send")
    demo.check(kinds_of(own, "cleared") == [alert], "our webhook gets the end once")
    wait_until(lambda: ("resolved", "iceberg_maint_repeated_failure") in statuses_of(behind))
    demo.say("ok   the Alertmanager sends the end")


def plot(panel: Panel, server: Prometheus, start: float, end: float) -> Plot:
    """The lines of a panel by its own query."""
    query = panel.query.replace("$catalog", ".*").replace("$table", ".*")
    query = query.replace("$__rate_interval", INTERVAL)
    lines = {}
    for series in server.query_range(query, start, end, STEP_SECONDS):
        name = " ".join(series["metric"].get(label, "") for label in labels_of(panel)) or panel.title
        points = [(float(t), float(v)) for t, v in series["values"] if v not in ("NaN", "+Inf")]
        if points:
            lines[name] = thinned(points)
    return Plot(panel.title, panel.unit, lines)


def labels_of(panel: Panel) -> list[str]:
    """The labels in the legend of a panel."""
    return [part.split("}}")[0] for part in panel.legend.split("{{")[1:]]


def thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points where the value changes, with the one before each."""
    keep = [
        n
        for n, (_, value) in enumerate(points)
        if n in (0, len(points) - 1) or value != points[n - 1][1] or value != points[n + 1][1]
    ]
    return [points[n] for n in keep]


def draw_dashboards(server: Prometheus, start: float, end: float, folder: Path) -> set[str]:
    """Writes a picture per dashboard. Returns the titles of the panels without data."""
    folder.mkdir(parents=True, exist_ok=True)
    empty = set()
    for name, (title, panels) in DASHBOARDS.items():
        plots = [plot(panel, server, start, end) for panel in panels]
        empty |= {p.title for p in plots if not p.lines}
        (folder / f"dashboard-{name}.svg").write_text(draw(title, plots, start, end), "utf-8")
    return empty


def run(programs: Any, folder: Path, pictures: Path) -> int:
    own, behind, port = HttpReceiver(), HttpReceiver(), free_port()
    config = folder / "iceberg_maint.yaml"
    demo = Demo(config)
    subprocess.run(
        [sys.executable, "-m", "iceberg_maint", "demo", "--small", "--build-only", "--data", str(folder)],
        check=True,
        capture_output=True,
    )
    demo.say("the demo lake is built")
    with ExitStack() as stack:
        for receiver in (own, behind):
            stack.enter_context(serving(receiver.server))
        manager = stack.enter_context(alertmanager(programs.alertmanager, folder, behind.url))
        sections = SECTIONS.format(port=port, hook=own.url, alertmanager=manager)
        config.write_text(config.read_text("utf-8") + sections, "utf-8")
        serve = [sys.executable, "-m", "iceberg_maint", "telemetry", "serve", "--config", str(config)]
        stack.enter_context(process(serve, folder / "serve.log"))
        address = manager.removeprefix("http://")
        server = stack.enter_context(
            prometheus(programs.prometheus, folder, port, rules=RULES, alertmanager=address)
        )
        server.wait("up == 1")
        start = time.time()
        demo.check(demo.program("observe") == 0, "every table is measured")
        server.wait(f'iceberg_maint_due_partitions{{table="{TABLE}"}}')
        demo.say("Prometheus has the numbers of the fleet")
        fail_and_recover(demo, own, behind, server)
        demo.check(demo.program("run") == 0, "all tables are maintained")
        demo.program("alerts", "send")
        demo.say("waiting until Prometheus has counted the last operations")
        time.sleep(ZERO_SECONDS + 10)
        empty = draw_dashboards(server, start, time.time(), pictures)
        total = sum(len(panels) for _, panels in DASHBOARDS.values())
        demo.say(f"pictures of {total} panels are in {pictures}")
        demo.check(empty == WITHOUT_DATA, f"every panel has data except: {', '.join(sorted(empty))}")
    demo.say("FAILED: " + "; ".join(demo.failures) if demo.failures else "good")
    return int(bool(demo.failures))


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(prog="make demo DEMO=observe")
    parser.add_argument("--prometheus", default="prometheus")
    parser.add_argument("--alertmanager", default="prometheus-alertmanager")
    parser.add_argument("--pictures", type=Path, default=PROJECT / "docs" / "images")
    programs = parser.parse_args(arguments)
    missing = [p for p in (programs.prometheus, programs.alertmanager) if shutil.which(p) is None]
    if missing:
        print(
            f"There is no program {missing[0]}. Install it, or name it with PROMETHEUS=path and ALERTMANAGER=path."
        )
        return 2
    with tempfile.TemporaryDirectory() as folder:
        return run(programs, Path(folder), programs.pictures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
