"""The bridge to the JVM of a Spark session. No module outside this package uses py4j.

The bridge calls the public Java classes of Iceberg and Spark. Values cross as Java objects or as
JSON text. A value that crosses per file costs about 0.3 ms each way. Therefore loops over files run in the JVM,
or the files cross in one JSON document.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.clientserver import JavaClient
from py4j.java_gateway import JavaClass, JavaMember, JavaObject, JavaPackage
from pyspark.java_gateway import ensure_callback_server_started

from iceberg_maint.engines.spark.jvm.plain_catalogs import PlainCatalogs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

T = TypeVar("T")

_callback_lock = threading.Lock()
_callback_users = 0


class _Class(JavaClass):  # type: ignore[misc]
    """A Java class whose static methods and inner classes are looked up once. Static fields may change."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, JavaClass):
            member = _Class(member._fqn, member._gateway_client)
        elif not isinstance(member, JavaMember):
            return member
        setattr(self, name, member)  # Python finds an attribute before it calls __getattr__
        return member


class Names:
    """Java classes by their dotted names. Each part of a name is looked up once, each static method, too.

    py4j looks up every part in the JVM every time, and the JVM searches all jars for a class of that name:
    0.3 ms for each `org` and `apache`.
    """

    def __init__(self, package: Any) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._package, name)
        if isinstance(member, JavaPackage):
            member = Names(member)
        elif isinstance(member, JavaClass):
            member = _Class(member._fqn, member._gateway_client)
        else:
            return member
        setattr(self, name, member)  # Python finds an attribute before it calls __getattr__
        return member


CheckWrites = Callable[[str, str, Mapping[str, str]], None]
"""(a table's full name, its location, its properties) → nothing. Raises RefusedError ICM-155 if its files would be
written to a location that is not approved."""


@dataclass(frozen=True, slots=True)
class PlainJvm:
    """A JVM without a Spark context. `conf` are the settings of the session that `start` starts in it."""

    gateway: Any
    conf: Mapping[str, str]
    start: Callable[[], SparkSession]


