"""Method handles of the JVM, put together from Python: functions of Java's own made of its methods."""

from __future__ import annotations

from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge


class MethodHandles:
    """Makes handles of public methods and puts them together; classes are told by their names."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.invoke: Any = bridge.jvm.java.lang.invoke
        self.lookup: Any = self.invoke.MethodHandles.publicLookup()

    def class_of(self, name: str) -> Any:
        """The class of this name, a primitive's among them."""
        lang = self.bridge.jvm.java.lang
        primitives = {"boolean": lang.Boolean, "int": lang.Integer, "long": lang.Long, "void": lang.Void}
        return primitives[name].TYPE if name in primitives else self.bridge.java_class(name)

    def type_of(self, result: str, *arguments: str) -> Any:
        """The type of a handle that returns `result`."""
        listed = self.bridge.list(map(self.class_of, arguments))
        return self.invoke.MethodType.methodType(self.class_of(result), listed)

    def getter(self, owner: str, method: str, result: str) -> Any:
        """A handle of a method without arguments; its one argument is the object."""
        return self.lookup.findVirtual(self.class_of(owner), method, self.type_of(result))

    def bound(self, receiver: Any, owner: str, method: str, result: str, *arguments: str) -> Any:
        """A handle of a method of this object, as its class or interface `owner` declares it."""
        found = self.lookup.findVirtual(self.class_of(owner), method, self.type_of(result, *arguments))
        return found.bindTo(receiver)

    def given(self, handle: Any, place: int, argument: Any) -> Any:
        """The handle with one argument fixed."""
        values = self.bridge.array(self.bridge.jvm.java.lang.Object, [argument])
        return self.invoke.MethodHandles.insertArguments(handle, place, values)

    def first(self, handle: Any, reference: Any, kind: str) -> Any:
        """The handle, its first argument being what the `AtomicReference` holds at the time."""
        owner, anything = "java.util.concurrent.atomic.AtomicReference", "java.lang.Object"
        value = self.bound(reference, owner, "get", anything).asType(self.type_of(kind))
        return self.invoke.MethodHandles.collectArguments(handle, 0, value)

    def then(self, first: Any, second: Any) -> Any:
        """A handle of one after the other."""
        return self.invoke.MethodHandles.filterReturnValue(first, second)

    def after(self, handle: Any, *arguments: str) -> Any:
        """The handle with arguments before its own that it does not look at."""
        listed = self.bridge.list(map(self.class_of, arguments))
        return self.invoke.MethodHandles.dropArguments(handle, 0, listed)

    def as_interface(self, interface: str, handle: Any) -> Any:
        """The handle as an object of an interface of one method."""
        return self.invoke.MethodHandleProxies.asInterfaceInstance(self.class_of(interface), handle)

    def as_proxy(self, interface: str, handle: Any) -> Any:
        """An object of any interface all of whose methods are the handle: (proxy, `Method`, arguments as an
        `Object[]`, null where there are none) → the answer, of the type that a `java.lang.reflect.Proxy` wants."""
        handler = self.as_interface("java.lang.reflect.InvocationHandler", handle)
        kind = self.class_of(interface)
        classes = self.bridge.array(self.bridge.jvm.java.lang.Class, (kind,))
        return self.bridge.jvm.java.lang.reflect.Proxy.newProxyInstance(
            kind.getClassLoader(), classes, handler
        )
