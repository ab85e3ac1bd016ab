"""Two Flink jobs write one table that is maintained; killed, they go on from their checkpoints. Two others maintain theirs as well."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.flink.job import FlinkHome, FlinkJob, flink_catalog, flink_home, started
from iceberg_maint.config import load_config
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY
from iceberg_maint_tests.qualification.platform.lake import (
    NONE,
    Lake,
    difference,
    expected,
    open_lake,
    wait_for,
)

_TABLE = "db.events"
_ROWS, _ROWS_PER_SECOND = 10_000, 50
_KEYS, _FIRST_KEY = 97, 1_000_000
_FAILURES = ("[ERROR]", " to FAILED", "]: Exception ", "]: Failed to plan", "Failed to expiring")
"""Of a job, and of a task of `TableMaintenance`, which goes on."""
_RETRY = "Retrying task after failure"
_CLICKS = "db.clicks"
_MAINTAINING = {
    "flink-maintenance.rewrite.enabled": "true",
    "flink-maintenance.rewrite.schedule.commit-count": "3",
    "flink-maintenance.expire-snapshots.enabled": "true",
    "flink-maintenance.expire-snapshots.schedule.commit-count": "5",
    "flink-maintenance.expire-snapshots.max-snapshot-age-seconds": "10",
    "flink-maintenance.expire-snapshots.retain-last": "100",
    "flink-maintenance.rate-limit-seconds": "1",
    "flink-maintenance.lock-check-delay-seconds": "1",
}
"""Iceberg's `TableMaintenance` behind the commits of its sink for Flink."""
_SETTINGS = """\
execution.checkpointing.dir: file://{checkpoints}
execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION
execution.checkpointing.num-retained: 1000
{restored}
"""
_SCRIPT = """\
SET 'execution.target' = 'local';
SET 'table.dml-sync' = 'true';
SET 'table.exec.iceberg.use-v2-sink' = '{v2}';
CREATE CATALOG lake WITH ({catalog});
CREATE TABLE IF NOT EXISTS lake.{table} (id BIGINT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('format-version' = '2');
CREATE TEMPORARY TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence',
  'fields.n.start' = '0', 'fields.n.end' = '{last}', 'rows-per-second' = '{rate}');
INSERT INTO lake.{table} /*+ OPTIONS({options}) */ SELECT {columns} FROM numbers;
"""


@dataclass(frozen=True)
class _Kind:
    """What one job writes into which table, with options of Iceberg's sink."""

    name: str
    table: str
    columns: str
    options: Mapping[str, str]
    v2: bool = False
    rows: int = _ROWS


_APPEND = _Kind("append", _TABLE, "n, n", {"upsert-enabled": "false"})
_UPSERT = _Kind("upsert", _TABLE, f"{_FIRST_KEY} + MOD(n, {_KEYS}), n", {"upsert-enabled": "true"}, v2=True)

_UPSERTED = {_FIRST_KEY + n % _KEYS: n for n in range(_ROWS)}
_WANTED = Counter[object]([(n, n) for n in range(_ROWS)] + list(_UPSERTED.items()))
"""The rows of an appending and an upserting job."""


def differences(folder: Path, packages: Path) -> list[str]:
    """What differs from the expected."""
    with open_lake(folder) as lake:
        jobs = _Jobs(lake, flink_home(load_config(lake.config(), os.environ), packages))
        return [*_restored(lake, jobs), *_beside(lake, jobs)]


class _Jobs:
    """Starts jobs on the lake."""

    def __init__(self, lake: Lake, home: FlinkHome) -> None:
        self._lake, self._home = lake, home
        catalog = flink_catalog(load_config(lake.config(), os.environ).catalogs["lake"])
        self._catalog = ", ".join(f"'{k}' = '{v}'" for k, v in catalog.items() if k != "name")

    def start(self, kind: _Kind, restored: Path | None = None) -> AbstractContextManager[FlinkJob]:
        """Starts a job from its first row, or from a checkpoint."""
        folder = self._lake.folder / (f"{kind.name}-again" if restored else kind.name)
        script = _SCRIPT.format(
            v2=str(kind.v2).lower(),
            catalog=self._catalog,
            table=kind.table,
            last=kind.rows - 1,
            rate=_ROWS_PER_SECOND,
            options=", ".join(f"'{k}' = '{v}'" for k, v in kind.options.items()),
            columns=kind.columns,
        )
        line = f"execution.state-recovery.path: file://{restored}" if restored else ""
        settings = _SETTINGS.format(checkpoints=folder / "checkpoints", restored=line)
        return started(self._home, folder, script, settings)

    def checkpoints(self, kind: _Kind) -> list[Path]:
        """The complete checkpoints of the first start of a job, the oldest first."""
        files = (self._lake.folder / kind.name / "checkpoints").glob("*/chk-*/_metadata")
        return sorted((f.parent for f in files), key=lambda f: int(f.name.removeprefix("chk-")))

    def failures(self, job: FlinkJob) -> list[str]:
        """The lines of a job's output and log that tell of a failure. A job does not restart."""
        lines = [*job.said().splitlines(), *_log(job).splitlines()]
        return [line[:300] for line in lines if any(text in line for text in _FAILURES)]


def _log(job: FlinkJob) -> str:
    return (job.folder / "flink.log").read_text("utf-8", "replace")


