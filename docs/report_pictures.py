"""Takes the pictures of the HTML report and of the assessment that the docs show.

    make run                                                       # a lake that was maintained
    .venv/bin/iceberg-maint demo --small --build-only --data sick  # and one that was not
    make report-pictures

`NAME.png` is dark, `NAME-light.png` is light, `NAME-phone.png` is as wide as a phone. No line may be wider than its
window, in print neither.

Needs Chromium (`apt-get install chromium`); CHROMIUM names another one than the PATH's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).resolve().parent / "images"
VIEWS: dict[str, tuple[int, Any]] = {"": (1100, "dark"), "-light": (1100, "light"), "-phone": (390, "light")}
"""End of the picture's name → width of the window and theme."""
MAX_BYTES = 300_000


def take(browser: Browser, page_file: Path, name: str) -> list[str]:
    """Takes the pictures of one page. Returns what is wrong with it."""
    wrong = []
    for ending, (width, theme) in VIEWS.items():
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.goto(page_file.as_uri())
        target = IMAGES / f"{name}{ending}.png"
        page.screenshot(path=target, full_page=True)
        overflow = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if overflow > 0:
            wrong.append(f"{target.name}: {overflow} pixels wider than its window")
        if target.stat().st_size > MAX_BYTES:
            wrong.append(f"{target.name} is larger than {MAX_BYTES:,} bytes")
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 794, "height": 1123})  # A4 at 96 pixels an inch
        overflow = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if overflow > 0:
            wrong.append(f"{name} in print: {overflow} pixels wider than the paper")
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
