"""The Python environment that maintains tables for a project of Dagster: the project's own, or another one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint import __version__
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import CODES, ConfigurationError

VERSION_SECONDS = 60
TABLES_SECONDS = 900
"""Time for the version, and for the first measurement of all tables."""
_OF_THIS_PYTHON = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables that lead another Python to the packages of this one."""
_CODED = re.compile(r"(?P<code>ICM-\d{3}) (?P<text>.+)")
_INSTALL = f"run `pip install 'iceberg-maint[spark]=={__version__}'` in that environment, or name another one in `python`."


@dataclass(frozen=True, slots=True)
class Environment:
    """`python` is the interpreter that has the extra `spark`. `config` is the configuration file; None for the default of the
    program. `environ` are variables besides those of this process."""

    python: str = sys.executable
    config: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        """The call of the program there. It imports nothing from the current folder."""
        config = [] if self.config is None else ["--config", self.config]
        return [self.python, "-P", "-m", "iceberg_maint", *config, *arguments]

    def variables(self) -> dict[str, str]:
        """The variables of its processes."""
        hidden = () if self.python == sys.executable else _OF_THIS_PYTHON
        return {**{k: v for k, v in os.environ.items() if k not in hidden}, **self.environ}

    def check(self) -> None:
        """Raises ConfigurationError ICM-184 if the environment has no Python, no program or another version."""
        said = self._call(["--version"], VERSION_SECONDS)
        found = said.stdout.rpartition(" ")[2].strip()
        if said.returncode != 0:
            raise self._broken(said)
        if found != __version__:
            raise _refusal(
                f"{self.python} has iceberg-maint {found or 'of an unknown version'}, this environment has {__version__}."
            )

    def tables(self) -> tuple[TableId, ...]:
        """The tables of the configured catalogs, sorted. A table that cannot be read is one of them.

        Raises ConfigurationError ICM-184, or the error of the configuration or of a catalog that does not answer with its code.
        """
        self.check()
        said = self._call(["tables", "--json"], TABLES_SECONDS)
        document = _document(said.stdout)
        rows = document.get("tables")
        if not isinstance(rows, list):
            raise self._broken(said)
        for catalog in document["unlisted_catalogs"]:
            # Without its tables their assets would disappear.
            raise ConfigurationError(catalog["code"], catalog["message"], catalog["fix"])
        names = [str(row["table"]).split(".") for row in rows]
        return tuple(sorted(TableId(parts[0], tuple(parts[1:-1]), parts[-1]) for parts in names))

    def _call(self, arguments: Sequence[str], seconds: int) -> subprocess.CompletedProcess[str]:
        command = self.command(*arguments)
        try:
            return subprocess.run(
                command,
                env=self.variables(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except OSError as why:
            raise _refusal(
                f"`python` of the component, {self.python}, cannot be started: {why.strerror}."
            ) from why
        except subprocess.TimeoutExpired as why:
            raise _refusal(f"`{' '.join(command)}` did not end within {seconds} seconds.") from why

    def _broken(self, said: subprocess.CompletedProcess[str]) -> ConfigurationError:
        """The error that a call ended with: that of the program with its code, else the last line."""
        lines = [line for line in (*said.stdout.splitlines(), *said.stderr.splitlines()) if line.strip()]
        for line in reversed(lines):
            coded = _CODED.search(line)
            if coded is not None and coded["code"] in CODES and not line.startswith((" ", "{", '"')):
                return ConfigurationError(coded["code"], coded["text"])
        last = lines[-1].strip().rstrip(".") if lines else "it said nothing"
        return _refusal(f"`{self.python} -m iceberg_maint` ended with exit code {said.returncode}: {last}.")


def _refusal(message: str) -> ConfigurationError:
    return ConfigurationError("ICM-184", message, _INSTALL)


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
