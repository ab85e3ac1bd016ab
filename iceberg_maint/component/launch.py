"""Starts a run in the environment of the maintenance, follows its messages, and ends it with the run of Dagster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import dagster as dg

from iceberg_maint.component.environment import Environment
from iceberg_maint.defs.names import STDIN

POLL_SECONDS = 0.2
_READ_SECONDS = 0.05
_FILE = "path"
"""Parameter of the default writer of Dagster Pipes."""
STOP_SECONDS = 75.0
"""Time for an orderly end after a termination: longer than the program needs before it ends itself."""

Receive = Callable[[Sequence[Any]], bool]
"""Takes all messages so far, again and again. Says whether the run must begin no further batch."""


Launcher = Callable[[dg.AssetExecutionContext, Sequence[str], Mapping[str, Any], Receive], int]
"""Runs a command of the program somewhere, with extras for Dagster Pipes. It gives the messages to the receiver and returns the
exit code. Interrupts pass through."""


class _LogsItsEvents:
    """The context of an op that logs its events itself. Pipes would require that the op yields each of its results."""

    def __init__(self, context: dg.OpExecutionContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def set_requires_typed_event_stream(self, *, error_message: str | None = None) -> None:
        """Requires nothing."""


class _WholeLines(dg.PipesMessageReader):
    """Reads messages from a file. Dagster's own reader takes the beginning of a line that is still being written for a message,
    and reads no further one: a message above 8 KiB arrives in parts."""

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[dict[str, Any]]:
        """Gives each message to the handler until the block ends. Yields where to write them."""
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path, ended = Path(folder, "messages"), threading.Event()
            path.touch()
            thread = threading.Thread(target=self._read, args=(path, handler, ended), daemon=True)
            thread.start()
            try:
                yield {_FILE: str(path)}
            finally:
                ended.set()
                thread.join()

    def _read(self, path: Path, handler: Any, ended: threading.Event) -> None:
        line = b""
        with path.open("rb") as file:
            while True:
                is_last = ended.is_set()
                while part := file.readline():
                    line += part
                    if line.endswith(b"\n"):
                        handler.handle_message(json.loads(line))
                        line = b""
                if is_last:
                    return
                ended.wait(_READ_SECONDS)

    def on_launched(self, launched_payload: Any) -> None:
        """Needs nothing of it."""

    def no_messages_debug_text(self) -> str:
        """Where messages are expected."""
        return "Attempted to read messages from a temporary file."


def _logging(context: dg.AssetExecutionContext) -> dg.AssetExecutionContext:
    # That of the op: of an asset's, Dagster itself calls what is deprecated.
    return cast("dg.AssetExecutionContext", _LogsItsEvents(context.op_execution_context))


def in_subprocess(environment: Environment) -> Launcher:
    """The launcher of a process of this machine, whose messages arrive while it works."""

    def launch(
        context: dg.AssetExecutionContext,
        arguments: Sequence[str],
        extras: Mapping[str, Any],
        receive: Receive,
    ) -> int:
        environment.check()
        session = None
        try:
            with dg.open_pipes_session(
                context=_logging(context),
                context_injector=dg.PipesTempFileContextInjector(),
                message_reader=_WholeLines(),
                extras={**extras, STDIN: True},
            ) as session:
                # A session of its own: a terminal must not interrupt it beside Dagster. Its stdin ends with this process.
                process = subprocess.Popen(
                    environment.command(*arguments),
                    env={**environment.variables(), **session.get_bootstrap_env_vars()},
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                )
                with process:
                    try:
                        return _followed(process, session, receive)
                    except BaseException:
                        _stop(process)
                        raise
        finally:
            # Closing the session has read the rest.
            if session is not None:
                receive(session.get_custom_messages())

    return launch


def by_client(
    client: dg.PipesClient, program: Sequence[str] = ("python", "-m", "iceberg_maint"), **arguments: Any
) -> Launcher:
    """The launcher of a Pipes client whose `run` takes `command`, such as that of Kubernetes. `program` is the program there, with
    its options; `arguments` are others of `run`. Messages are received at the end."""

    def launch(
        context: dg.AssetExecutionContext,
        command: Sequence[str],
        extras: Mapping[str, Any],
        receive: Receive,
    ) -> int:
        done = client.run(context=_logging(context), extras=extras, command=[*program, *command], **arguments)
        receive(done.get_custom_messages())
        return 0

    return launch


def _followed(process: subprocess.Popen[bytes], session: dg.PipesSession, receive: Receive) -> int:
    is_told = False
    while True:
        try:
            return process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            must_yield = receive(session.get_custom_messages())
            if must_yield and not is_told and process.stdin is not None:
                is_told = True
                with suppress(OSError):
                    os.write(process.stdin.fileno(), b"yield\n")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Lets the process end in order, and kills it with its JVM if it does not."""
    try:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
