"""Takes the pictures of the real UI that the docs show, from a Dagster that `make dev` has opened, in dark and light.

    make dev            # in one terminal; leave it for some minutes, until the ingest job has run
    make demo DEMO=screenshots    # in another

Those of the component are taken from `make demo DEMO=platform ARGS=--pictures`.

`NAME.png` is dark, `NAME-light.png` is light.

Needs Chromium (`apt-get install chromium`); CHROMIUM names another one than the PATH's.
"""

from __future__ import annotations

import argparse
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).resolve().parent / "images"
TABLE = "assets/lake/demo/flights_by_month"
HOUSEKEEPING = "assets/lake/demo/weather_by_day__housekeeping"
SIZE = {"width": 1440, "height": 900}
MAX_BYTES = 300_000
THEMES = {"dark": "", "light": "-light"}
"""Theme → end of the picture's name."""


@dataclass(frozen=True)
class Picture:
    """One page: its address below the UI's, a text that tells that it is there, what to click (a
    Playwright selector) and the text that tells that the click has worked."""

    path: str
    text: str
    click: str | None = None
    then: str | None = None


PICTURES: dict[str, Picture] = {
    "catalog": Picture("assets", "flights_by_month"),
    "card": Picture("assets/lake/demo/weather?view=overview", "Last proof"),
    "runs": Picture("runs", "iceberg_maint/table"),
    "housekeeping-card": Picture(f"{HOUSEKEEPING}?view=overview", "Last proof"),
    "asset-graph": Picture("locations/iceberg_maint/asset-groups/lake__demo/lineage", "flights_by_month"),
    "partitions": Picture(
        f"{TABLE}?view=partitions&partition=time_hour_month%3D2014-01", "time_hour_month=2014-01"
    ),
    "checks": Picture(f"{TABLE}?view=checks&checkDetail=small_files", "small_files"),
    "housekeeping": Picture(f"{HOUSEKEEPING}?view=checks&checkDetail=orphan_files", "would_remove"),
    "plots": Picture(f"{TABLE}?view=overview", "Plots", 'text="Plots"', "size_mib"),
    "automation": Picture(
        "assets/lake/demo/weather?view=automation",
        "1 requested",
        ':text-matches("[0-9]:[0-9]{2} [AP]M"):left-of(:text("1 requested"))',
        "maintenance due",
    ),
}


OF_COMPONENT: dict[str, Picture] = {
    "component-lineage": Picture("assets/raw/orders?view=lineage&lineageScope=downstream", "daily_orders"),
    "component-card": Picture("assets/iceberg_maint/lake/shop/orders?view=overview", "Last proof"),
    "component-checks": Picture(
        "assets/iceberg_maint/lake/shop/orders?view=checks&checkDetail=maintenance_waits", "maintenance_waits"
    ),
}
"""Pictures of the project of `make demo DEMO=platform`."""


def take(page: Page, url: str, name: str, theme: str) -> None:
    """One picture. The UI goes on drawing after its text is there, hence the pause."""
    picture = {**PICTURES, **OF_COMPONENT}[name]
    page.goto(f"{url}/{picture.path}", timeout=90_000)
    page.get_by_text(picture.text).first.wait_for(timeout=60_000)
    # A new instance first offers a newsletter.
    if (skip := page.get_by_role("button", name="Skip")).is_visible():
        skip.click()
    if picture.click is not None:
        page.locator(picture.click).first.click()
    if picture.then is not None:
        page.get_by_text(picture.then).first.wait_for(timeout=60_000)
    page.wait_for_timeout(6_000)
    page.get_by_text("Loading", exact=False).first.wait_for(state="hidden", timeout=30_000)
    target = IMAGES / f"{name}{THEMES[theme]}.png"
    page.screenshot(path=target)
    size = target.stat().st_size
    print(f"{target.name}: {size:,} bytes")
    if size > MAX_BYTES:
        raise SystemExit(f"{target} is larger than {MAX_BYTES:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description="pictures of a running `make dev`")
    parser.add_argument("--url", default="http://127.0.0.1:3000")
    parser.add_argument("--theme", action="append", choices=THEMES, help="both by default")
    parser.add_argument("--component", action="store_true", help="those of the component")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no Chromium: install it, or set CHROMIUM")
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for theme in arguments.theme or THEMES:
            page = browser.new_page(viewport=SIZE, color_scheme=theme)
            for name in arguments.names or (OF_COMPONENT if arguments.component else PICTURES):
                take(page, arguments.url, name, theme)
        browser.close()


if __name__ == "__main__":
    main()