def _restored(lake: Lake, jobs: _Jobs) -> list[str]:
    """An appending and an upserting job, beside maintenance. Both are killed and all is expired that nobody holds. The
    appending job goes on from its newest checkpoint, the upserting one from an old one."""
    configs = [lake.config("columnar"), lake.config("native")]
    failures, retries = list[str](), 0
    with jobs.start(_APPEND) as append, jobs.start(_UPSERT) as upsert:
        wait_for(
            lambda: min(len(jobs.checkpoints(k)) for k in (_APPEND, _UPSERT)) > 1, "checkpoints of both jobs"
        )
        with lake.maintained(_TABLE, configs) as beside:
            wait_for(lambda: beside.total() >= 3, "three commits of maintenance beside Flink")
        failures += [*jobs.failures(append), *jobs.failures(upsert)]
        retries += sum(_log(job).count(_RETRY) for job in (append, upsert))
        append.process.kill()
        upsert.process.kill()
    before = _commits(lake)
    lake.maintain(_TABLE, lake.config("columnar", keep=1))
    kept = _commits(lake)
    old = jobs.checkpoints(_UPSERT)[len(jobs.checkpoints(_UPSERT)) // 2]
    with jobs.start(_APPEND, jobs.checkpoints(_APPEND)[-1]) as append, jobs.start(_UPSERT, old) as upsert:
        with lake.maintained(_TABLE, configs):
            wait_for(lambda: not (append.running or upsert.running), "the end of both jobs", 400)
        failures += [*jobs.failures(append), *jobs.failures(upsert)]
        retries += sum(_log(job).count(_RETRY) for job in (append, upsert))
        ended = append.succeeded, upsert.succeeded
    lake.maintain(_TABLE, lake.config("columnar", keep=1))
    held = len(lake.summaries(_TABLE))
    print(
        f"  commits of {len(before)} jobs {sorted(before.values())}, beside {dict(beside)}; "
        f"kept {sorted(kept.values())}; "
        f"{retries} commits of Flink tried again; {held} snapshots held after two starts of each job"
    )
    return expected(
        {
            "jobs ended": (ended, (True, True)),
            "failures of Flink": (failures, []),
            "jobs whose state is kept": (set(kept), set(before)),
            "rows": (difference(Counter[object](lake.rows(_TABLE)), _WANTED), NONE),
        }
    )


def _beside(lake: Lake, jobs: _Jobs) -> list[str]:
    """A job appends and maintains its table itself, another one upserts. This program sees the maintainer, stays away from what it
    rewrites, does the rest and attests its commits."""
    append = replace(_APPEND, name="both", table=_CLICKS, options=_APPEND.options | _MAINTAINING, v2=True)
    upsert = replace(_UPSERT, name="both-upsert", table=_CLICKS)
    refusing, coexisting = (lake.config(keep=100, foreign=mode) for mode in ("refuse", "coexist"))
    verdicts, failures = Counter[str](), list[str]()
    with jobs.start(append) as appending, jobs.start(upsert) as upserting:
        wait_for(lambda: bool(jobs.checkpoints(append)) and _rewrites(lake) > 0, "a rewrite by Flink")
        refused = lake.call("run", f"lake.{_CLICKS}", config=refusing, code=3)
        with lake.maintained(_CLICKS, [coexisting]):
            while appending.running or upserting.running:
                verdicts += _verdicts(lake, coexisting)
        failures += [*jobs.failures(appending), *jobs.failures(upserting)]
        retries = sum(_log(job).count(_RETRY) for job in (appending, upserting))
        ended = appending.succeeded, upserting.succeeded
    verdicts += _verdicts(lake, coexisting)
    metadata = lake.table(_CLICKS).metadata
    print(
        f"  maintained by Flink as well: {dict(verdicts)}; {len(metadata.snapshots)} of {metadata.last_sequence_number} "
        f"snapshots left; {retries} commits of Flink tried again"
    )
    return expected(
        {
            "jobs ended": (ended, (True, True)),
            "failures of Flink": (failures, []),
            "refused beside Flink": ("rewrite_data_files: UNSUPPORTED foreign_maintainer" in refused, True),
            "verdicts": ({verdict.split()[-1] for verdict in verdicts}, {"ATTESTED"}),
            "commits of Flink attested": (verdicts["Apache Flink ATTESTED"] > 0, True),
            "snapshots expired": (len(metadata.snapshots) < metadata.last_sequence_number, True),
            "rows": (difference(Counter[object](lake.rows(_CLICKS)), _WANTED), NONE),
        }
    )


def _rewrites(lake: Lake) -> int:
    """How many retained commits of another maintainer there are."""
    return sum(s["operation"] == "replace" and TOKEN_PROPERTY not in s for s in lake.summaries(_CLICKS))


def _verdicts(lake: Lake, config: Path) -> Counter[str]:
    """The verdicts on the commits since the last call. Raises AssertionError for one that is not green."""
    document = json.loads(lake.call("attest", f"lake.{_CLICKS}", "--json", config=config))
    return Counter(f"{commit['maintainer']} {commit['status']}" for commit in document["commits"])


def _commits(lake: Lake) -> Counter[str]:
    """How many retained commits each job has."""
    return Counter(s["flink.job-id"] for s in lake.summaries(_TABLE) if "flink.job-id" in s)
