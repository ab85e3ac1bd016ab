"""The bridge to the JVM of a Spark session, and the only module that speaks py4j.

Iceberg and Spark are driven through their public Java classes. Values cross as Java objects or
JSON text; what crosses per file costs about 0.3 ms each way, so loops over files stay in the JVM
or in one JSON document where that is possible.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import ensure_callback_server_started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

JVM_ERRORS = (Py4JError, CapturedException)
"""What a call into the JVM may raise: an exception of Java's, or a broken connection."""

_callback_lock = threading.Lock()
_callback_users = 0


class Names:
    """Classes by their dotted names, each part asked for once. py4j asks the JVM about every part every
    time, and the JVM looks for a class of that name in all jars: 0.3 ms for each `org` and `apache`.
    """

    def __init__(self, known: Any) -> None:
        self._known = known

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._known, name)
        if isinstance(found, JavaPackage):
            found = Names(found)
        elif not isinstance(found, JavaClass):
            return found
        setattr(self, name, found)  # Python looks here first
        return found


class Bridge:
    """MethodHandles into one Spark session's JVM. No state but what was looked up, safe from any thread."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        assert spark._jvm is not None, "a classic session, not Spark Connect"
        self.jvm: Any = Names(spark._jvm)
        # PySpark asks for these by every column it makes, by names the JVM looks for in every package
        # imported: a millisecond each.
        for name in ("PythonUtils", "functions", "py4j"):
            setattr(spark._jvm, name, getattr(self.jvm, name))
        self.gateway: Any = spark.sparkContext._gateway
        self.session: Any = spark._jsparkSession
        self.iceberg: Any = self.jvm.org.apache.iceberg
        self._classes: dict[str, Any] = {}
        self._made: dict[Callable[[Bridge], Any], Any] = {}

    @property
    def is_spark_3(self) -> bool:
        """Whether this is Spark 3.5, whose ways differ here and there."""
        return str(self.spark.version).startswith("3.")

    def conf(self) -> dict[str, str]:
        """All of the session's settings; Spark 3.5 tells Python of one at a time."""
        entries = str(self.session.conf().getAll().mkString("\0")).split("\0")
        return {key: value for key, _, value in (entry.partition(" -> ") for entry in entries)}

    def activate(self) -> None:
        """Makes the session that of the calling thread. Without one Spark looks up catalogs in
        built-in settings, where the catalog that staged writes go to is missing.
        """
        self.jvm.org.apache.spark.sql.SparkSession.setActiveSession(self.session)

    def once(self, make: Callable[[Bridge], T]) -> T:
        """What is made of a bridge and serves as long as it: made at the first call, kept for the next."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    # tables

    def load_table(self, identifier: str) -> Any:
        """The Java `Table` behind `catalog.namespace.table`, freshly loaded (the catalog's cache
        is off) from the session's catalog. Not by way of Spark's parser, which puts settings in the
        place of `${…}` in a name. Raises what the catalog raises, as one of `JVM_ERRORS`."""
        catalog, *names = identifier.split(".")
        loaded = self.iceberg.spark.Spark3Util.loadIcebergCatalog(self.session, catalog)
        parts = self.array(self.jvm.java.lang.String, names)
        return loaded.loadTable(self.iceberg.catalog.TableIdentifier.of(parts))

    # Java values

    def static(self, class_name: str, method: str) -> Callable[..., Any]:
        """A static method whose name an instance method shares, which py4j cannot tell apart."""
        return JavaMember(method, None, f"z:{class_name}", self.gateway._gateway_client)

    def java_class(self, class_name: str) -> Any:
        """The `Class` object, found by the loader that knows the session's jars."""
        if class_name not in self._classes:
            loader = self.jvm.Thread.currentThread().getContextClassLoader()
            self._classes[class_name] = self.jvm.java.lang.Class.forName(class_name, True, loader)
        return self._classes[class_name]

    def list(self, items: Iterable[Any]) -> Any:
        """A `java.util.ArrayList`."""
        result = self.jvm.java.util.ArrayList()
        for item in items:
            result.add(item)
        return result

    def map(self, items: Iterable[tuple[Any, Any]]) -> Any:
        """A `java.util.HashMap`."""
        result = self.jvm.java.util.HashMap()
        for key, value in items:
            result.put(key, value)
        return result

    def array(self, java_class: Any, items: Iterable[Any]) -> Any:
        """A Java array of this class."""
        values = list(items)
        result = self.gateway.new_array(java_class, len(values))
        for index, value in enumerate(values):
            result[index] = value
        return result

    def ints(self, items: Iterable[int]) -> Any:
        """An `int[]`."""
        return self.array(self.jvm.int, items)

    def iterate(self, iterable: Any) -> Iterator[Any]:
        """Elements of a Java `Iterable`. py4j's own `for` fails on CloseableIterable and on
        Iceberg's file sets; a closeable one is closed at the end."""
        iterator = iterable.iterator()
        try:
            while iterator.hasNext():
                yield iterator.next()
        finally:
            if self.java_class("java.io.Closeable").isInstance(iterable):
                iterable.close()

    # callbacks

    @contextmanager
    def callbacks(self) -> Iterator[None]:
        """Java may call Python objects inside this block. The server it needs listens on
        loopback, is started by the first user and closed by the last one, on any thread."""
        global _callback_users  # noqa: PLW0603 - one server per process, as in py4j
        with _callback_lock:
            if _callback_users == 0:
                ensure_callback_server_started(self.gateway)
                # py4j listens on a thread of its own, which may come later than Java's first call.
                self.gateway._callback_server.server_socket.listen(5)
            _callback_users += 1
        try:
            yield
        finally:
            with _callback_lock:
                _callback_users -= 1
                if _callback_users == 0:
                    self._stop_callback_server()

    def _stop_callback_server(self) -> None:
        server = self.gateway._callback_server
        # py4j closes the stream of each connection while its reader waits in it, which never
        # ends; a reader whose socket is shut down leaves first.
        for connection in list(server.connections):
            with suppress(OSError, AttributeError):  # it has none any more when its JVM has died
                connection.socket.shutdown(socket.SHUT_RDWR)
        self.gateway.shutdown_callback_server()
        self.gateway._callback_server = None


