"""Errors of calls into a JVM that dies, as py4j raises them."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from iceberg_maint.core.outcomes.failures import JVM_DIED
from iceberg_maint.engines.spark.jvm.java_errors import causes, connection_lost, failed_by_environment


def answer_once(server: socket.socket, answer: bytes) -> None:
    """Answers one call of one connection. Without an answer it resets the connection."""
    connection, _ = server.accept()
    with connection:
        connection.recv(4096)
        if answer:
            connection.sendall(answer)
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()


@pytest.mark.parametrize(
    ("answer", "is_lost"),
    [(b"", True), (b"!xsa trace of Java\n", False)],
    ids=["reset", "error of Java"],
)
def test_connection_that_breaks_during_a_call_is_lost(answer: bytes, is_lost: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        jvm = threading.Thread(target=answer_once, args=(server, answer))
        jvm.start()
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=server.getsockname()[1]))
        with pytest.raises(Py4JError) as failure:
            gateway.entry_point.call()
        jvm.join()
        gateway.close()
    assert connection_lost(failure.value) is is_lost
    assert failed_by_environment(failure.value) is is_lost
    assert causes(failure.value) == ((("Py4JError", JVM_DIED),) if is_lost else ())
