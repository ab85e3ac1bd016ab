"""Runs a worker of a benchmark: one part of it in a process of its own, on the lake in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent


def run_worker(module: str, part: str, home: Path, **environ: str) -> dict[str, Any]:
    """Returns what `python -m module --worker part` prints in its last line, as JSON. The process has the configuration
    of the lake and these variables. If it fails, its errors end this program."""
    run = subprocess.run(
        [sys.executable, "-m", module, "--worker", part],
        cwd=PROJECT,
        env={**os.environ, "ICEBERG_MAINT_CONFIG": str(home / "iceberg_maint.yaml"), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise SystemExit(run.stderr[-4000:])
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return result