def sql_name(identifier: str) -> str:
    """`catalog.namespace.table` as Spark's parser reads it: every part quoted, quotes doubled."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in identifier.split("."))


def java_exception(error: BaseException) -> Any | None:
    """The Java `Throwable` behind a Python exception, None when there is none."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    if isinstance(error, CapturedException):
        return error._origin
    return None


def causes(error: BaseException) -> tuple[tuple[str, str], ...]:
    """(class name, message) of the Java exception and its causes, outermost first; () when the
    exception did not come from Java."""
    found: list[tuple[str, str]] = []
    throwable = java_exception(error)
    if isinstance(throwable, Py4JJavaError):
        throwable = throwable.java_exception
    while throwable is not None and len(found) < 32:
        found.append((str(throwable.getClass().getName()), str(throwable.getMessage() or "")))
        throwable = throwable.getCause()
    return tuple(found)


def cause_classes(error: BaseException) -> tuple[str, ...]:
    """Class names of the Java exception and its causes, outermost first."""
    return tuple(name for name, _ in causes(error))


def connection_lost(error: BaseException) -> bool:
    """Whether the JVM cannot be talked to any more: what it did last is unknown."""
    return isinstance(error, (Py4JNetworkError, ConnectionError, EOFError))


def one_line(error: BaseException) -> str:
    """The innermost cause in one line: its class and the first line of its message."""
    chain = causes(error)
    if chain:
        name, message = chain[-1]
        return f"{name.rpartition('.')[2]}: {message.splitlines()[0] if message else ''}".rstrip(": ")
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}".rstrip(": ")
