"""The whole demo, small: built, healed by Dagster's automation, proved by the second reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.demo.store import ORPHANS
from iceberg_maint.demo.tables import SMALL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.together("programs"),
    pytest.mark.long(280),
    pytest.mark.variant,  # `make run` does the same with the whole lake
]

RELEASED = 27
"""Metadata files of `weather_by_day` that only expired snapshots referenced."""


def test_demo_heals_every_unhealthy_table_and_touches_nothing_else(tmp_path: Path, java, jars) -> None:
    environ = {
        k: v for k, v in os.environ.items() if not k.startswith("ICEBERG_MAINT_") and k != "DAGSTER_HOME"
    }
    project = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "iceberg_maint",
            "--json",
            "demo",
            "--small",
            "--data",
            str(tmp_path / "data"),
        ],
        capture_output=True,
        text=True,
        cwd=project,
        env=environ | {"ICEBERG_MAINT_CACHE": str(project / ".cache")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["good"], done.stderr[-4000:]
    tables = {t["table"].removeprefix("lake.demo."): t for t in report["tables"]}
    assert {name: t["end"] for name, t in tables.items()} == {
        "flights_by_month": "healed",
        "flights_updates_v2": "healed",
        "flights_updates_v3": "healed",
        "weather": "healed",
        "weather_by_day": "healed",
        "lineitem": "healed",
        "control": "untouched",
        "cdc_planes": "healed",
        "cdc_flights_v3": "healed",
        "cdc_weather": "healed",
    }
    assert all(t["rows"]["missing"] == t["rows"]["unexpected"] == 0 for t in tables.values())
    assert (tables["weather"]["before"]["data_files"], tables["weather"]["after"]["data_files"]) == (
        SMALL.weather_batches,
        1,
    )
    assert tables["flights_updates_v2"]["before"]["position_delete_files"] > 0
    assert tables["flights_updates_v3"]["before"]["deletion_vectors"] > 0
    assert tables["flights_updates_v2"]["after"]["position_delete_files"] == 0
    assert tables["flights_updates_v3"]["after"]["deletion_vectors"] == 0
    for name in ("cdc_planes", "cdc_flights_v3", "cdc_weather"):
        assert tables[name]["before"]["equality_delete_files"] > 0
        assert tables[name]["after"]["equality_delete_files"] == 0
    converted = [tables["cdc_planes"]["after"], tables["cdc_flights_v3"]["after"]]
    assert [(t["data_files"], t["position_delete_files"], t["deletion_vectors"]) for t in converted] == [
        (4, 3, 0),
        (4, 0, 3),
    ]
    rewritten = tables["cdc_weather"]["after"]
    assert (rewritten["data_files"], rewritten["position_delete_files"]) == (3, 0)
    assert tables["lineitem"]["after"]["data_files"] == tables["lineitem"]["before"]["partitions"] == 21
    by_day = [
        (t["data_files"], t["snapshots"], t["manifests"])
        for t in (tables["weather_by_day"]["before"], tables["weather_by_day"]["after"])
    ]
    assert by_day == [
        (SMALL.weather_days, SMALL.weather_days, SMALL.weather_days),
        (SMALL.weather_days, 5, 1),
    ]
    assert {
        name: t["after"]["trashed_files"] for name, t in tables.items() if t["after"]["trashed_files"]
    } == {"weather_by_day": ORPHANS + RELEASED}
    assert not any(t["after"]["housekeeping"] for t in tables.values())
    data = [o for o in report["operations"] if o["operation"] in DATA_OPERATIONS]
    proofs = [b["proof"] for o in data for b in o["batches"]]
    assert proofs
    assert all(p["equal"] and p["level"] == "full" for p in proofs)
