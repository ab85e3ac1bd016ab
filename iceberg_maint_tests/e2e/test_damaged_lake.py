"""Lakes with a damaged file of each kind, each in its table: every screen says the same of a table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint_tests.support.e2e.damaged_lake import DAMAGES, SOUND, kind_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.together("programs"),
    pytest.mark.long(280),
]

UNREADABLE = ("manifest", "list", "metadata")
"""Kinds of files without which a table cannot be read. Without the others work fails; only `attest` reads `output`."""
DRAWN = ("manifest_denied", "vectors_garbage", "output_gone")
OTHERS = tuple(
    name
    for kind in (*UNREADABLE, "data", "deletes", "vectors", "output")
    for damage in DAMAGES
    if (name := f"{kind}_{damage}") not in DRAWN
)
NAMES = [*DRAWN, *(pytest.param(name, marks=pytest.mark.variant) for name in OTHERS)]
LAKES = [pytest.param(DRAWN, id="drawn"), pytest.param(OTHERS, id="others", marks=pytest.mark.variant)]
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Starts a process of root that may read and write no more than the mode of a file says."""


@pytest.fixture(scope="module")
def screens_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each screen said, by command and table, of a lake with these damages."""
    prefix = WITHOUT_RIGHTS if os.geteuid() == 0 and shutil.which("setpriv") else ()

    @cache
    def screens(names: tuple[str, ...]) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("damaged")
        if not is_denied(folder / "probe", prefix):
            names = tuple(name for name in names if not name.endswith("denied"))
        module = "iceberg_maint_tests.support.e2e.damaged_lake"
        command = [*prefix, sys.executable, "-m", module, str(folder), *names]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        shown: dict[str, Any] = json.loads((folder / "screens.json").read_text("utf-8"))
        return shown

    return screens


def is_denied(probe: Path, prefix: tuple[str, ...]) -> bool:
    """Whether a process with this prefix cannot read a file without rights."""
    probe.touch(mode=0)
    return subprocess.run([*prefix, "cat", str(probe)], capture_output=True, check=False).returncode != 0


@pytest.fixture
def screens(screens_of: Any, name: str) -> dict[str, Any]:
    """What each screen said of the lake with the damaged table."""
    shown: dict[str, Any] = screens_of(DRAWN if name in DRAWN else OTHERS)
    if name not in shown["files"]:
        pytest.skip("this user reads files that deny it")
    return shown


def code_of(name: str) -> str:
    """The code that each screen says."""
    if not name.endswith("denied"):
        return "ICM-101"
    return "ICM-125" if kind_of(name) in UNREADABLE else "ICM-133"


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


def is_seen(name: Any) -> bool:
    """Whether screens other than `attest` meet the damage."""
    return kind_of(getattr(name, "values", (name,))[0]) != "output"


@pytest.mark.parametrize("name", [n for n in NAMES if is_seen(n)])
def test_damage_has_the_same_code_and_file_on_every_screen(screens: dict[str, Any], name: str) -> None:
    shown = {command: problem(entry) for command, entry in entries(screens, name).items()}
    if kind_of(name) == "metadata":
        # Nothing is left to attest of a table without new commits, so its manifests are not read.
        shown["attest"] = problem(screens[f"attest {name}"]["document"])
    codes = {command: p.get("code") for command, p in shown.items()}
    assert codes == dict.fromkeys(shown, code_of(name)), (shown, screens["run"]["stderr"])
    file = screens["files"][name]
    assert [command for command, p in shown.items() if file not in p["message"]] == []
    assert file in screens["run"]["stderr"]
    check = screens["checks"][name]
    assert (check["passed"], code_of(name) in check["text"], file in check["text"]) == (False, True, True)
    records = [r for r in screens["history after"]["document"]["records"] if r["table"] == f"lake.db.{name}"]
    assert ([r["outcome"] for r in records], code_of(name) in json.dumps(records)) == (["FAILED"], True)
    if kind_of(name) not in UNREADABLE and not name.endswith("denied"):  # a person's run tries those again
        tried = {problem(entry)["until_ms"] for entry in entries(screens, name).values()}
        states = {entries(screens, name)[command]["status"] for command in ("tables", "report")}
        assert (len(tried), states) == (1, {"failed"})


@pytest.mark.parametrize("name", [n for n in NAMES if not is_seen(n)])
def test_damage_that_attest_meets_is_named_on_every_later_screen(screens: dict[str, Any], name: str) -> None:
    attested, file = screens[f"attest {name}"], screens["files"][name]
    if name.endswith("denied"):
        text = attested["stderr"]
    else:
        (commit,) = attested["document"]["commits"]
        text = commit["detail"]
    assert (attested["exit"], text.startswith(code_of(name)), file in text) == (
        1 if name.endswith("denied") else 3,
        True,
        True,
    )
    last = screens["last tables"]["document"]["tables"]
    row = next(r for r in last if r["table"] == f"lake.db.{name}")
    if name.endswith("denied"):
        assert row["failure"] is None
    else:
        failure = (row["failure"]["code"], row["failure"]["operation"], file in row["failure"]["message"])
        assert (row["status"], *failure) == ("failed", "ICM-101", "verifying", True)


@pytest.mark.parametrize("lake", LAKES)
def test_damaged_tables_wait_and_others_are_sound(screens_of: Any, lake: tuple[str, ...]) -> None:
    screens = screens_of(lake)
    assert screens["tick"] == []
    assert [command for command, entry in entries(screens, SOUND).items() if problem(entry)] == []
    assert screens["checks"][SOUND]["passed"] is True
    codes = {c: screens[c]["exit"] for c in ("run", "run after", "tables after", "observe after")}
    assert codes == dict.fromkeys(codes, 1)
