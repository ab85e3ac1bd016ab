"""What the bridge looks up in the JVM, and how often."""

from __future__ import annotations

from types import SimpleNamespace

from py4j.java_gateway import JavaClass, JavaPackage

from iceberg_maint.spark.jvm.bridge import Bridge, Names

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


def test_callback_server_closes_after_its_jvm_has_died() -> None:
    """Its connections have no socket any more."""
    closed: list[bool] = []
    server = SimpleNamespace(connections=[SimpleNamespace(socket=None)])
    gateway = SimpleNamespace(
        _callback_server=server,
        shutdown_callback_server=lambda: closed.append(gateway._callback_server is server),
    )
    bridge = object.__new__(Bridge)
    bridge.gateway = gateway
    bridge._stop_callback_server()
    assert closed == [True]
    assert gateway._callback_server is None