class Bridge:
    """Access to the JVM of one Spark session, which starts at its first use if the JVM has none. Its only state is a cache of
    lookups, and how often the session's jobs were cancelled. Any thread may use it."""

    def __init__(self, driver: SparkSession | PlainJvm) -> None:
        self._plain = driver if isinstance(driver, PlainJvm) else None
        self._spark: SparkSession | None = None
        self._starting = threading.RLock()
        self._thread = threading.local()
        jvm = driver.gateway.jvm if isinstance(driver, PlainJvm) else driver._jvm
        assert jvm is not None, "a classic session, not Spark Connect"
        self.jvm: Any = Names(jvm)
        self.gateway: Any
        if isinstance(driver, PlainJvm):
            self.gateway = driver.gateway
        else:
            self.gateway = driver.sparkContext._gateway
            self.adopt(driver)
        self.iceberg: Any = self.jvm.org.apache.iceberg
        self.take_calls: Callable[[str, int], None] = lambda _table, _calls: None
        self.cancellations = 0
        self._classes: dict[str, Any] = {}
        self._singletons: dict[Callable[[Bridge], Any], Any] = {}

    def adopt(self, spark: SparkSession) -> None:
        """Takes the session that runs in this JVM now."""
        # PySpark looks these names up for every column or job that it makes. The JVM searches every imported
        # package for them, which takes a millisecond each.
        for name in ("PythonUtils", "functions", "py4j", "PythonRDD", "SimplePythonFunction"):
            setattr(spark._jvm, name, getattr(self.jvm, name))
        self._spark = spark

    @property
    def has_spark(self) -> bool:
        """Whether the session has started."""
        return self._spark is not None

    @property
    def spark(self) -> SparkSession:
        """The session. Starts it if the JVM has none; raises what its start raises."""
        with self._starting:
            if self._spark is None:
                assert self._plain is not None
                self.adopt(self._plain.start())
            spark = self._spark
        assert spark is not None
        if (waiting := getattr(self._thread, "waiting", None)) is not None:
            self._thread.waiting = None
            self._enter(spark, *waiting)
        return spark

    @property
    def session(self) -> Any:
        """The Java session."""
        return self.spark._jsparkSession

    def is_driver(self, driver: SparkSession | PlainJvm) -> bool:
        """Whether this is the bridge to that JVM or session."""
        if isinstance(driver, PlainJvm):
            plain = self._plain
            return plain is not None and (plain.gateway, plain.conf) == (driver.gateway, driver.conf)
        if self._spark is None and self._plain and driver.sparkContext._gateway is self.gateway:
            self.adopt(driver)
        return self._spark is driver

    @property
    def spark_version(self) -> str:
        """The version of Spark on the class path."""
        if self._spark is not None:
            return str(self._spark.version)
        return str(self.jvm.org.apache.spark.SparkBuildInfo.spark_version())

    @property
    def is_spark_3(self) -> bool:
        """Whether this is Spark 3.5, which differs from Spark 4 in some calls."""
        return self.spark_version.startswith("3.")

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, by processes of this one. Only a local master has a JVM without a context."""
        return self._spark is None or str(self._spark.sparkContext.master).startswith("local")

    @property
    def parallelism(self) -> int:
        """The tasks that run at the same time."""
        if self._spark is not None:
            return int(self._spark.sparkContext.defaultParallelism)
        conf = self.conf()
        cores = re.sub(r"\D*(\d+|\*)?.*", r"\1", conf["spark.master"]) or "1"
        default = self.jvm.java.lang.Runtime.getRuntime().availableProcessors() if cores == "*" else cores
        return int(conf.get("spark.default.parallelism", default))

    @property
    def scala_context(self) -> Any:
        """The Scala `SparkContext` of the session."""
        return self.spark.sparkContext._jsc.sc()

    def conf(self) -> dict[str, str]:
        """All settings of the session. The Python interface of Spark 3.5 returns one at a time only."""
        if self._spark is None and self._plain is not None:
            return dict(self._plain.conf)
        entries = str(self.session.conf().getAll().mkString("\0")).split("\0")
        return {key: value for key, _, value in (entry.partition(" -> ") for entry in entries)}

    def activate(self) -> None:
        """Makes this session the active session of the calling thread. In a thread without an active session
        Spark looks up catalogs in its built-in settings, which lack the catalog of staged writes. A session that starts
        later is active in the threads that use it.
        """
        self._enter_when_started()

    def enter_job(self, group: str, description: str) -> None:
        """Activates the session in this thread, whose Spark jobs from now on are of this group, also if Spark starts later."""
        self._enter_when_started(group, description)

    def _enter_when_started(self, *job: str) -> None:
        if self._spark is None:
            if job or getattr(self._thread, "waiting", None) is None:
                self._thread.waiting = job
        else:
            self._enter(self._spark, *job)

    def _enter(self, spark: SparkSession, *job: str) -> None:
        self.jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
        if job:
            group, description = job
            spark.sparkContext.setJobGroup(group, description, interruptOnCancel=True)

    def abandon_calls(self) -> None:
        """Closes the connection of this thread. An interrupted call leaves its answer in the connection, and the next
        call would take that for its own."""
        client = self.gateway._gateway_client
        # Without pinned threads a connection is taken out of the pool for its call, and an interrupt drops it.
        if isinstance(client, JavaClient) and (connection := client.get_thread_connection()) is not None:
            connection.close()

    def once(self, make: Callable[[Bridge], T]) -> T:
        """The object that `make` builds for this bridge. The first call builds it; later calls return the same."""
        if make not in self._singletons:
            self._singletons[make] = make(self)
        singleton: T = self._singletons[make]
        return singleton

    # tables

    def load_table(self, identifier: str) -> Any:
        """Loads the Java `Table` of `catalog.namespace.table` from the session's catalog, whose cache is off.

        It does not use Spark's parser, which replaces `${…}` in a name by settings. Raises what the catalog
        raises, as one of `JVM_ERRORS`. The call is taken from the catalog's budget by `take_calls`.
        """
        self.take_calls(identifier, 1)
        catalog_name, *names = identifier.split(".")
        if self._spark is None:
            catalog = self.once(_plain_catalogs).of(catalog_name)
        else:
            catalog = self.iceberg.spark.Spark3Util.loadIcebergCatalog(self.session, catalog_name)
        return catalog.loadTable(self.iceberg.catalog.TableIdentifier.parse(".".join(names)))

    def all_rows(self) -> Any:
        """Iceberg's `ResidualEvaluator` that is true for every row."""
        expressions = self.iceberg.expressions
        return expressions.ResidualEvaluator.unpartitioned(expressions.Expressions.alwaysTrue())

    # Java values

    def static(self, class_name: str, method: str) -> Callable[..., Any]:
        """A static method that shares its name with an instance method. py4j does not distinguish the two."""
        return JavaMember(method, None, f"z:{class_name}", self.gateway._gateway_client)

    def java_class(self, class_name: str) -> Any:
        """The `Class` object, from the class loader that has the session's jars."""
        if class_name not in self._classes:
            loader = self.jvm.Thread.currentThread().getContextClassLoader()
            self._classes[class_name] = self.jvm.java.lang.Class.forName(class_name, True, loader)
        return self._classes[class_name]

    def list(self, items: Iterable[Any]) -> Any:
        """A `java.util.ArrayList`. A Java collection is copied in one call."""
        if isinstance(items, JavaObject):
            return self.jvm.java.util.ArrayList(items)
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

    def texts_by_key(self, java_map: Any) -> dict[str, str]:
        """The entries of a Java map of strings. They cross as one text: py4j ends its iteration over the keys by an
        exception of Java, and makes a call for each entry."""
        mapper = self.iceberg.util.JsonUtil.mapper()
        entries: dict[str, str] = json.loads(str(mapper.writeValueAsString(java_map)))
        return entries

    def array(self, java_class: Any, items: Iterable[Any]) -> Any:
        """A Java array of this class."""
        values = list(items)
        result = self.gateway.new_array(java_class, len(values))
        # py4j's own assignment first asks for the length of the array.
        store = self.jvm.java.lang.reflect.Array.set
        for index, value in enumerate(values):
            store(result, index, value)
        return result

    def ints(self, items: Iterable[int]) -> Any:
        """An `int[]`."""
        return self.array(self.jvm.int, items)

    def iterate(self, iterable: Any) -> Iterator[Any]:
        """The elements of a Java `Iterable`. A closeable one is closed at the end.

        py4j's own iteration fails on CloseableIterable and on Iceberg's file sets.
        """
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
        """Java may call Python objects inside this block. This needs a server, which listens on loopback. The
        first block on any thread starts the server; the last one stops it."""
        global _callback_users  # noqa: PLW0603 - one server per process, as in py4j
        with _callback_lock:
            if _callback_users == 0:
                ensure_callback_server_started(self.gateway)
                # py4j's server thread may start to listen after the first call from Java.
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
        # py4j closes the stream of each connection while the reader waits in it, and that close never
        # returns. Shutting down the socket first ends the reader. Java's finalizer connects at any time to
        # give up a proxy of Python: the server must add no connection after the last one that is shut down.
        with server.lock:
            server.is_shutdown = True
            for connection in list(server.connections):
                with suppress(OSError, AttributeError):  # the socket is None after its JVM has died
                    connection.socket.shutdown(socket.SHUT_RDWR)
        self.gateway.shutdown_callback_server()
        self.gateway._callback_server = None


