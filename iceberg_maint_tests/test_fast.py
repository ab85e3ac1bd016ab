"""The fast tests run in an environment without Spark and Dagster, that of `requirements/fast.txt`."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
COLLECT = """
import sys
from importlib.abc import MetaPathFinder
import pytest

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

MISSING = set(sys.argv[1].split())
sys.meta_path.insert(0, Missing())
sys.exit(pytest.main(["--fast", "--collect-only", "-qq", "-p", "no:randomly"]))
"""


@pytest.mark.slow
def test_fast_tests_import_nothing_that_their_environment_lacks() -> None:
    lines = (PROJECT / "requirements" / "fast.txt").read_text("utf-8").splitlines()
    installed = {
        "iceberg-maint",
        *(line.partition("==")[0].partition("[")[0] for line in lines if "==" in line),
    }
    missing = [
        module
        for module, names in packages_distributions().items()
        if not installed.intersection(n.lower().replace("_", "-") for n in names)
    ]
    assert {"dagster", "pyspark"} <= set(missing)
    command = [sys.executable, "-c", COLLECT, " ".join(missing)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
