"""Method handles of the JVM, composed from Python: Java functions that are made of Java's own methods.

Every module that composes handles shows the equal Java code in a `# Java:` comment above the chain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge

OBJECT = "java.lang.Object"
STRING = "java.lang.String"


class MethodHandles:
    """Makes handles of public methods and composes them. Arguments name classes by their binary names."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.invoke: Any = bridge.jvm.java.lang.invoke
        self.lookup: Any = self.invoke.MethodHandles.publicLookup()
        # Types and handles of methods never change. Each table of a run asks for the same ones.
        self._primitives: dict[str, Any] = {}
        self._types: dict[tuple[str, ...], Any] = {}
        self._methods: dict[tuple[str, ...], Any] = {}

    def class_of(self, name: str) -> Any:
        """The class of this name; primitive types included."""
        boxes = {"boolean": "Boolean", "int": "Integer", "long": "Long", "void": "Void"}
        if name not in boxes:
            return self.bridge.java_class(name)
        if name not in self._primitives:
            self._primitives[name] = getattr(self.bridge.jvm.java.lang, boxes[name]).TYPE
        return self._primitives[name]

    def type_of(self, result: str, *arguments: str) -> Any:
        """The type of a handle that takes these arguments and returns `result`."""
        names = (result, *arguments)
        if names not in self._types:
            classes = self.bridge.list(map(self.class_of, arguments))
            self._types[names] = self.invoke.MethodType.methodType(self.class_of(result), classes)
        return self._types[names]

    def bound(self, receiver: Any, owner: str, method: str, result: str, *arguments: str) -> Any:
        """A handle of a method of this object, as its class or interface `owner` declares the method."""
        return self.method(owner, method, result, *arguments).bindTo(receiver)

    def method(self, owner: str, method: str, result: str, *arguments: str) -> Any:
        """A handle of a method, as its class or interface `owner` declares it. Its first argument is the receiver."""
        names = (owner, method, result, *arguments)
        if names not in self._methods:
            type_of_method = self.type_of(result, *arguments)
            self._methods[names] = self.lookup.findVirtual(self.class_of(owner), method, type_of_method)
        return self._methods[names]

    def static_method(self, owner: str, method: str, result: str, *arguments: str) -> Any:
        """A handle of a static method of a class."""
        names = ("static", owner, method, result, *arguments)
        if names not in self._methods:
            type_of_method = self.type_of(result, *arguments)
            self._methods[names] = self.lookup.findStatic(self.class_of(owner), method, type_of_method)
        return self._methods[names]

    def bind_arguments(self, handle: Any, index: int, *bound: Any) -> Any:
        """The handle with the arguments from `index` on fixed to these values."""
        values = self.bridge.array(self.bridge.jvm.java.lang.Object, bound)
        return self.invoke.MethodHandles.insertArguments(handle, index, values)

    def permute(self, handle: Any, result: str, arguments: tuple[str, ...], places: Iterable[int]) -> Any:
        """A handle of this type that passes those of its arguments at `places`, in order, to `handle`."""
        returning = handle.asType(handle.type().changeReturnType(self.class_of(result)))
        target = self.type_of(result, *arguments)
        return self.invoke.MethodHandles.permuteArguments(returning, target, self.bridge.ints(places))

    def of_one(self, handle: Any, result: str, argument: str, *parts: Any) -> Any:
        """A handle of one argument: passes it to each of the handles `parts`, and their results to `handle`."""
        filtered = self.invoke.MethodHandles.filterArguments(
            handle, 0, self.bridge.array(self.invoke.MethodHandle, parts)
        )
        return self.permute(filtered, result, (argument,), [0] * len(parts))

    def bind_first_to_reference(self, handle: Any, reference: Any, class_name: str) -> Any:
        """The handle with its first argument, of this class, read from an `AtomicReference` at every call."""
        owner = "java.util.concurrent.atomic.AtomicReference"
        value = self.bound(reference, owner, "get", OBJECT).asType(self.type_of(class_name))
        return self.invoke.MethodHandles.collectArguments(handle, 0, value)

    def compose(self, inner: Any, outer: Any) -> Any:
        """A handle that calls `inner`, then `outer` with its result."""
        return self.invoke.MethodHandles.filterReturnValue(inner, outer)

    def drop_arguments(self, handle: Any, *arguments: str) -> Any:
        """The handle with additional leading arguments of these classes, which it ignores."""
        classes = self.bridge.list(map(self.class_of, arguments))
        return self.invoke.MethodHandles.dropArguments(handle, 0, classes)

    def as_interface(self, interface: str, handle: Any) -> Any:
        """The handle as an object of an interface that has one method."""
        return self.invoke.MethodHandleProxies.asInterfaceInstance(self.class_of(interface), handle)

    def as_proxy(self, interface: str, handle: Any) -> Any:
        """An object of an interface whose methods all call the handle.

        The handle takes the proxy, the `Method` and its arguments as an `Object[]` (null if there are none).
        It returns the result of the method, as a `java.lang.reflect.Proxy` expects it.
        """
        handler = self.as_interface("java.lang.reflect.InvocationHandler", handle)
        interface_class = self.class_of(interface)
        classes = self.bridge.array(self.bridge.jvm.java.lang.Class, (interface_class,))
        return self.bridge.jvm.java.lang.reflect.Proxy.newProxyInstance(
            interface_class.getClassLoader(), classes, handler
        )
