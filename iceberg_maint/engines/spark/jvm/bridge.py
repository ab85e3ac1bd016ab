"""The bridge to the JVM of a Spark session. No other module uses py4j.

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
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import ensure_callback_server_started

from iceberg_maint.core.outcomes.failures import ENVIRONMENT_CODES, is_environment, python_causes
from iceberg_maint.errors import IcebergMaintError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

T = TypeVar("T")

JVM_ERRORS = (Py4JError, CapturedException)
"""What a call into the JVM may raise: a Java exception, or a broken connection."""
DEAD_JVM_ERRORS = (*JVM_ERRORS, OSError, EOFError)
"""What a call may raise too if the JVM has died. It must not replace the exception that ended the work."""


class CancelledError(Py4JError):  # type: ignore[misc]
    """Work of a session in this process was cancelled with its jobs: handled as Spark's error of a cancelled job."""


class WorkerFailedError(Py4JError):  # type: ignore[misc]
    """A task failed in a worker process of this machine, by its cause: handled as Spark's error of a failed task."""


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
        self.check_writes: CheckWrites | None = None
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

    def check_written_locations(self, identifier: str, table: Any) -> None:
        """Raises RefusedError ICM-155 if files of a Java `Table` that was just loaded would be written to a location that
        is not approved. Reads nothing if no catalog limits its locations."""
        if self.check_writes is not None:
            properties = self.texts_by_key(table.properties())
            self.check_writes(identifier, str(table.location()), properties)

    def load_table(self, identifier: str) -> Any:
        """Loads the Java `Table` of `catalog.namespace.table` from the session's catalog, whose cache is off.

        It does not use Spark's parser, which replaces `${…}` in a name by settings. Raises what the catalog
        raises, as one of `JVM_ERRORS`. The call is taken from the catalog's budget by `take_calls`.
        """
        self.take_calls(identifier, 1)
        catalog_name, *names = identifier.split(".")
        if self._spark is None:
            catalog = self.once(_PlainCatalogs).of(catalog_name)
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


class _PlainCatalogs:
    """The Iceberg catalogs of a JVM without a Spark context, built as Iceberg's `SparkCatalog` builds them."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge, self._conf = bridge, bridge.conf()
        self._lock = threading.Lock()
        self._catalogs: dict[str, Any] = {}
        spark = bridge.jvm.org.apache.spark
        spark_conf = spark.SparkConf(False)
        for key, value in self._conf.items():
            if key.startswith("spark.") and not key.startswith("spark.sql.catalog."):
                spark_conf.set(key, value)
        self._hadoop = spark.deploy.SparkHadoopUtil.get().newConfiguration(spark_conf)
        for key, value in self._conf.items():
            if not key.startswith("spark."):
                self._hadoop.set(key, value)
        context = bridge.iceberg.EnvironmentContext
        context.put("engine-name", "spark")
        context.put("engine-version", bridge.spark_version)
        context.put("app-name", self._conf["spark.app.name"])

    def of(self, name: str) -> Any:
        """The catalog of this name."""
        with self._lock:
            if name not in self._catalogs:
                prefix = f"spark.sql.catalog.{name}."
                jvm = self._bridge.jvm
                properties = jvm.java.util.TreeMap(jvm.java.lang.String.CASE_INSENSITIVE_ORDER)
                for key, value in self._conf.items():
                    if key.startswith(prefix):
                        properties.put(key.removeprefix(prefix), value)
                build = self._bridge.iceberg.CatalogUtil.buildIcebergCatalog
                self._catalogs[name] = build(name, properties, self._hadoop)
            return self._catalogs[name]


_shared: list[Bridge] = []
"""The bridge that `bridge_of` returned last."""


def bridge_of(driver: SparkSession | PlainJvm) -> Bridge:
    """Returns the bridge of a session or JVM, the same one for all engines of the process: what it has looked up and built
    in the JVM serves the next table of a run, too."""
    with _callback_lock:
        if not (_shared and _shared[0].is_driver(driver)):
            _shared[:] = [Bridge(driver)]
        return _shared[0]


def java_frame(frame: DataFrame) -> Any:
    """The Java `Dataset` of a frame."""
    return frame._jdf


def java_column(column: Column) -> Any:
    """The Java `Column` of a column."""
    return column._jc


def sql_name(identifier: str) -> str:
    """`catalog.namespace.table` for Spark's parser: every part in backquotes, backquotes in it doubled."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in identifier.split("."))


def java_exception(error: BaseException) -> Any | None:
    """The Java `Throwable` that a Python exception wraps; None if it wraps none."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    if isinstance(error, CapturedException):
        return error._origin
    return None


def causes(error: BaseException) -> tuple[tuple[str, str], ...]:
    """(class name, message) of the Java exception and its causes, outermost first; () if the
    exception came neither from Java nor from a worker process."""
    if isinstance(error, WorkerFailedError) and error.__cause__ is not None:
        return python_causes(error.__cause__)
    chain: list[tuple[str, str]] = []
    throwable = java_exception(error)
    if isinstance(throwable, Py4JJavaError):
        throwable = throwable.java_exception
    while throwable is not None and len(chain) < 32:
        chain.append((str(throwable.getClass().getName()), str(throwable.getMessage() or "")))
        throwable = throwable.getCause()
    return tuple(chain)


def failed_by_environment(error: BaseException) -> bool:
    """Whether the error, of Java or of Python, says nothing about the files of a table."""
    if isinstance(error, IcebergMaintError):
        return error.code in ENVIRONMENT_CODES
    return is_environment(causes(error) or python_causes(error))


def cause_classes(error: BaseException) -> tuple[str, ...]:
    """Class names of the Java exception and its causes, outermost first."""
    return tuple(name for name, _ in causes(error))


def connection_lost(error: BaseException) -> bool:
    """Whether the connection to the JVM is lost. The result of the last call is then unknown."""
    return isinstance(error, (Py4JNetworkError, ConnectionError, EOFError))


def all_lines(error: BaseException) -> str:
    """The innermost cause on one line: its class and its whole message, cut to 500 characters. Iceberg names a missing
    class in the second line of a message."""
    chain = causes(error)
    name, message = chain[-1] if chain else (type(error).__name__, str(error))
    return f"{name.rpartition('.')[2]}: {' '.join(message.split())[:500]}".rstrip(": .")


def first_cause(error: BaseException) -> str:
    """The innermost cause that has a message, on one line of at most 500 characters. The message of an exception of a
    Python worker is a traceback, of which this is the last line."""
    for name, message in reversed(causes(error)):
        if lines := message.strip().splitlines():
            is_traceback = name.endswith(".PythonException")
            text = lines[-1] if is_traceback else f"{name.rpartition('.')[2]}: {' '.join(message.split())}"
            return text[:500].rstrip(": .")
    return all_lines(error)


def one_line(error: BaseException) -> str:
    """The innermost cause as one line: its class and the first line of its message."""
    chain = causes(error)
    if chain:
        name, message = chain[-1]
        return f"{name.rpartition('.')[2]}: {message.splitlines()[0] if message else ''}".rstrip(": ")
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}".rstrip(": ")
