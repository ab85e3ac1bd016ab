"""The kill suite: every point, mode and kind of table, one result per case, taken up where it was left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.loop.context import Context
from iceberg_maint_tests.qualification.kill.lake import Lake
from iceberg_maint_tests.qualification.kill.points import SIGKILLS, Case, Kind, Mode, Point, Seam, cases
from iceberg_maint_tests.qualification.kill.runs import (
    ask_to_stop,
    failing_run,
    lose_answer,
    resume,
    stopped_in_order,
    told,
)
from iceberg_maint_tests.qualification.kill.verify import Verifier
from iceberg_maint_tests.qualification.surroundings.parts import Parts
from iceberg_maint_tests.qualification.surroundings.stores import CACHE, folder_or_s3
from iceberg_maint_tests.support import jvm
from iceberg_maint_tests.support.damaged_memo import keep_all_manifests

MOST_ATTEMPTS = 2
"""Runs until all is as it must be."""
VICTIM_SECONDS = 400
_ROOT = Path(__file__).resolve().parents[3]

Row = dict[str, Any]


@dataclass
class Results:
    """One JSON line per case, in a file that outlives the suite."""

    path: Path
    commit: str
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path.exists():
            self.rows = [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    def done(self) -> set[str]:
        """Names of the cases with a row."""
        return {row["case"] for row in self.rows}

    def open_cases(self) -> list[Case]:
        """Cases without a row."""
        done = self.done()
        return [case for case in cases() if case.name not in done]

    def add(self, row: Row) -> None:
        """Written at once."""
        row = {**row, "commit": self.commit}
        self.rows.append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def is_good(row: Row) -> bool:
    """Whether all holds of a case that must."""
    return not row["differences"] and row["attempts"] <= MOST_ATTEMPTS


def rounds(open_cases: Iterable[Case]) -> Iterator[tuple[Point, Mode, list[Kind]]]:
    """Cases that meet their end together: those of one point and mode, each on its own table. What is
    being written does not wait for others."""
    for (point, mode), found in groupby(open_cases, key=lambda case: (case.point, case.mode)):
        kinds = [case.kind for case in found]
        alone = point.seam is Seam.WRITING and mode in SIGKILLS
        for together in [[kind] for kind in kinds] if alone else [kinds]:
            yield point, mode, together


@dataclass
class Suite:
    """Runs rounds on a lake, with one warm Spark session for what is done in this process."""

    lake: Lake
    verifier: Verifier

    @classmethod
    @contextmanager
    def alone(cls, folder: Path, store_name: str = "local") -> Iterator[Self]:
        """In a new folder, its tables there or on S3, and in this process's own Spark, whose options the killed ones
        get as well."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with folder_or_s3(store_name, folder, CACHE) as store:
            os.environ.update({**jvm.environment(), **store.secrets})
            keep_all_manifests()
            lake = Lake(folder)
            jars = Parts(CACHE.absolute()).jars("s3") if store.is_s3 else ()
            yield cls.on(lake, Bridge(lake.configured(store, jars).engine.spark.session()))

    @classmethod
    def on(cls, lake: Lake, bridge: Bridge) -> Self:
        """On this lake, which is made where there is none."""
        if not lake.is_made:
            lake.make(bridge)
        lake.put_back()
        suite = cls(lake, Verifier(lake, bridge))
        _ = suite.verifier.before
        return suite

    def round(self, point: Point, mode: Mode, kinds: Sequence[Kind]) -> Iterator[Row]:
        """One round; a row for each case."""
        self.lake.put_back()
        started = time.monotonic()
        if mode in SIGKILLS:
            came = self._killed(point, mode, kinds)
        else:
            came = {kind: self._hurt(point, mode, kind) for kind in kinds}
        hurt_seconds = (time.monotonic() - started) / len(kinds)
        for kind in kinds:
            began = time.monotonic()
            row = self._taken_up(point, kind)
            seconds = hurt_seconds + time.monotonic() - began
            case = Case(point, mode, kind)
            yield {
                "case": case.name,
                "seam": point.seam,
                **row,
                "seconds": round(seconds, 1),
                "came": came[kind],
            }

    def _hurt(self, point: Point, mode: Mode, kind: Kind) -> str:
        """In this process, which lives on."""
        contexts: list[Context] = []

        def act(context: Context) -> None:
            contexts.append(context)
            (ask_to_stop if mode is Mode.SIGTERM else lose_answer(point))(context)

        try:
            with stopped_in_order(lambda: contexts[-1] if contexts else None):
                return failing_run(self.lake, kind, point, act, f"killed-{kind}")
        finally:
            _hang_up()

    def _killed(self, point: Point, mode: Mode, kinds: Sequence[Kind]) -> dict[Kind, str]:
        """In a process of their own."""
        with Victim(self.lake, point, mode.name, kinds) as victim:
            return victim.end()

    def _taken_up(self, point: Point, kind: Kind) -> Row:
        """The runs that come after, until nothing is left to do."""
        operations = point.asked(kind)
        self.lake.expire_leases(kind)
        outcomes: list[str] = []
        attempts, differences = 0, ["not tried"]
        while differences and attempts < MOST_ATTEMPTS + 1:
            attempts += 1
            found = resume(self.lake, kind, operations)
            outcomes += [told(outcome) for outcome in found]
            differences = self.verifier.differences(kind, operations)
        return {"attempts": attempts, "differences": differences, "outcomes": outcomes}


