"""Each entry of the list can be run, the pages follow from the list and the record follows from the record, and a run stops and continues."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.nightly.__main__ import RECORD, commit_of_checkout, night, run
from iceberg_maint_tests.nightly.named import README, readme
from iceberg_maint_tests.nightly.suites import Row, Suite, check_call, load, merge, page, read, select, write


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit and a folder for the record."""
    (tmp_path / "docs" / "project").mkdir(parents=True)
    (tmp_path / "docs" / "project" / "testing.md").write_text("", "utf-8")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


class Line(Suite):
    """A suite whose nightly run is a line of shell."""

    def shell(self) -> str:
        return self.command


def shell(command: str, name: str = "a", minutes: float = 1, programs: Sequence[str] = ()) -> Suite:
    return Line("make", name, minutes=minutes, command=command, programs=programs)


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=T", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")


def record_of(checkout: Path) -> Path:
    return checkout / "docs" / "project" / "nightly.json"


def passed(checkout: Path, suites: list[Suite], *, any_commit: bool = False) -> list[str]:
    """The suites that a night runs, by the lines that they write."""
    night(suites, record_of(checkout), checkout.parent / "logs", any_commit=any_commit)
    ran = (checkout.parent / "ran").read_text("utf-8").split() if (checkout.parent / "ran").exists() else []
    (checkout.parent / "ran").unlink(missing_ok=True)
    return ran


def test_every_entry_says_what_it_is_and_its_command_has_its_options() -> None:
    for suite in load():
        if suite.kind != "make":
            assert suite.about, suite.title
            assert re.findall(r"\{([A-Z]+)\}", suite.line({})) == [], suite.title
            assert [name for name in suite.options if f"{{{name}}}" not in suite.command] == []
            assert bool(suite.size) == bool(suite.minutes)


@pytest.mark.parametrize("suite", load(), ids=lambda suite: suite.title)
def test_modules_paths_and_locks_of_an_entry_exist(suite: Suite) -> None:
    assert [
        m for m in re.findall(r"-m ((?:bench|iceberg_maint)[\w.]*)", suite.command) if not find_spec(m)
    ] == []
    paths = re.findall(r"(?<![\w/.])((?:bench|docs|iceberg_maint_tests)/[\w./-]+)", suite.command)
    assert [path for path in paths if not (PROJECT / path).exists()] == []
    locks = {f"requirements/{need}.txt" for need in suite.needs}
    assert [lock for lock in locks if not (PROJECT / lock).exists()] == []
    check_call(shlex.split(suite.shell()), load())


def test_line_of_a_suite_has_the_options_of_the_call_then_its_own_and_the_arguments_last() -> None:
    suite = Suite("bench", "a", command="run --rows {ROWS} --seed {SEED}", options={"ROWS": "5", "SEED": "1"})
    assert suite.line({}) == "run --rows 5 --seed 1"
    assert suite.line({"SEED": "7", "ARGS": "--only 'x y'"}) == "run --rows 5 --seed 7 --only 'x y'"
    with pytest.raises(
        ValueError, match=r"make bench BENCH=a has no option STEPS. Fix: use one of ROWS, SEED, ARGS."
    ):
        suite.line({"STEPS": "1"})


@pytest.mark.parametrize(
    "call", ["make qualify SUITE=gone", "make bench BENCH=gate STEPS=1", "make demo DEMO=kill"]
)
def test_call_of_what_is_not_in_the_list_is_an_error(call: str) -> None:
    with pytest.raises(ValueError, match="Fix: "):
        check_call(call.split(), load())


def make(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "iceberg_maint_tests.nightly.named", *words]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_target_without_a_name_lists_each_of_its_kind_on_a_line() -> None:
    names = [s.name for s in load() if s.kind == "demo"]
    lines = make("demo", "WORKERS=2").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == names


def test_target_with_a_wrong_name_or_option_runs_nothing_and_exits_with_two() -> None:
    wrong = make("qualify", "SUITE=kil"), make("qualify", "SUITE=kill", "STEPS=3")
    assert [w.returncode for w in wrong] == [2, 2]
    assert wrong[0].stderr == "SUITE=kil is not in the list. Fix: `make qualify` prints the names.\n"
    assert wrong[1].stderr == "make qualify SUITE=kill has no option STEPS. Fix: use one of ARGS.\n"


