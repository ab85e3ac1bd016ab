"""`make qualify SUITE=first-hour`: runs every command of docs/start/first-hour.md and compares its output with the page."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_maint_tests.qualification.first_hour.page import PAGE, Command, Deed, missing, steps

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


class Lake:
    """The lake of the page, with its writer and its accident."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hidden: Path | None = None

    def do(self, what: str) -> None:
        """Does what the page says. Raises KeyError for anything else."""
        {
            "write 6 files": self._write,
            "hide a file": self._hide,
            "restore the file": self._restore,
        }[what]()

    def _catalog(self) -> SqlCatalog:
        return SqlCatalog(
            "lake", uri=f"sqlite:///{self._folder}/catalog.db", warehouse=f"file://{self._folder}/warehouse"
        )

    def _write(self) -> None:
        (self._folder / "warehouse").mkdir(exist_ok=True)
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists("db")
        table = catalog.create_table_if_not_exists("db.events", ROWS.schema)
        for _ in range(6):
            table.append(ROWS)
        catalog.close()

    def _hide(self) -> None:
        catalog = self._catalog()
        files = [t.file.file_path for t in catalog.load_table("db.events").scan().plan_files()]
        catalog.close()
        # Spark writes `file:/path`, PyIceberg `file:///path`.
        paths = [Path("/" + f.removeprefix("file:").lstrip("/")) for f in files]
        file = max(paths, key=lambda p: p.stat().st_mtime_ns)
        self._hidden = file.rename(file.with_suffix(".hidden"))

    def _restore(self) -> None:
        assert self._hidden is not None
        self._hidden.rename(self._hidden.with_suffix(".parquet"))


def run(command: Command, folder: Path, env: dict[str, str]) -> list[str]:
    """Runs one command. Returns what differs from the page."""
    if command.line.startswith("export "):
        name, _, value = command.line.removeprefix("export ").partition("=")
        env[name] = value
        return []
    begin = time.monotonic()
    ended = subprocess.run(
        ["bash", "-c", command.line], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    print(f"$ {command.line}  [{time.monotonic() - begin:.0f} s]", flush=True)
    printed = ended.stdout + ended.stderr
    wrong = [f"lacks: {text}" for text in missing(command, printed)]
    if ended.returncode != command.exit_code:
        wrong.append(f"exit {ended.returncode} instead of {command.exit_code}")
    return [*wrong, printed] if wrong else []


def main() -> int:
    """Runs the page. Returns 0 if it is true."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-demo", action="store_true", help="leave the demo out")
    without_demo = parser.parse_args().without_demo
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ICEBERG_MAINT", "DAGSTER"))}
    env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", "COLUMNS": "80"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lake = Lake(folder / "lake")
        for step in steps(PAGE.read_text("utf-8")):
            if isinstance(step, Deed):
                lake.do(step.what)
                continue
            if without_demo and " demo " in step.line:
                continue
            if wrong := run(step, folder, env):
                print("\n".join(wrong))
                return 1
    print("every command of the first hour prints what the page says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
