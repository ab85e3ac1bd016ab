"""The options that write a page to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from iceberg_maint.cli.context import Session
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.machine.files import replace_file
from iceberg_maint.report.page import Page

_PATH = click.Path(path_type=Path, dir_okay=False)


def page_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--html FILE` and `--markdown FILE`."""
    html = click.option("--html", type=_PATH, help="Write one self-contained HTML page to this file.")
    markdown = click.option("--markdown", type=_PATH, help="Write the page as Markdown to this file.")
    return html(markdown(function))


def write_pages(session: Session, page: Page, html: Path | None, markdown: Path | None) -> None:
    """Writes the page to the given files, with secrets masked. A file is replaced as a whole or stays as it is.
    Raises ConfigurationError ICM-100 if it cannot be written."""
    from iceberg_maint.report.page import render_html, render_markdown

    for path, render, option in ((html, render_html, "--html"), (markdown, render_markdown, "--markdown")):
        if path is None:
            continue
        try:
            replace_file(path, session.masked(render(page)))
        except OSError as why:
            raise ConfigurationError(
                "ICM-100",
                f"{option} {path} cannot be written: {why.strerror or why}.",
                "name a file in a folder that exists and that you may write to.",
            ) from why
        session.say(f"wrote {path}")