def test_page_of_the_folder_of_suites_is_what_the_list_says() -> None:
    assert README.read_text("utf-8") == readme(load()), "run 'make reference'"


def test_page_is_what_the_record_and_the_list_say() -> None:
    written = RECORD.with_suffix(".md").read_text("utf-8")
    assert written == page(read(RECORD), load()), "run make nightly NIGHTLY=--page"


def test_workflow_runs_every_shard_of_its_count() -> None:
    text = (PROJECT / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    shards = [int(n) for n in re.findall(r"shard: \[([\d, ]+)]", text)[0].split(",")]
    assert shards == list(range(1, len(shards) + 1))
    assert f"/{len(shards)}" in text
    titles = [s.title for n in shards for s in select(load(), shard=(n, len(shards)))]
    assert sorted(titles) == sorted(s.title for s in load() if s.minutes)


def test_selection_has_the_shard_of_the_named_suites_from_the_shortest_on() -> None:
    suites = [
        Suite("qualify", "b", minutes=3),
        Suite("bench", "a", minutes=9),
        Suite("qualify", "a", minutes=1),
        Suite("make", "docs", minutes=2),
        Suite("demo", "pictures"),
    ]

    def titles(*arguments: Any) -> list[str]:
        return [s.title for s in select(suites, *arguments)]

    assert titles() == ["qualify-a", "docs", "qualify-b", "bench-a"]
    assert titles(["qualify", "docs"], (1, 2)) == ["qualify-a", "qualify-b"]
    assert titles(["qualify", "docs"], (2, 2)) == ["docs"]
    assert [s.title for s in select([*suites, Suite("make", "bench", minutes=5)], ["bench"])] == ["bench"]


@pytest.mark.parametrize(
    ("suite", "result"),
    [
        (shell("true"), "passed"),
        (shell("exit 3"), "failed: exit code 3"),
        (shell("sleep 60", minutes=0.005), "failed: over 0.005 minutes"),
        (shell("true", programs=["bash", "no-such-program"]), "not run: missing no-such-program"),
    ],
)
def test_suite_that_ends_so_has_the_result(suite: Suite, result: str, checkout: Path) -> None:
    row = run(suite, checkout, checkout.parent / "logs")
    assert (row.result, row.commit) == (result, commit_of_checkout(checkout))


def test_process_that_a_suite_leaves_in_another_session_is_ended(checkout: Path) -> None:
    pid = checkout.parent / "pid"
    script = f"setsid bash -c 'echo $$ > {pid}; exec sleep 600' & while [ ! -s {pid} ]; do :; done"
    assert run(shell(script), checkout, checkout.parent / "logs").result == "passed"
    status = Path("/proc", pid.read_text("utf-8").strip(), "status")
    end = time.monotonic() + 60
    while (
        running := status.exists() and "State:\tZ" not in status.read_text("utf-8")
    ) and time.monotonic() < end:
        time.sleep(0.05)  # A killed process ends when the machine gives it time.
    assert not running


def test_night_that_continues_runs_what_has_not_passed_on_this_commit(checkout: Path) -> None:
    ran = checkout.parent / "ran"
    good, bad = shell(f"echo docs >> {ran}", "docs"), shell(f"echo dist >> {ran}; exit 1", "dist")
    assert passed(checkout, [good, bad]) == ["docs", "dist"]
    assert passed(checkout, [good, bad]) == ["dist"]
    commit(checkout)  # of the record only
    assert passed(checkout, [good, bad]) == ["dist"]
    (checkout / "docs" / "project" / "testing.md").write_text("changed", "utf-8")
    assert passed(checkout, [good], any_commit=True) == []
    assert passed(checkout, [good]) == ["docs"]
    assert read(record_of(checkout))["docs"].commit.endswith("+")


def test_merge_of_records_has_the_newest_row_of_each_suite(tmp_path: Path) -> None:
    old, new = (
        Row("docs", "a", "2026-11-28 01:00", 1, "passed"),
        Row("docs", "b", "2026-11-28 01:01", 1, "failed: exit code 1"),
    )
    other = Row("dist", "a", "2026-11-28 01:00", 1, "passed")
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    write(first, {"docs": new}, load())
    write(second, {"docs": old, "dist": other}, load())
    assert merge([first, second]) == {"docs": new, "dist": other}
