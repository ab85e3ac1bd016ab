"""What method handles look up in the JVM, and how often."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iceberg_maint.engines.spark.jvm.functions import MethodHandles


class Jvm:
    """Any name of the JVM and any call: its text, and the calls that were made."""

    def __init__(self, text: str, calls: list[str]) -> None:
        self.text, self.calls = text, calls

    def __getattr__(self, name: str) -> Jvm:
        return Jvm(f"{self.text}.{name}", self.calls)

    def __call__(self, *arguments: Any) -> Jvm:
        self.calls.append(self.text.rpartition(".")[2])
        return Jvm(f"{self.text}()", self.calls)


class Bridge:
    """Classes and lists without a JVM."""

    def __init__(self, calls: list[str]) -> None:
        self.jvm = Jvm("jvm", calls)

    def java_class(self, name: str) -> str:
        return name

    def list(self, items: Iterable[Any]) -> list[Any]:
        return list(items)


def test_handle_of_a_method_is_looked_up_once() -> None:
    calls: list[str] = []
    bridge: Any = Bridge(calls)
    handles = MethodHandles(bridge)
    first = handles.method("a.A", "get", "int", "long")
    assert handles.method("a.A", "get", "int", "long") is first
    assert handles.method("a.A", "get", "int") is not first
    assert handles.static_method("a.A", "get", "int", "long") is not first
    lookups = ["methodType", "findVirtual", "methodType", "findVirtual", "findStatic"]
    assert calls == ["publicLookup", *lookups]
