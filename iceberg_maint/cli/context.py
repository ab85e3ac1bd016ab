"""Code that all commands share: options, the context, output, errors, exit codes."""

from __future__ import annotations

import contextlib
import getpass
import io
import os
import re
import shutil
import socket
import sys
import textwrap
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    IcebergMaintError,
)

if TYPE_CHECKING:
    from rich.console import Console

    from iceberg_maint.config import Config
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.loop.context import Context
    from iceberg_maint.loop.fleet.known_tables import TableListing

_SEVERITY = (EXIT_USAGE, EXIT_UNKNOWN, EXIT_FAILED, EXIT_REFUSED, EXIT_DONE)


def most_severe_exit(codes: set[int]) -> int:
    """The most severe of several exit codes."""
    return next((code for code in _SEVERITY if code in codes), EXIT_DONE)


def wrapped(line: str, columns: int) -> str:
    """The line for a terminal of this width, broken between words. A longer word stays whole."""
    return textwrap.fill(
        line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def load_configuration(path: Path | None) -> Config:
    """The configuration from this file and the environment."""
    from iceberg_maint.config import load_config

    return load_config(path, os.environ)


def build_context(config: Config) -> Context:
    """The real context, of a process that runs one command."""
    from iceberg_maint.wiring.adapters import build

    return build(config)


@dataclass(slots=True)
class Session:
    """One call of the program. `load` reads the configuration and `build` builds the context; tests pass
    their own."""

    load: Callable[[Path | None], Config] = load_configuration
    build: Callable[[Config], Context] = build_context
    config_path: Path | None = None
    as_json: bool = False
    _config: Config | None = None
    _context: Context | None = None
    _out: list[int] = field(default_factory=list)

    def config(self) -> Config:
        """The configuration. The first call reads it."""
        if self._config is None:
            self._config = self.load(self.config_path)
        return self._config

    def context(self, overrides: Mapping[str, str] | None = None) -> Context:
        """The context. The first call builds it. The `overrides` win over every other source of a policy."""
        from iceberg_maint.wiring.adapters import policies

        config = self.config()
        if self._context is None:
            self._context = self.build(config)
        if not overrides:
            return self._context
        return replace(
            self._context, policies=replace(self._context.policies, of_table=policies(config, overrides))
        )

    def console(self) -> Console:
        """Console on stdout for progress of long work. Results go through `emit`."""
        from rich.console import Console

        return Console(file=sys.stdout, width=_width(), highlight=False)

    def logs(self) -> Console:
        """Console on stderr for progress and messages."""
        from rich.console import Console

        return Console(file=sys.stderr, highlight=False)

    def say(self, line: str) -> None:
        """Writes a line for people to stderr, with secrets masked."""
        from iceberg_maint.report.formatting import as_invoked, escape_control_chars

        text = as_invoked(escape_control_chars(self.masked(line)), self.config_path)
        if sys.stderr.isatty() and "\n" not in text:
            text = wrapped(text, shutil.get_terminal_size().columns)
        # With `err` click writes around the progress bar, into its line.
        click.echo(text, file=sys.stderr)

    def say_of(self, table: object, text: object) -> None:
        """Writes a line about a table to stderr, with its name if the beginning of the text does not have it."""
        name, line = str(table), str(text)
        beginning = re.split(r"[:.] ", line, maxsplit=1)[0]
        is_named = re.search(rf"(?<![\w./]){re.escape(name)}(?![\w/])", beginning)
        self.say(line if is_named else f"{name}: {line}")

    def listing(self, context: Context, codes: set[int]) -> TableListing:
        """Returns the tables of every catalog that answers. Says the error of every other catalog, and adds its exit code
        to `codes`. Raises the error of the last catalog if none answers."""
        from iceberg_maint.loop.fleet.known_tables import list_tables

        listing = list_tables(context)
        for why in listing.errors.values():
            codes.add(why.exit_code)
            self.say(str(why))
        if not listing.errors:
            self.warn_of_unlisted(listing.tables)
        return listing

    def warn_of_unlisted(self, listed: Collection[TableId]) -> None:
        """Warns of names in the configuration that no table has; `listed` are all tables.

        The settings of a misspelled name apply to no table.
        """
        for pattern in self.config().patterns_without_table(listed):
            if pattern.is_exact:
                self.say(f"warning: {pattern.source} in the configuration is no table of any catalog.")

    def emit(
        self, document: dict[str, Any] | Callable[[], dict[str, Any]], draw: Callable[[Console], None]
    ) -> None:
        """Writes the result: one JSON document on stdout, or the text that `draw` prints. A document that is a function
        is made only with `--json`."""
        from iceberg_maint.report.formatting import as_invoked, escape_control_chars
        from iceberg_maint.report.json_documents import render

        if not self.as_json:
            text = escape_control_chars(self.masked(_drawn(draw)), styled=True)
            self.write(as_invoked(text, self.config_path))
            return

        value = document() if callable(document) else document
        self.write(self.masked(render(value)) + "\n")

    def write(self, text: str) -> None:
        """Writes text to the real stdout, also while stdout is redirected to stderr."""
        try:
            if self._out:
                os.write(self._out[-1], text.encode())
            else:
                click.echo(text, nl=False)
        except BrokenPipeError:
            # The reader has closed the pipe, as `head` does. The work is done nevertheless.
            _discard(self._out[-1] if self._out else sys.stdout.fileno())

    def short_name(self, table: str) -> str:
        """The table's name for people: without the catalog if only one is configured. Commands take both."""
        catalogs = list(self.context().catalogs)
        return table.removeprefix(f"{catalogs[0]}.") if len(catalogs) == 1 else table

    def masked(self, text: str) -> str:
        """The text without secrets: those of the configuration, and passwords in addresses."""
        from iceberg_maint.config import redact

        return redact(text, () if self._config is None else self._config.secrets)

    @contextlib.contextmanager
    def only_json_on_stdout(self) -> Iterator[None]:
        """Redirects all output to stderr, including the output of a JVM."""
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
        """Runs a command's body. An error becomes one line, a document and an exit code."""
        with self.only_json_on_stdout():
            try:
                return self._delivered(body)
            except IcebergMaintError as error:
                self.refuse(error)
                return error.exit_code
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except Exception as error:  # noqa: BLE001 - the last line of defence of a command line
                self.say(traceback.format_exc())
                line = f"{type(error).__name__}: {' '.join(str(error).split())}"
                return self.fail(None, line, "", f"unexpected {line}")

    def _delivered(self, body: Callable[[], int | None]) -> int:
        """Runs the body, then waits a limited time for the receivers of telemetry."""
        try:
            return body() or EXIT_DONE
        finally:
            if self._context is not None:
                self._context.observers.telemetry.close()

    def refuse(self, error: IcebergMaintError) -> None:
        """Reports an error with its code."""
        self.fail(error.code, error.message, error.fix, str(error))

    def misused(self, error: click.ClickException) -> None:
        """Writes the document of a usage error with `--json`. click prints the text for people."""
        if self.as_json:
            lines = error.format_message().splitlines()
            # Without a command the message is the whole help text.
            message = lines[0] if lines[0].startswith("Usage:") else " ".join(" ".join(lines).split())
            context = getattr(error, "ctx", None)
            fix = "" if context is None else f"see {context.command_path} --help."
            self._document(None, message, fix)

    def fail(self, code: str | None, message: str, fix: str, line: str) -> int:
        """Reports a failure as the line on stderr and, with `--json`, as the document. Returns the exit code of one without a
        code."""
        self.say(line)
        if self.as_json:
            self._document(code, message, fix)
        return EXIT_FAILED

    def _document(self, code: str | None, message: str, fix: str) -> None:
        from iceberg_maint.report.json_documents import render

        document = {"error": {"code": code, "message": message, "fix": fix}}
        self.write(self.masked(render(document)) + "\n")


def operator() -> str:
    """The user and the machine. A process in a container may have no user name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _drawn(draw: Callable[[Console], None]) -> str:
    """The output of `draw` as text, in which secrets can be masked."""
    from rich.console import Console

    text = io.StringIO()
    draw(Console(file=text, width=_width(), force_terminal=sys.stdout.isatty(), highlight=False))
    return text.getvalue()


def _width() -> int:
    """Columns of $COLUMNS, else of the terminal; 200 without a terminal, so that no text is cut."""
    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return shutil.get_terminal_size().columns if is_known else 200


def _discard(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _is_real(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == 1)
    except (OSError, ValueError, AttributeError):
        return False
