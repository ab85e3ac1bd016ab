"""What every command shares: options, the application, output, errors and exit codes."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    ConfigurationError,
    IcebergMaintError,
)

if TYPE_CHECKING:
    from rich.console import Console

    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.wiring import App

_GRAVITY = (EXIT_USAGE, EXIT_UNKNOWN, EXIT_FAILED, EXIT_REFUSED, EXIT_DONE)


def most_severe_exit(codes: set[int]) -> int:
    """The exit code that holds first among several."""
    return next((code for code in _GRAVITY if code in codes), EXIT_DONE)


def load_app(path: Path | None) -> App:
    """The real application."""
    from iceberg_maint.wiring import load

    return load(path)


@dataclass(slots=True)
class Session:
    """One call of the program. `load` makes the application; tests give their own."""

    load: Callable[[Path | None], App] = load_app
    config_path: Path | None = None
    as_json: bool = False
    _app: App | None = None
    _out: list[int] = field(default_factory=list)

    def app(self) -> App:
        """The application, made at the first call."""
        if self._app is None:
            self._app = self.load(self.config_path)
        return self._app

    def console(self) -> Console:
        """Where what takes long is told while it happens; results go through `emit`."""
        from rich.console import Console

        return Console(file=sys.stdout, width=_width(), highlight=False)

    def logs(self) -> Console:
        """Where progress and messages go."""
        from rich.console import Console

        return Console(file=sys.stderr, highlight=False)

    def say(self, line: str) -> None:
        """Lines for people on stderr, secrets masked."""
        from iceberg_maint.report.formatting import escape_control_chars

        click.echo(escape_control_chars(self.masked(line)), err=True)

    def warn_of_unlisted(self, listed: Collection[TableId]) -> None:
        """Tells which names in the configuration are no table's; `listed` are all there are. What is
        misspelled there is maintained as if nothing had been said about it."""
        for pattern in self.app().config.patterns_without_table(listed):
            if pattern.is_exact:
                self.say(f"warning: {pattern.source} in the configuration is no table of any catalog")

    def emit(self, document: dict[str, Any], draw: Callable[[Console], None]) -> None:
        """The result: one JSON document on stdout, or what `draw` prints for people."""
        from iceberg_maint.report.formatting import escape_control_chars
        from iceberg_maint.report.json_documents import render

        if not self.as_json:
            self.write(escape_control_chars(self.masked(_drawn(draw)), styled=True))
            return

        self.write(self.masked(render(document)) + "\n")

    def write(self, text: str) -> None:
        """Text on the real stdout, also while it is turned to stderr."""
        try:
            if self._out:
                os.write(self._out[-1], text.encode())
            else:
                click.echo(text, nl=False)
        except BrokenPipeError:
            # Who reads has left, as `head` does. What was done counts all the same.
            _discard(self._out[-1] if self._out else sys.stdout.fileno())

    def masked(self, text: str) -> str:
        """The text without secrets: those of the configuration, and passwords in addresses."""
        from iceberg_maint.config import redact

        return redact(text, () if self._app is None else self._app.config.secrets)

    @contextlib.contextmanager
    def only_json_on_stdout(self) -> Iterator[None]:
        """Turns everything anybody prints to stderr, a JVM's output included."""
        if not self.as_json or not _is_real(sys.stdout):
            yield
            return
        sys.stdout.flush()
        real = os.dup(1)
        os.dup2(2, 1)
        self._out.append(real)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(real, 1)
            self._out.pop()
            os.close(real)

    def run(self, body: Callable[[], int | None]) -> int:
        """Runs a command's body; errors become one line, a document and an exit code."""
        with self.only_json_on_stdout():
            try:
                return body() or EXIT_DONE
            except IcebergMaintError as error:
                self.refuse(error)
                return error.exit_code
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except Exception as error:  # noqa: BLE001 - the last line of defence of a command line
                self.say(traceback.format_exc())
                line = f"{type(error).__name__}: {' '.join(str(error).split())}"
                self._fail(None, line, "", f"unexpected {line}")
                return EXIT_FAILED

    def refuse(self, error: IcebergMaintError) -> None:
        """An error as one line on stderr and, with `--json`, as the document."""
        self._fail(error.code, error.message, error.fix, str(error))

    def misused(self, error: click.ClickException) -> None:
        """With `--json`, the document of a usage error; click tells people."""
        if self.as_json:
            lines = error.format_message().splitlines()
            # Where the command is left out the message is the whole help.
            message = lines[0] if lines[0].startswith("Usage:") else " ".join(" ".join(lines).split())
            context = getattr(error, "ctx", None)
            fix = "" if context is None else f"see {context.command_path} --help."
            self._document(None, message, fix)

    def _fail(self, code: str | None, message: str, fix: str, line: str) -> None:
        self.say(line)
        if self.as_json:
            self._document(code, message, fix)

    def _document(self, code: str | None, message: str, fix: str) -> None:
        from iceberg_maint.report.json_documents import render

        document = {"error": {"code": code, "message": message, "fix": fix}}
        self.write(self.masked(render(document)) + "\n")


def shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--config` and `--json`, which stand before a command's name or after it."""
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
    """The call's session, with what these options say; those that stand further left hold where
    these say nothing."""
    session: Session = context.ensure_object(Session)
    session.config_path = config_path or session.config_path
    session.as_json = as_json or session.as_json
    return session


def group(body: Callable[[], None]) -> click.Group:
    """A group of commands, with `--config` and `--json` as every command has them."""

    @click.group(help=body.__doc__, name=body.__name__)
    @shared_options
    @click.pass_context
    def wrapper(context: click.Context, config_path: Path | None, as_json: bool) -> None:
        session_of(context, config_path, as_json=as_json)

    return wrapper


def command(body: Callable[..., int | None]) -> Callable[..., None]:
    """A command's body with `--config` and `--json`; its return value is the exit code."""

    @shared_options
    @click.pass_context
    @functools.wraps(body)
    def wrapper(context: click.Context, config_path: Path | None, as_json: bool, **arguments: Any) -> None:
        session = session_of(context, config_path, as_json=as_json)
        context.exit(session.run(lambda: body(session, **arguments)))

    return wrapper


def overrides_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--set KEY=VALUE`: policy values that win over everything else, for this call."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_parse_overrides,
        help="Policy value for this call, e.g. rewrite_data_files.min_input_files=3.",
    )(function)


def _drawn(draw: Callable[[Console], None]) -> str:
    """What `draw` prints, as text, so that secrets can be masked in it."""
    from rich.console import Console

    text = io.StringIO()
    draw(Console(file=text, width=_width(), force_terminal=sys.stdout.isatty(), highlight=False))
    return text.getvalue()


def _width() -> int:
    """Columns of the terminal; wide where there is none, so that nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 200


def _parse_overrides(
    _context: click.Context, _option: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    result: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (equals and key.strip()):
            raise ConfigurationError("ICM-100", f"--set {pair}: must be KEY=VALUE.", "write both.")
        result[key.strip()] = value
    return result


def _discard(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _is_real(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == 1)
    except (OSError, ValueError, AttributeError):
        return False
