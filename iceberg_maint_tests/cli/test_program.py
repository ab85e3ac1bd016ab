"""The program as a process: what it prints where, what it refuses, how it starts."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from rich.console import Console

from iceberg_maint.cli import COMMANDS, PYICEBERG, iceberg_maint, require_extra
from iceberg_maint.cli.context import Session, most_severe_exit
from iceberg_maint.cli.pages.run_page import RunProgress
from iceberg_maint.errors import ConfigurationError

pytestmark = pytest.mark.slow


def program(*arguments: str, home: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "iceberg_maint", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
        env={**os.environ, "ICEBERG_MAINT_HOME": str(home), **environ},
    )


@pytest.fixture
def real_lake(tmp_path: Path) -> Path:
    """The embedded default with one real table of six files."""
    (tmp_path / "warehouse").mkdir()
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    catalog.create_namespace("db")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    table = catalog.create_table("db.events", rows.schema)
    for _ in range(6):
        table.append(rows)
    catalog.close()
    return tmp_path


def test_embedded_default_without_a_lake_says_what_is_missing(tmp_path: Path) -> None:
    run = program("tables", home=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(
        f"ICM-104 catalog 'lake' cannot be reached: {tmp_path}/catalog.db does not exist."
    )
    assert list(tmp_path.iterdir()) == []


def test_real_table_is_observed_twice_in_the_same_bytes_and_explained(real_lake: Path) -> None:
    observed = program("observe", "--json", home=real_lake).stdout
    again = program("observe", "--json", home=real_lake).stdout
    shown = program("why", "db.events", home=real_lake)
    tables = program("tables", "--json", home=real_lake).stdout

    assert json.loads(observed)["tables"][0]["health"]["small_files"] == 6
    assert again == observed
    assert shown.returncode == 0
    assert "lake.db.events: Unhealthy: 1 of 1 partition is due" in shown.stdout
    assert json.loads(tables)["tables"][0]["verdict"] == "RUN"


def test_refusal_is_one_line_and_a_document(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("catalogs: {lake: {type: hadoop, warehouse: 'file:///w'}}\n")
    for arguments in (
        ("--config", str(file), "tables", "--json"),
        ("tables", "--json", "--config", str(file)),
    ):
        run = program(*arguments, home=tmp_path)
        assert run.returncode == 3
        assert run.stderr.count("\n") == 1
        assert run.stderr.startswith("ICM-106 catalogs.lake.type is hadoop")
        assert json.loads(run.stdout)["error"]["code"] == "ICM-106"


def test_unsafe_spark_setting_is_refused_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "catalogs: {lake: {type: rest, uri: 'http://127.0.0.1:1'}}\n"
        "spark: {conf: {spark.speculation: 'true'}}\n"
    )
    run = program("tables", "--config", str(file), home=tmp_path)
    assert (run.returncode, run.stderr[:7]) == (3, "ICM-105")


def test_secret_of_the_environment_is_never_printed(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "ledger: {env: LEDGER}\ncatalogs: {lake: {type: rest, uri: 'http://127.0.0.1:1', properties: {token: {env: T}}}}\n"
    )
    for command in (["history"], ["doctor", "--no-spark", "--json"]):
        run = program(
            *command,
            "--config",
            str(file),
            home=tmp_path,
            LEDGER="postgresql://me:c4nary-pw@127.0.0.1:1/x",
            T="c4nary-token",
        )
        assert run.returncode == 2, run.stderr
        assert "c4nary" not in run.stdout + run.stderr
        assert "ICM-1" in run.stdout + run.stderr


def test_what_others_print_does_not_spoil_the_document(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from iceberg_maint.cli.context import Session\n"
        "s = Session(as_json=True)\n"
        "def body():\n"
        "    os.write(1, b'noise of a child process\\n'); print('noise of a library')\n"
        "    s.emit({'a': 1}, lambda console: None)\n"
        "sys.exit(s.run(body))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == {"a": 1}
    assert "noise of a child process" in run.stderr
    assert "noise of a library" in run.stderr


def test_unexpected_error_exits_1_with_a_document() -> None:
    def broken(_path: Path | None) -> None:
        raise ZeroDivisionError("by zero")

    result = CliRunner().invoke(iceberg_maint, ["tables", "--json"], obj=Session(load=broken))  # type: ignore[arg-type]
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"] == {
        "code": None,
        "message": "ZeroDivisionError: by zero",
        "fix": "",
    }


def test_several_exit_codes_give_the_most_severe() -> None:
    assert most_severe_exit({0, 3, 1, 4, 2}) == 2
    assert most_severe_exit({0, 3, 1, 4}) == 4
    assert most_severe_exit({0, 3, 1}) == 1
    assert most_severe_exit({0, 3}) == 3
    assert most_severe_exit(set()) == 0


def every_command() -> Iterator[tuple[str, ...]]:
    """All commands as they are called, those of a group each."""
    for name in COMMANDS:
        found = iceberg_maint.get_command(click.Context(iceberg_maint), name)
        yield from (
            ((name, inner) for inner in found.commands) if isinstance(found, click.Group) else [(name,)]
        )


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_every_command_takes_config_and_json(words: tuple[str, ...]) -> None:
    text = CliRunner().invoke(iceberg_maint, [*words, "--help"]).stdout
    assert "--config" in text
    assert "--json" in text


def heavy_modules(home: Path, *arguments: str) -> str:
    """Which of these modules the program loads for a command."""
    code = (
        "import sys\nfrom iceberg_maint.cli import main\n"
        f"try:\n    main({list(arguments)!r})\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'pydantic', 'rich', 'pyiceberg', 'sqlalchemy', 'pandas', 'pyspark', 'dagster', 'numpy', "
        "'pyarrow.dataset', 'pyiceberg.table'}\n"
        "print(sorted(n for n in heavy if sys.modules.get(n)), file=sys.stderr)\n"
    )
    environ = {**os.environ, "ICEBERG_MAINT_HOME": str(home)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=home, env=environ
    )
    return run.stderr.strip()


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    assert heavy_modules(tmp_path, "--help") == "[]"


def test_command_that_reads_a_table_loads_neither_pandas_nor_all_of_pyiceberg(real_lake: Path) -> None:
    read = "['numpy', 'pydantic', 'pyiceberg', 'rich', 'sqlalchemy']"
    assert heavy_modules(real_lake, "why", "db.events") == read


def test_message_beside_a_progress_bar_begins_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    out = io.BytesIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal(out, "utf-8", write_through=True))
    session = Session()
    with RunProgress(session.logs()) as progress:
        progress.begin("lake.db.t", None, "measuring")
        session.say("lake.db.t: ICM-128 lost.")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue().decode())
    assert "lake.db.t: ICM-128 lost." in re.split(r"[\r\n]+", shown)


def test_progress_bar_counts_the_batches_of_all_operations() -> None:
    out = io.StringIO()
    with RunProgress(Console(file=out, force_terminal=True, width=80)) as progress:
        progress.begin("lake.db.t", None)
        for batches in (2, 1):
            progress.add_steps(batches)
            for _ in range(batches):
                progress.step()
        progress.note("removed")
    assert re.findall(r"\d/\d", out.getvalue())[-1] == "3/3"


@pytest.mark.parametrize(("installed", "found"), [(None, "no PyIceberg"), ("0.11.1", "PyIceberg 0.11.1")])
def test_environment_without_the_extra_is_refused_with_what_to_install(
    installed: str | None, found: str
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        require_extra(installed)
    assert str(refusal.value) == (
        f"ICM-184 this Python environment ({sys.prefix}) has {found}: the extra `spark`, which maintains tables, is not "
        "installed. Fix: run `pip install 'iceberg-maint[spark]'` in an environment of its own, and use its Python."
    )


def test_environment_with_the_extra_is_the_locked_one() -> None:
    require_extra(version("pyiceberg"))
    assert version("pyiceberg").startswith(PYICEBERG)
