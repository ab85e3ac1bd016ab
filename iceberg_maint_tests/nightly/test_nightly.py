"""The list covers every suite of the Makefile, the page follows from the record, and a run stops and continues."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.nightly.__main__ import RECORD, commit_of_checkout, night, run
from iceberg_maint_tests.nightly.suites import Row, Suite, load, merge, page, read, select, write


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit and a folder for the record."""
    (tmp_path / "docs" / "project").mkdir(parents=True)
    (tmp_path / "docs" / "project" / "testing.md").write_text("", "utf-8")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


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


def test_list_has_every_suite_and_bench_of_the_makefile() -> None:
    makefile = (PROJECT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^\.PHONY: ((?:test|bench|sim|demo)(?:-[a-z0-9-]+)?)$", makefile, re.MULTILINE))
    assert "bench-columnar" in targets
    assert targets - {s.name for s in load()} == set()
    run_by_make = {s.shell().split()[1] for s in load() if s.shell().startswith("make ")}
    assert run_by_make - set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE)) == set()


def test_page_is_what_the_record_and_the_list_say() -> None:
    written = RECORD.with_suffix(".md").read_text("utf-8")
    assert written == page(read(RECORD), load()), "run make nightly NIGHTLY=--page"


def test_workflow_runs_every_shard_of_its_count() -> None:
    text = (PROJECT / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    shards = [int(n) for n in re.findall(r"shard: \[([\d, ]+)]", text)[0].split(",")]
    assert shards == list(range(1, len(shards) + 1))
    assert f"/{len(shards)}" in text
    names = [s.name for n in shards for s in select(load(), shard=(n, len(shards)))]
    assert sorted(names) == sorted(s.name for s in load())


def test_selection_has_the_shard_of_the_named_suites_from_the_shortest_on() -> None:
    suites = [Suite("test-b", "", 3), Suite("bench-a", "", 9), Suite("test-a", "", 1), Suite("docs", "", 2)]
    assert [s.name for s in select(suites)] == ["test-a", "docs", "test-b", "bench-a"]
    assert [s.name for s in select(suites, ["test", "docs"], (1, 2))] == ["test-a", "test-b"]
    assert [s.name for s in select(suites, ["test", "docs"], (2, 2))] == ["docs"]
    assert [s.name for s in select([*suites, Suite("test", "", 5)], ["test"])] == ["test"]


@pytest.mark.parametrize(
    ("suite", "result"),
    [
        (Suite("a", "", 1, command="true"), "passed"),
        (Suite("a", "", 1, command="exit 3"), "failed: exit code 3"),
        (Suite("a", "", 0.005, command="sleep 60"), "failed: over 0.005 minutes"),
        (
            Suite("a", "", 1, command="true", needs=["bash", "no-such-program"]),
            "not run: missing no-such-program",
        ),
    ],
)
def test_suite_that_ends_so_has_the_result(suite: Suite, result: str, checkout: Path) -> None:
    row = run(suite, checkout, checkout.parent / "logs")
    assert (row.result, row.commit) == (result, commit_of_checkout(checkout))


def test_process_that_a_suite_leaves_in_another_session_is_ended(checkout: Path) -> None:
    pid = checkout.parent / "pid"
    script = f"setsid bash -c 'echo $$ > {pid}; exec sleep 600' & while [ ! -s {pid} ]; do :; done"
    assert run(Suite("a", "", 1, command=script), checkout, checkout.parent / "logs").result == "passed"
    status = Path("/proc", pid.read_text("utf-8").strip(), "status")
    assert not status.exists() or "State:\tZ" in status.read_text("utf-8")


def test_night_that_continues_runs_what_has_not_passed_on_this_commit(checkout: Path) -> None:
    ran = checkout.parent / "ran"
    good, bad = (
        Suite("docs", "", 1, command=f"echo docs >> {ran}"),
        Suite("dist", "", 1, command=f"echo dist >> {ran}; exit 1"),
    )
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