def _plain_catalogs(bridge: Bridge) -> PlainCatalogs:
    return PlainCatalogs(bridge.jvm, bridge.conf(), bridge.spark_version)


_shared: list[Bridge] = []
"""The bridge that `bridge_of` returned last."""


def bridge_of(driver: SparkSession | PlainJvm) -> Bridge:
    """Returns the bridge of a session or JVM, the same one for all engines of the process: what it has looked up and built
    in the JVM serves the next table of a run, too."""
    with _callback_lock:
        if not (_shared and _shared[0].is_driver(driver)):
            _shared[:] = [Bridge(driver)]
        return _shared[0]


def check_written_locations(bridge: Bridge, check: CheckWrites | None, identifier: str, table: Any) -> None:
    """Raises RefusedError ICM-155 if files of a Java `Table` that was just loaded would be written to a location that is not
    approved. Reads nothing if no catalog limits its locations."""
    if check is not None:
        check(identifier, str(table.location()), bridge.texts_by_key(table.properties()))


def java_frame(frame: DataFrame) -> Any:
    """The Java `Dataset` of a frame."""
    return frame._jdf


def java_column(column: Column) -> Any:
    """The Java `Column` of a column."""
    return column._jc


def sql_name(identifier: str) -> str:
    """`catalog.namespace.table` for Spark's parser: every part in backquotes, backquotes in it doubled."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in identifier.split("."))
