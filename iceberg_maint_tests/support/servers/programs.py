"""Programs that run beside a test."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A program that runs beside; its output is in `log`. The `environment` is added to ours."""
    with log.open("wb") as out:
        started = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **(environment or {})})
        try:
            yield
        finally:
            started.terminate()
            try:
                started.wait(30)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()
