"""Runs every suite and bench of `suites.toml` one after another: `make nightly`.

    python -m iceberg_maint_tests.nightly [--shard 2/6] [--only WORD...] [--any-commit] [--list]
    python -m iceberg_maint_tests.nightly --merge RECORD... | --page

A row is in docs/project/nightly.json and on its page as soon as its suite ends. A run goes on where the last one was cut
off: it skips what passed on this commit, with --any-commit what passed on any. The output of each suite is in build/nightly.
Exits 1 if a selected suite has not passed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from iceberg_maint_tests.nightly.suites import (
    PASSED,
    PROJECT,
    Row,
    Suite,
    load,
    merge,
    page,
    read,
    select,
    write,
)

RECORD = PROJECT / "docs" / "project" / "nightly.json"
LOGS = PROJECT / "build" / "nightly"
_MARK = "ICEBERG_MAINT_NIGHTLY_SUITE"
"""A variable in the environment of all processes of a suite, also of those that leave its process group."""
_STOP_SECONDS = 20


def commit_of_checkout(project: Path) -> str:
    """The newest commit to more than the record; with a plus if the checkout has other changes."""
    others = ["--", ".", ":(exclude)docs/project/nightly.*"]

    def git(*arguments: str) -> str:
        command = ["git", *arguments, *others]
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=True).stdout.strip()

    return git("log", "-1", "--abbrev=8", "--format=%h") + ("+" if git("status", "--porcelain") else "")


def run(suite: Suite, project: Path, logs: Path) -> Row:
    """Runs one suite. Ends what is left of it after its time limit, and what it leaves behind."""
    commit, began = commit_of_checkout(project), time.monotonic()
    if missing := suite.missing():
        return _row(suite, commit, 0, f"not run: missing {', '.join(missing)}")
    programs = Path(sys.executable).parent
    mark = f"{_MARK}={suite.title}-{os.getpid()}"
    environ = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "MFLAGS"}
    environ |= {"PATH": f"{programs}:{environ['PATH']}", _MARK: mark.partition("=")[2]}
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / f"{suite.title}.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", suite.shell()],
            cwd=project,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            code = process.wait(suite.minutes * 60)
            result = PASSED if code == 0 else f"failed: exit code {code}"
        except subprocess.TimeoutExpired:
            result = f"failed: over {suite.minutes:g} minutes"
        finally:
            _end(process, mark)
    return _row(suite, commit, time.monotonic() - began, result)


def _row(suite: Suite, commit: str, seconds: float, result: str) -> Row:
    return Row(suite.title, commit, f"{datetime.now(UTC):%Y-%m-%d %H:%M}", round(seconds / 60, 1), result)


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ends all processes of the suite, first by SIGTERM."""
    asked: set[int] = set()
    end = time.monotonic() + _STOP_SECONDS
    while (left := _marked(mark)) and time.monotonic() < end:
        _signal(left - asked, signal.SIGTERM)
        asked |= left
        time.sleep(0.1)
    _signal(left, signal.SIGKILL)
    process.wait()


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _marked(mark: str) -> set[int]:
    """The processes that run with the mark."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found


def night(suites: Sequence[Suite], record: Path, logs: Path, *, any_commit: bool) -> list[str]:
    """Runs the suites that have not passed. Returns the names of those that have not passed at the end."""
    project = record.parents[2]
    for suite in suites:
        row = read(record).get(suite.title)
        if (
            row is not None
            and row.result == PASSED
            and (any_commit or row.commit == commit_of_checkout(project))
        ):
            continue
        print(f"{suite.title}: {suite.shell()} (at most {suite.minutes:g} minutes)", flush=True)
        row = run(suite, project, logs)
        # Read again: another shard may have written meanwhile.
        write(record, read(record) | {suite.title: row}, load())
        print(f"{suite.title}: {row.result}, {row.minutes:g} minutes", flush=True)
    rows = read(record)
    return [s.title for s in suites if s.title not in rows or rows[s.title].result != PASSED]


def _shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not 1 <= int(number) <= int(count):
        raise argparse.ArgumentTypeError(f"{text} is no shard. Fix: write NUMBER/COUNT, for example 2/6.")
    return int(number), int(count)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make nightly")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="NUMBER/COUNT")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="suites with a word in their names"
    )
    parser.add_argument("--any-commit", action="store_true", help="skip what passed on any commit")
    parser.add_argument("--list", action="store_true", help="print the selected suites, run nothing")
    parser.add_argument(
        "--merge", type=Path, nargs="+", metavar="RECORD", help="write the newest rows of records"
    )
    parser.add_argument("--page", action="store_true", help="write the page from the record again")
    given = parser.parse_args(arguments)
    if given.merge or given.page:
        rows = merge([RECORD, *(given.merge or ())])
        write(RECORD, rows, load())
        print(page(rows, load()))
        return 0
    suites = select(load(), given.only, given.shard)
    if given.list:
        print("\n".join(f"{s.title}: {s.shell()}" for s in suites))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; run it again to continue"))
    red = night(suites, RECORD, LOGS, any_commit=given.any_commit)
    print(
        f"{len(suites) - len(red)} of {len(suites)} passed" + "".join(f"\nnot passed: {name}" for name in red)
    )
    return int(bool(red))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
