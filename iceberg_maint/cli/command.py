"""How a command is made: its session and shared options, its pages in files, and its orderly end by a signal."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.context import Session
from iceberg_maint.errors import ConfigurationError

if TYPE_CHECKING:
    from iceberg_maint.loop.context import End
    from iceberg_maint.report.page import Page

_PATH = click.Path(path_type=Path, dir_okay=False)


def shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--config` and `--json`, before or after a command's name."""
    config = click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        help="Configuration file; else $ICEBERG_MAINT_CONFIG, else the embedded default.",
    )
    as_json = click.option(
        "--json", "as_json", is_flag=True, help="One JSON document on stdout, logs on stderr."
    )
    return config(as_json(function))


def session_of(context: click.Context, config_path: Path | None, *, as_json: bool) -> Session:
    """The call's session with these options. An option that is missing here keeps its value from further
    left on the command line."""
    session: Session = context.ensure_object(Session)
    session.config_path = config_path or session.config_path
    session.as_json = as_json or session.as_json
    return session


def group(body: Callable[[], None]) -> click.Group:
    """A group of commands with the options `--config` and `--json`."""

    @click.group(help=body.__doc__, name=body.__name__)
    @shared_options
    @click.pass_context
    def wrapper(context: click.Context, config_path: Path | None, as_json: bool) -> None:
        session_of(context, config_path, as_json=as_json)

    return wrapper


def command(body: Callable[..., int | None]) -> Callable[..., None]:
    """A command with the options `--config` and `--json`. The body returns the exit code."""

    def wrapper(context: click.Context, config_path: Path | None, as_json: bool, **arguments: Any) -> None:
        session = session_of(context, config_path, as_json=as_json)
        context.exit(session.run(lambda: body(session, **arguments)))

    functools.update_wrapper(wrapper, body)
    return shared_options(click.pass_context(wrapper))


def overrides_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--set KEY=VALUE`: policy values that override all others in this call."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_parse_overrides,
        help="Policy value for this call, e.g. rewrite_data_files.min_input_files=3.",
    )(function)


def page_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--html FILE` and `--markdown FILE`."""
    html = click.option("--html", type=_PATH, help="Write one self-contained HTML page to this file.")
    markdown = click.option("--markdown", type=_PATH, help="Write the page as Markdown to this file.")
    return html(markdown(function))


def write_pages(session: Session, page: Page, html: Path | None, markdown: Path | None) -> None:
    """Writes the page to the given files, with secrets masked. A file is replaced as a whole or stays as it is.
    Raises ConfigurationError ICM-100 if it cannot be written."""
    from iceberg_maint.machine.files import replace_file
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


class Terminated(BaseException):
    """A signal terminates the process. No `Exception`: no handler may treat it as a failure."""


@contextlib.contextmanager
def terminated_by_signals(
    cancel: Callable[[], None], end: End | None = None, interrupt: type[BaseException] = Terminated
) -> Iterator[None]:
    """Within the body the first SIGTERM or SIGINT calls `cancel` and raises `interrupt`.

    Later signals are ignored, so that they do not interrupt the orderly end. If the body has not ended
    `guards.GRACE_SECONDS` later, `end` ends the process.
    """
    from iceberg_maint.loop.guards import answered_signals

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopping = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            return
        stopping = True
        # In another thread: the main thread may be inside the call that must be cancelled.
        threading.Thread(target=_quietly(cancel), name="cancel", daemon=True).start()
        raise interrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with answered_signals(end):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _quietly(cancel: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        with contextlib.suppress(Exception):
            cancel()

    return call


def _parse_overrides(
    _context: click.Context, _option: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    result: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (equals and key.strip()):
            raise ConfigurationError(
                "ICM-100", f"--set {pair} is not KEY=VALUE.", "write a policy key, = and a value."
            )
        result[key.strip()] = value
    return result
