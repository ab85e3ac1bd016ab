"""Processes by /proc: whose connection it is, what a process started, and its CPU time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from iceberg_maint_tests.qualification.cluster.processes import (
    Process,
    cpu_seconds,
    descendants,
    owner_of_port,
)

CONNECT = (
    "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"
)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_owner_of_a_connection_is_the_process_that_opened_it_with_its_ancestors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", CONNECT, str(server.getsockname()[1])]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as client:
            connection, (_, port) = server.accept()
            with connection:
                owner = owner_of_port(port)
            assert client.stdin is not None
            client.stdin.close()
    assert owner is not None
    assert (owner.pid, owner.ancestors[0][0]) == (client.pid, os.getpid())
    assert "create_connection" in owner.command


def test_nearest_process_is_the_first_of_itself_and_its_ancestors() -> None:
    process = Process(3, "daemon", ((2, "executor"), (1, "deploy executor")))
    assert [process.nearest(p) for p in ("daemon", "executor", "deploy", "none")] == [3, 2, 1, None]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_cpu_seconds_count_a_program_that_has_ended() -> None:
    before = cpu_seconds()
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert 0.3 <= cpu_seconds() - before < 5


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_descendants_are_the_programs_of_a_program() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        (grandchild,) = descendants(child.pid)
        assert {child.pid, grandchild} <= set(descendants(os.getpid()))
        child.stdin.write(b"\n")
        child.stdin.close()
