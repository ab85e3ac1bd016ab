"""One lake with a damaged file of each kind in each table: every screen says the same of a table."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from iceberg_maint_tests.support.e2e.damaged_lake import DAMAGES, SOUND

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

UNREADABLE = ("manifest_garbage", "list_gone", "metadata_cut")
"""Tables whose metadata cannot be read. Work on the others fails."""
VERIFIED = "output_cut"
"""The table that only `verify` reads the damaged file of."""
FAILING = tuple(name for name in DAMAGES if name not in (*UNREADABLE, VERIFIED))


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each screen said, by command and table."""
    folder = tmp_path_factory.mktemp("damaged")
    command = [sys.executable, "-m", "iceberg_maint_tests.support.e2e.damaged_lake", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shown: dict[str, Any] = json.loads((folder / "screens.json").read_text("utf-8"))
    return shown


def entries(screens: dict[str, Any], name: str) -> dict[str, Any]:
    """The entry of the table on each screen that has one."""
    rows = {
        command: next(
            row
            for row in screens[f"{command} after"]["document"]["tables"]
            if row["table"] == f"lake.db.{name}"
        )
        for command in ("tables", "observe", "report")
    }
    return rows | {command: screens[f"{command} {name}"]["document"] for command in ("why", "plan")}


def problem(entry: dict[str, Any]) -> dict[str, Any]:
    """The error or the failure of an entry; empty without one."""
    return entry.get("error") or entry.get("failure") or {}


@pytest.mark.parametrize("name", [*UNREADABLE, *FAILING])
def test_damage_has_the_same_code_and_file_on_every_screen(screens: dict[str, Any], name: str) -> None:
    shown = {command: problem(entry) for command, entry in entries(screens, name).items()}
    assert {command: p.get("code") for command, p in shown.items()} == dict.fromkeys(shown, "ICM-101")
    file = screens["files"][name]
    assert [command for command, p in shown.items() if file not in p["message"]] == []
    assert file in screens["run"]["stderr"]
    check = screens["checks"][name]
    assert (check["passed"], "ICM-101" in check["text"], file in check["text"]) == (False, True, True)


@pytest.mark.parametrize("name", [*UNREADABLE, *FAILING])
def test_damage_is_a_failed_record_with_its_code(screens: dict[str, Any], name: str) -> None:
    records = screens["history after"]["document"]["records"]
    own = [r for r in records if r["table"] == f"lake.db.{name}"]
    assert [r["outcome"] for r in own] == ["FAILED"]
    assert "ICM-101" in json.dumps(own)


@pytest.mark.parametrize("name", FAILING)
def test_failed_work_is_tried_again_at_the_same_time_on_every_screen(
    screens: dict[str, Any], name: str
) -> None:
    shown = entries(screens, name)
    assert len({problem(entry)["until_ms"] for entry in shown.values()}) == 1
    assert {shown[command]["status"] for command in ("tables", "report")} == {"failed"}


def test_damaged_tables_are_not_requested_while_they_wait(screens: dict[str, Any]) -> None:
    assert screens["tick"] == []


def test_sound_table_is_sound_on_every_screen(screens: dict[str, Any]) -> None:
    assert [command for command, entry in entries(screens, SOUND).items() if problem(entry)] == []
    assert screens["checks"][SOUND]["passed"] is True


def test_exit_codes_say_that_a_person_must_look(screens: dict[str, Any]) -> None:
    codes = {c: screens[c]["exit"] for c in ("run", "run after", "tables after", "observe after")}
    assert codes == dict.fromkeys(codes, 1)


def test_verify_of_a_damaged_file_names_it_and_every_later_screen_says_so(screens: dict[str, Any]) -> None:
    verified = screens[f"verify {VERIFIED}"]
    error = verified["document"]["error"]
    assert (verified["exit"], error["code"]) == (3, "ICM-101")
    assert (screens["files"][VERIFIED] in error["message"], verified["stderr"].count("\n")) == (True, 1)
    last = screens["last tables"]["document"]["tables"]
    row = next(r for r in last if r["table"] == f"lake.db.{VERIFIED}")
    assert (row["status"], row["failure"]["code"], row["failure"]["operation"]) == (
        "failed",
        "ICM-101",
        "verifying",
    )
