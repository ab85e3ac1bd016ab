"""The project of the demo in an environment of its own, its lake, and `dagster dev` over it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from contextlib import suppress
from pathlib import Path

import psutil
import requests

from iceberg_maint_tests.qualification.platform.component import package

_FILES = Path(__file__).with_name("host")
_CONFIG = """\
ledger: sqlite:///{folder}/ledger.db
catalogs:
  lake:
    type: jdbc
    uri: sqlite:///{folder}/catalog.db
    warehouse: file://{folder}/warehouse
spark:
  master: local[2]
  conf: {{spark.driver.memory: 1g, spark.sql.shuffle.partitions: "2"}}
defaults:
  windows: {{max_partitions_per_batch: 1}}
"""
_DBT = "#!{python}\nfrom dbt.cli.main import cli\ncli()\n"
_START_SECONDS = 120


class HostProject:
    """The project in a folder. `apart` has its packages. Nothing in it asks for anything that the component would need."""

    def __init__(self, folder: Path, apart: Path, port: int) -> None:
        self.folder, self.home, self.url = folder, folder / "dagster_home", f"http://127.0.0.1:{port}"
        self._dbt, self._port = folder / "project" / "dbt", port
        shutil.copytree(_FILES, folder / "project", ignore=shutil.ignore_patterns("__pycache__"))
        for made in (folder / "warehouse", self.home):
            made.mkdir()
        # What every new project has.
        (self.home / "dagster.yaml").touch()
        (folder / "iceberg_maint.yaml").write_text(_CONFIG.format(folder=folder), "utf-8")
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        own = [apart, package(folder / "package"), folder / "project" / "src"]
        site = folder / "venv" / "lib" / version / "site-packages"
        (site / "project.pth").write_text("".join(f"{path}\n" for path in own), "utf-8")
        dbt = self.python.with_name("dbt")
        dbt.write_text(_DBT.format(python=self.python), "utf-8")
        dbt.chmod(0o755)

    def environ(self) -> dict[str, str]:
        """The variables of its processes."""
        hidden = ("PYTHON", "VIRTUAL_ENV", "ICEBERG_MAINT_", "DAGSTER_")
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(hidden)},
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "LAKE_URI": f"sqlite:///{self.folder}/catalog.db",
            "LAKE_WAREHOUSE": f"file://{self.folder}/warehouse",
            "LAKE_CONFIG": str(self.folder / "iceberg_maint.yaml"),
            "LAKE_PYTHON": sys.executable,
            "SHOP_DBT": str(self._dbt),
        }

    def prepare(self) -> None:
        """Creates the tables, and the manifest of the dbt project."""
        self.call("-c", "from shop.defs.ingest import create_tables; create_tables()")
        self.call("-m", "dbt.cli.main", "parse", "--quiet", cwd=self._dbt)

    def call(self, *arguments: str, cwd: Path | None = None) -> str:
        """The output of a call of its Python."""
        command = [str(self.python), *arguments]
        done = subprocess.run(
            command, env=self.environ(), cwd=cwd, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        return done.stdout

    def start(self) -> None:
        """Starts `dagster dev`, and returns when its web server answers."""
        command = [self.python, "-m", "dagster", "dev", "-m", "shop.definitions"]
        with (self.home / "dagster.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "-h", "127.0.0.1", "-p", str(self._port)],
                env=self.environ(),
                cwd=self.folder / "project",
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + _START_SECONDS
        while True:
            with suppress(requests.ConnectionError):
                if requests.get(f"{self.url}/server_info", timeout=10).ok:
                    return
            if time.monotonic() > until or self._process.poll() is not None:
                raise RuntimeError(f"dagster dev does not answer: {self.log()[-3000:]}")
            time.sleep(1)

    def log(self) -> str:
        """The output of `dagster dev`."""
        return (self.home / "dagster.log").read_text("utf-8", "replace")

    def processes(self, argument: str) -> list[psutil.Process]:
        """The processes of its Dagster with this argument."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("DAGSTER_HOME") == str(self.home) and argument in process.cmdline():
                    found.append(process)
        return found

    def ask(self, query: str, **variables: object) -> dict[str, object]:
        """The answer of Dagster's GraphQL."""
        asked = {"query": query, "variables": variables}
        answer = requests.post(f"{self.url}/graphql", json=asked, timeout=60).json()
        if "errors" in answer:
            raise RuntimeError(str(answer["errors"])[:2000])
        data: dict[str, object] = answer["data"]
        return data

    def stop(self) -> None:
        """Ends all processes of its Dagster."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("DAGSTER_HOME") == str(self.home):
                    process.kill()
