"""What the bridge looks up in the JVM, and how often."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from py4j.clientserver import JavaParameters, PythonParameters, PythonServer
from py4j.java_gateway import JavaClass, JavaPackage

from iceberg_maint.engines.spark.jvm.bridge import Bridge, Names, PlainJvm

CLIENT = SimpleNamespace(gateway_property=SimpleNamespace(pool=None), converters=None)


class Package(JavaPackage):
    """A package of the JVM's that writes down what it is asked; `Of` is its class, `now` a static value."""

    def __init__(self, name: str, asked: list[str]) -> None:
        super().__init__(name, CLIENT)
        self._asked = asked

    def __getattr__(self, name: str):
        self._asked.append(f"{self._fqn}.{name}")
        if name == "now":
            return len(self._asked)
        return JavaClass(f"{self._fqn}.{name}", CLIENT) if name == "Of" else Package(name, self._asked)


def test_names_each_part_is_asked_for_once() -> None:
    asked: list[str] = []
    names = Names(Package("jvm", asked))
    first = names.java.util.Of
    assert names.java.util.Of is first
    assert isinstance(first, JavaClass)
    assert names.java.time is not names.java.util
    assert asked == ["jvm.java", "java.util", "util.Of", "java.time"]


def test_names_value_that_may_change_is_asked_for_every_time() -> None:
    names = Names(Package("jvm", []))
    assert (names.now, names.now) == (1, 2)


class Class:
    """A connection to a JVM with one class: `of` is a static method, `COUNT` a static field, `Inner` a class."""

    def __init__(self) -> None:
        self.gateway_property = SimpleNamespace(pool=None)
        self.converters = None
        self.asked: list[str] = []

    def send_command(self, command: str) -> str:
        name = command.split("\n")[3]
        self.asked.append(name)
        return {"of": "ym", "COUNT": "yi5", "Inner": "yc"}[name]


def test_names_static_method_is_asked_for_once_and_a_static_field_every_time() -> None:
    client = Class()
    package = SimpleNamespace(Of=JavaClass("a.Of", client))
    of = Names(package).Of
    assert of.of is of.of
    assert of.Inner.of is of.Inner.of
    assert (of.COUNT, of.COUNT) == (5, 5)
    assert client.asked == ["of", "Inner", "of", "COUNT", "COUNT"]


def test_once_makes_each_thing_once_for_each_bridge() -> None:
    session = SimpleNamespace(
        _jvm=Package("jvm", []), sparkContext=SimpleNamespace(_gateway=None), _jsparkSession=None
    )
    one, other = Bridge(session), Bridge(session)
    made: list[Bridge] = []

    def make(bridge: Bridge) -> int:
        made.append(bridge)
        return len(made)

    assert [one.once(make), other.once(make), one.once(make)] == [1, 2, 1]
    assert made == [one, other]


def session_of(gateway: Any) -> Any:
    """As much of a session in this JVM as a bridge asks for."""
    return SimpleNamespace(_jvm=SimpleNamespace(), sparkContext=SimpleNamespace(_gateway=gateway))


def test_bridge_of_a_jvm_is_that_of_the_first_session_in_it_alone() -> None:
    gateway, other = (SimpleNamespace(jvm=Package("jvm", [])) for _ in range(2))
    first = session_of(gateway)
    bridge = Bridge(PlainJvm(gateway, {"a": "b"}, lambda: first))
    assert bridge.is_driver(PlainJvm(gateway, {"a": "b"}, lambda: first))
    assert not bridge.is_driver(PlainJvm(gateway, {}, lambda: first))
    assert not bridge.is_driver(session_of(other))
    assert not bridge.has_spark
    assert bridge.is_driver(first)
    assert not bridge.is_driver(session_of(gateway))
    assert bridge.spark is first


def test_callback_server_closes_after_its_jvm_has_died() -> None:
    """Its connections have no socket any more."""
    closed: list[bool] = []
    server = SimpleNamespace(connections=[SimpleNamespace(socket=None)], lock=threading.RLock())
    gateway = SimpleNamespace(
        _callback_server=server,
        shutdown_callback_server=lambda: closed.append(gateway._callback_server is server),
    )
    bridge = object.__new__(Bridge)
    bridge.gateway = gateway
    bridge._stop_callback_server()
    assert closed == [True]
    assert gateway._callback_server is None


class Connections(set[Any]):
    """The connections of a callback server. Another client connects each time somebody has listed them."""

    def __init__(self) -> None:
        super().__init__()
        self.address = ("", 0)
        self.clients: list[socket.socket] = []

    def __iter__(self) -> Iterator[Any]:
        present = list(super().__iter__())
        if not self.clients:
            self.clients.append(socket.create_connection(self.address))
            time.sleep(0.2)  # the server accepts it, and its reader waits
        return iter(present)


def test_callback_server_closes_while_another_client_connects() -> None:
    """Java's finalizer connects when it collects a proxy, which may be while the server is stopped."""
    pool = SimpleNamespace(clear=lambda: None)
    server = PythonServer(
        SimpleNamespace(set_thread_connection=lambda _connection: None),
        JavaParameters(),
        PythonParameters(port=0, daemonize=True, daemonize_connections=True),
        SimpleNamespace(pool=pool),
    )
    server.connections = connections = Connections()
    server.start()
    server.server_socket.listen(5)
    connections.address = server.server_socket.getsockname()
    bridge = object.__new__(Bridge)
    bridge.gateway = SimpleNamespace(_callback_server=server, shutdown_callback_server=server.shutdown)
    stopping = threading.Thread(target=bridge._stop_callback_server, daemon=True)
    stopping.start()
    stopping.join(10)
    is_stopped = not stopping.is_alive()
    for client in connections.clients:
        client.close()
    stopping.join(10)
    assert is_stopped
    assert len(connections.clients) == 1
