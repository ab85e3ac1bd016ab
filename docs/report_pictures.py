"""Takes the pictures of the HTML report and of the assessment that the docs show.

    make run                                                       # a lake that was maintained
    .venv/bin/iceberg-maint demo --small --build-only --data sick  # and one that was not
    make demo DEMO=report-pictures

`NAME.png` is dark, `NAME-light.png` is light, `NAME-phone.png` is as wide as a phone. Nothing may be wider than its
window or, in print, than the paper inside its margins.

The report gets what a lake of one hour does not have: a run that fails because a data file is gone, a writer that begins to
write small files, and earlier days. The days are made up from the measurement of today; all else is real.

Needs Chromium (`apt-get install chromium`); CHROMIUM names another one than the PATH's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from random import random
from typing import Any

import pyarrow as pa
from playwright.sync_api import Browser, sync_playwright
from pyiceberg.catalog.sql import SqlCatalog

IMAGES = Path(__file__).resolve().parent / "images"
VIEWS: dict[str, tuple[int, Any]] = {"": (1100, "dark"), "-light": (1100, "light"), "-phone": (390, "light")}
"""End of the picture's name → width of the window and theme."""
PAPER: Any = {"width": 703, "height": 1032}
"""A4 within margins of 12 mm, at 96 pixels an inch."""
MAX_BYTES = 500_000
_OVERFLOW = """[...document.querySelectorAll("html, .wide, td, th, li, span, p, h1, h2")]
  .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != "inline")
  .map(e => `${e.tagName} "${e.textContent.slice(0, 30)}" is ${e.scrollWidth - e.clientWidth} pixels too wide`).join("; ")"""
"""Names the elements whose content is wider than they are."""


def make_history(config: Path, python: str) -> None:
    """Adds a failure, a writer of small files and earlier days to the maintained lake."""
    lake = config.parent
    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}/warehouse")
    if not catalog.table_exists("demo.sensor_log"):
        schema = pa.schema([("value", pa.float64())])
        properties = {"write.target-file-size-bytes": str(256 * 1024)}
        table = catalog.create_table("demo.sensor_log", schema, properties=properties)
        for rows in [100_000] * 6 + [200] * 9:
            table.append(pa.table({"value": [random() for _ in range(rows)]}, schema=schema))
    run = [python, "-m", "iceberg_maint"]
    (task, *_) = catalog.load_table("demo.weather").scan().plan_files()
    file = Path(task.file.file_path.removeprefix("file:").removeprefix("//"))
    hidden = file.rename(file.with_name(f"{file.name}.away"))
    rewrite = ["run", "lake.demo.weather", "--operation", "rewrite_data_files", "--force"]
    subprocess.run([*run, *rewrite, "--config", config], check=False, stdout=subprocess.DEVNULL)
    hidden.rename(file)
    subprocess.run([*run, "observe", "--config", config], check=True, stdout=subprocess.DEVNULL)
    with sqlite3.connect(lake / "ledger.db") as ledger:
        days = ledger.execute(
            "select table_uuid, max(day), body from icm_health_day group by table_uuid"
        ).fetchall()
        for uuid, today, body in days:
            numbers = json.loads(body)
            for ago in range(1, 15):
                for name in ("small_files", "most_small_files"):
                    numbers[name] = max(0, round(json.loads(body)[name] * (1 - ago / 20)))
                row = (uuid, today - ago, json.dumps(numbers))
                ledger.execute(
                    "insert or replace into icm_health_day (table_uuid, day, body) values (?, ?, ?)", row
                )


def take(browser: Browser, page_file: Path, name: str) -> list[str]:
    """Takes the pictures of one page. Returns what is wrong with it."""
    wrong = []
    for ending, (width, theme) in VIEWS.items():
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.goto(page_file.as_uri())
        target = IMAGES / f"{name}{ending}.png"
        page.screenshot(path=target, full_page=True)
        if overflow := page.evaluate(_OVERFLOW):
            wrong.append(f"{target.name}: {overflow}")
        if target.stat().st_size > MAX_BYTES:
            wrong.append(f"{target.name} is larger than {MAX_BYTES:,} bytes")
        page.emulate_media(media="print")
        page.set_viewport_size(PAPER)
        if overflow := page.evaluate(_OVERFLOW):
            wrong.append(f"{name} in print: {overflow}")
        page.close()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--maintained", type=Path, required=True, help="configuration of the lake of the report"
    )
    parser.add_argument(
        "--sick", type=Path, required=True, help="configuration of the lake of the assessment"
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the project")
    given = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    wrong: list[str] = []
    make_history(given.maintained, given.python)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, command, config in (
            ("report", "report", given.maintained),
            ("assessment", "assess", given.sick),
        ):
            page_file = Path(folder) / f"{name}.html"
            subprocess.run(
                [given.python, "-m", "iceberg_maint", command, "--html", page_file, "--config", config],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            wrong += take(browser, page_file, name)
        browser.close()
    print("\n".join(wrong) or "pictures of report and assessment are in docs/images")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
