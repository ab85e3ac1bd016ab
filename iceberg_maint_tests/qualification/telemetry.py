"""One real run's numbers in a real Prometheus, OTLP, DogStatsD and CloudWatch: `make qualify SUITE=observe`.

The program runs as a process, with Spark, on tables that PyIceberg wrote. Its receivers are on loopback. Then
`telemetry serve` runs as a process, and a real Prometheus scrapes it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from docs.dashboards import DASHBOARDS, RULES
from iceberg_maint.integrations.telemetry.catalogue import BACKLOG_BYTES, DUE_PARTITIONS, OBSERVED
from iceberg_maint_tests.support.e2e.lake import iceberg_maint, make_lake, make_table
from iceberg_maint_tests.support.servers.programs import free_port, process
from iceberg_maint_tests.support.servers.prometheus import Prometheus, prometheus
from iceberg_maint_tests.support.telemetry.receivers import (
    BY_PROMETHEUS_NAME,
    Gateway,
    Numbers,
    OtlpReceiver,
    StatsdListener,
    cloudwatch_numbers,
    fake_aws,
    key_of,
)

SECTION = """\
telemetry:
  prometheus: {{listen: "127.0.0.1:{port}", pushgateway: "{gateway}"}}
  otlp: {{endpoint: "{otlp}/v1/metrics"}}
  dogstatsd: {{port: {statsd}}}
  cloudwatch: {{region: eu-central-1, endpoint: "{aws}"}}
"""
WITHOUT_RESULT = {
    "cost: Bytes deleted from the trash",
    "cost: Bytes moved to the trash",
    "cost: Bytes written and not committed",
    "operations: Conflicts",
    "operations: Expired snapshots",
    "operations: Manifests replaced",
    "table: Trash",
}
"""Panels on what one rewrite does not do."""
NOW_DEPENDENT = {OBSERVED.name, DUE_PARTITIONS.name, BACKLOG_BYTES.name}
"""Gauges that the page of the ledger computes from the time of the scrape."""


def numbers_of(server: Prometheus) -> Numbers:
    """The samples of our series in Prometheus."""
    numbers: Numbers = {}
    for sample in server.wait('{__name__=~"iceberg_.*"}'):
        labels = dict(sample["metric"])
        name = labels.pop("__name__")
        labels.pop("job"), labels.pop("instance")
        base, _, part = name.rpartition("_")
        value = float(sample["value"][1])
        if name in BY_PROMETHEUS_NAME:
            numbers[key_of(BY_PROMETHEUS_NAME[name].name, labels)] = value
        elif part in ("count", "sum"):
            numbers[key_of(f"{BY_PROMETHEUS_NAME[base].name} {part}", labels)] = value
    return numbers


def differences(name: str, expected: Numbers, actual: Numbers) -> list[str]:
    """The numbers that a receiver lacks or has otherwise, one line each."""
    lines = []
    for key, value in sorted(expected.items()):
        other = actual.get(key)
        if other is None or abs(other - value) > 1e-6 * max(1.0, abs(value)):
            lines.append(f"{name}: {key} is {other}, expected {value}")
    return lines


def refused_queries(server: Prometheus) -> list[str]:
    """Queries of dashboards and rules that this Prometheus refuses, and panels that have a result or lack it, unlike
    `WITHOUT_RESULT` says."""
    lines = []
    panels = [(name, panel) for name, (_, panels) in DASHBOARDS.items() for panel in panels]
    queries = [(f"{name}: {panel.title}", panel.query) for name, panel in panels]
    empty = set()
    for name, query in [*queries, *((f"rules: {rule.name}", rule.query) for rule in RULES)]:
        text = query.replace("$catalog", ".*").replace("$table", ".*").replace("$__rate_interval", "5m")
        try:
            result = server.query(text)
        except OSError as why:
            lines.append(f"{name}: {text} is refused: {why}")
            continue
        if not result:
            empty.add(name)
    panels_empty = {name for name in empty if not name.startswith("rules: ")}
    lines += [f"{name} has no result" for name in sorted(panels_empty - WITHOUT_RESULT)]
    lines += [f"{name} has a result" for name in sorted(WITHOUT_RESULT - panels_empty)]
    print(
        f"{len(queries) + len(RULES)} queries of dashboards and rules evaluated, {len(empty)} without a result"
    )
    return lines


def run(program: str, folder: Path) -> list[str]:
    """The differences between the receivers."""
    gateway, otlp, statsd, port = Gateway(), OtlpReceiver(), StatsdListener(), free_port()
    with fake_aws() as aws:
        section = SECTION.format(port=port, gateway=gateway.url, otlp=otlp.url, statsd=statsd.port, aws=aws)
        config = make_lake(folder, more=section)
        make_table(folder, "db.orders", 8)
        # One operation: every gauge is sent once, and CloudWatch has statistics of its value only.
        done = iceberg_maint(["run", "lake.db.orders", "--operation", "rewrite_data_files"], config)
        if done.returncode:
            return [done.stderr]
        sent = {"cloudwatch": cloudwatch_numbers("iceberg_maint", aws)}
        statsd.drain()
        sent |= {"otlp": otlp.numbers(), "dogstatsd": statsd.numbers(), "pushgateway": gateway.numbers()}
        expected = sent["otlp"]
        lines = [line for name, numbers in sent.items() for line in differences(name, expected, numbers)]
        with (
            process(
                [sys.executable, "-m", "iceberg_maint", "telemetry", "serve", "--config", str(config)],
                folder / "serve.log",
            ),
            prometheus(program, folder, port) as server,
        ):
            server.wait("up == 1")
            stable = {k: v for k, v in expected.items() if k[0] not in NOW_DEPENDENT}
            lines += differences("prometheus", stable, numbers_of(server))
            time.sleep(3)  # an increase needs two scrapes
            lines += refused_queries(server)
    for receiver in (gateway, otlp, statsd):
        receiver.close()
    rewritten = [v for (name, _), v in expected.items() if name == "iceberg_maint.rewrite.input.files"]
    print(f"{len(expected)} numbers in 5 receivers; {sum(rewritten):.0f} files rewritten")
    return lines if rewritten else [*lines, "the run rewrote nothing"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--prometheus", default="prometheus")
    program = shutil.which(parser.parse_args().prometheus)
    if program is None:
        print("There is no program prometheus. Install it, or name it with PROMETHEUS=path.")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        lines = run(program, Path(folder))
    print("\n".join(lines) or "every receiver has the same numbers")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
