"""What the component needs: Dagster alone, and of this package neither the loop nor the ledger."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from iceberg_maint_tests.support.component.alone import dagster_alone

pytestmark = pytest.mark.slow

HEAVY = ["numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "py4j"]
ROOMS = ["catalog", "columnar", "config", "engines", "integrations", "ledger", "loop", "wiring"]
LOADED = f"""
import importlib.util, json, sys
import dagster as dg
from iceberg_maint.component import build_iceberg_maintenance_defs
from iceberg_maint.core.model.ids import TableId
dg.Definitions.validate_loadable(build_iceberg_maintenance_defs([TableId.parse("lake.db.events")]))
print(json.dumps({{
    "installed": [name for name in {HEAVY} if importlib.util.find_spec(name)],
    "loaded": [name for name in {HEAVY} if name in sys.modules],
    "rooms": [room for room in {ROOMS} if f"iceberg_maint.{{room}}" in sys.modules],
}}))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dagster_alone(tmp_path_factory.mktemp("alone"))


def test_definitions_load_where_dagster_alone_is_installed(alone: Path) -> None:
    done = subprocess.run([alone, "-c", LOADED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"installed": [], "loaded": [], "rooms": []}


def test_program_without_its_extra_says_what_to_install(alone: Path) -> None:
    done = subprocess.run(
        [alone, "-m", "iceberg_maint", "tables"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"ICM-184 this Python environment ({alone.parent.parent}) has no PyIceberg: the extra `spark`, which maintains "
        "tables, is not installed. Fix: run `pip install 'iceberg-maint[spark]'` in an environment of its own, and use its "
        "Python.\n"
    )