class Victim:
    """A process with runs that wait at their point."""

    def __init__(self, lake: Lake, point: Point, fate: str, kinds: Sequence[Kind]) -> None:
        command = [sys.executable, "-m", "iceberg_maint_tests.qualification.kill.victim"]
        self.kinds = kinds
        self._errors = (lake.folder / "victim.log").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [*command, str(lake.folder), point.code, fate, *kinds],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            if pipe is not None:
                pipe.close()

    def end(self) -> dict[Kind, str]:
        """Waits for it; what came of each run. Raises AssertionError when it has not come to the point."""
        output, _ = self.process.communicate(timeout=VICTIM_SECONDS)
        said = [json.loads(line) for line in output.splitlines()]
        code = self.process.returncode
        if code == -signal.SIGKILL:
            _wait_until_gone(said[0]["jvm"])
            return dict.fromkeys(self.kinds, "killed")
        assert code == 0, f"{code}: {output} {self.log()}"
        return {kind: said[-1]["came"][kind] for kind in self.kinds}

    def wait_until_stopped(self) -> None:
        """Until all its runs are at the point. Raises AssertionError when they will not come there."""
        assert self.process.stdout is not None
        said = [json.loads(self.process.stdout.readline() or "{}") for _ in ("its JVM", "that it waits")]
        assert said[-1].get("stopped"), f"{said} {self.log()}"

    def go_on(self) -> dict[Kind, str]:
        """Lets its runs go on; what came of each."""
        output, _ = self.process.communicate("\n", timeout=VICTIM_SECONDS)
        assert self.process.returncode == 0, f"{self.process.returncode}: {output} {self.log()}"
        came = json.loads(output.splitlines()[-1])["came"]
        return {kind: came[kind] for kind in self.kinds}

    def log(self) -> str:
        """The end of what it said on its standard error."""
        self._errors.flush()
        return Path(self._errors.name).read_text("utf-8")[-3000:]


def _hang_up() -> None:
    """Ends this thread's connection to the JVM, as the end of a process does: an interrupt leaves it in
    the middle of an answer."""
    from pyspark import SparkContext

    connection = SparkContext._gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close()


def _wait_until_gone(pid: int | None) -> None:
    """A JVM ends by itself when its Python is gone."""
    deadline = time.monotonic() + 60
    while pid is not None and Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"the JVM {pid} outlives its Python"
        time.sleep(0.05)


def commit_of_checkout() -> str:
    """What the results are of."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
