"""The JVM of this process: its start, within a time limit, and its end.

With a local master it starts here, with Iceberg and Spark on its class path and without a Spark context: what reads and
commits metadata needs no more. A session that is built later uses it. For any other master Spark's own launcher starts it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Event
from typing import Any

from iceberg_maint.core.outcomes.failures import file_system_fix
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS
from iceberg_maint.engines.spark.session import class_archive
from iceberg_maint.engines.spark.session.process_tree import child_pids
from iceberg_maint.engines.spark.session.session_checks import check_master_answers
from iceberg_maint.engines.spark.session.settings import DEFAULTS, arguments_of
from iceberg_maint.errors import IcebergMaintError

EXIT_SECONDS = 300.0
"""Time for the exit of a JVM."""
START_SECONDS = 300.0
"""Time for the first answer of a JVM. Without load that takes a second."""
END_SECONDS = 2.0
"""How long a JVM that was killed takes to end."""
_POLL_SECONDS = 0.02
_ARGUMENT = "pyspark-shell"
_SERVER = "org.apache.spark.api.python.PythonGatewayServer"
_CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"

_LOCAL = re.compile(r"local(\[(\d+|\*)(, ?\d+)?\])?")
_OF_LAUNCHER = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "PYSPARK_SUBMIT_ARGS")
_GATEWAY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
_SETTINGS_OF_LAUNCHER = (
    "spark.submit.",
    "spark.kerberos.",
    "spark.files",
    "spark.archives",
    "spark.driver.extraLibraryPath",
)
"""What Spark's launcher reads or does beside our settings. If one is set, it starts the JVM."""
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_PROPERTIES = {
    "jdk.reflect.useDirectMethodHandle": "false",
    "io.netty.tryReflectionSetAccessible": "true",
    "io.netty.allocator.type": "pooled",
    "io.netty.handler.ssl.defaultEndpointVerificationAlgorithm": "NONE",
}
_MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "--enable-native-access=ALL-UNNAMED",
    *(f"-D{name}={value}" for name, value in _PROPERTIES.items()),
)
"""Spark's `JavaModuleOptions`, without its incubator module, which it does not need and which slows the start of Java."""
_COLLECTOR = re.compile(r"-XX:[+-]Use\w+GC\b")
_OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_SMALL_HEAP_MIB = 4096
_FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""The second compiler costs a JVM of seconds a third of its CPU. Java reserves 48 MiB for the code of one compiler, and Spark's
context stops when they are full."""
_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}


def starts_here(conf: Mapping[str, str]) -> bool:
    """Whether this module starts the JVM, without Spark's launcher: on a local master, if no file or variable holds settings
    that only the launcher reads."""
    environ = os.environ
    if not _LOCAL.fullmatch(conf["spark.master"]) or any(map(environ.get, (*_OF_LAUNCHER, *_GATEWAY))):
        return False
    if any(key.startswith(_SETTINGS_OF_LAUNCHER) for key in conf):
        return False
    folder = Path(environ.get("SPARK_CONF_DIR") or Path(_spark_home()) / "conf")
    return not (folder.is_dir() and any(file.suffix != ".template" for file in folder.iterdir()))


def launch(
    conf: Mapping[str, str],
    secrets: Collection[str],
    class_folder: Path | None = None,
    *,
    is_short: bool = False,
) -> dict[str, str]:
    """Starts the JVM of this process, unless it runs, and returns the settings for a session in it. Its arguments contain
    only public settings. It uses the archive of classes in `class_folder`, or leaves it to be written. `is_short`: its work
    takes seconds. Raises
    IcebergMaintError ICM-132 for a standalone cluster whose master does not answer, ICM-175 for a JVM that ends or does
    not answer in time, ICM-176 if this machine gives no file or process.

    PySpark would write all settings to the arguments. A session that is built later sends the other settings over
    a socket.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    check_master_answers(conf["spark.master"])
    public = arguments_of(conf, secrets)
    try:
        with _bounded_start() as is_late:
            if is_here := starts_here(conf):
                if SparkContext._gateway is None:
                    SparkContext._ensure_initialized(gateway=_start(conf, class_folder, is_short=is_short))
            else:
                # Without defaults, because they would come from a JVM, which does not run yet.
                arguments = SparkConf(loadDefaults=False)
                for key, value in public.items():
                    arguments.set(key, value)
                SparkContext._ensure_initialized(conf=arguments)
    except OSError as why:
        fix = file_system_fix(str(why)) or "correct what the message names"
        raise IcebergMaintError("ICM-176", f"Spark does not start: {why}.", f"{fix}.") from why
    except PySparkRuntimeError as why:
        if is_late.is_set():
            raise not_started(
                f"its JVM did not answer within {START_SECONDS:.0f} seconds, and was ended",
                "read what Java wrote on stderr; check the load of this machine and the space of its scratch folders.",
            ) from why
        raise not_started(
            "its JVM ended before it answered",
            "read what Java wrote on stderr; check spark.driver.memory and the other settings of spark.conf.",
        ) from why
    # They are on the class path. A context would copy them for its executor.
    return {key: value for key, value in conf.items() if not (is_here and key == "spark.jars")}


def _start(conf: Mapping[str, str], class_folder: Path | None, *, is_short: bool) -> Any:
    java, classes, options = executable(os.environ), class_path(conf), java_options(conf, os.environ)
    if is_short:
        options = [*_FIRST_COMPILER, *options]
    archive = class_archive.archive_of(class_folder, java, classes) if class_folder else None
    if any(option.startswith(class_archive.OPTIONS_OF_USERS) for option in options):
        archive = None
    file = class_archive.usable(archive) if archive else None
    if file is not None:
        options = [*class_archive.reading(file), *options]
    gateway = start_gateway(java, options, classes)
    if archive is not None and file is None:
        class_archive.write_later(archive)
    return gateway


def start_gateway(java: Path, options: Sequence[str], classes: str) -> Any:
    """Starts a JVM and connects to it. `java` is an executable. Raises PySparkRuntimeError if it ends before it answers."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    folder = tempfile.mkdtemp()
    try:
        answer = Path(folder) / "connection"
        environment = {"SPARK_CONNECT_MODE": "0", "SPARK_HOME": _spark_home(), _CONNECTION_FILE: str(answer)}
        # The JVM ends when its input ends, so it does not outlive this process. An interrupt of the terminal is not for it.
        process = subprocess.Popen(
            [java, *options, "-cp", classes, _SERVER, _ARGUMENT],
            stdin=subprocess.PIPE,
            env={**os.environ, **environment},
            process_group=0,
        )
        while process.poll() is None and not answer.is_file():
            time.sleep(_POLL_SECONDS)
        if not answer.is_file():
            process.communicate()
            # Spark 3.5 and 4.1 have other names for its class.
            raise PySparkRuntimeError("the JVM ended before it answered")
        port, length = struct.unpack(">ii", (content := answer.read_bytes())[:8])
        secret = content[8 : 8 + length].decode()
    finally:
        shutil.rmtree(folder)
    try:
        os.environ.update(zip(_GATEWAY, (str(port), secret), strict=True))
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in _GATEWAY:
            os.environ.pop(name, None)
    gateway.proc = process
    return gateway


def executable(environ: Mapping[str, str]) -> Path:
    """Java as Spark's launcher finds it."""
    home = environ.get("JAVA_HOME")
    return Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")


def class_path(conf: Mapping[str, str]) -> str:
    """The class path: what the user puts first, Spark's jars, and ours."""
    first = conf.get("spark.driver.extraClassPath", "")
    ours = conf.get("spark.jars", "").split(",")
    spark = sorted(str(jar) for jar in (Path(_spark_home()) / "jars").glob("*.jar"))
    return ":".join(filter(None, (first, *spark, *ours)))


def java_options(conf: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """Java's options. Those of the user come last, so they win."""
    memory = conf.get("spark.driver.memory", DEFAULTS["spark.driver.memory"])
    users = [conf.get(f"spark.driver.{kind}JavaOptions", "") for kind in ("default", "extra")]
    given = [*(environ.get(name, "") for name in _OPTION_VARIABLES), *users]
    options = list(_MODULE_OPTIONS)
    # Java takes one collector only. A heap of this size has no pauses that matter.
    if not any(map(_COLLECTOR.search, given)) and _mib(memory) <= _SMALL_HEAP_MIB:
        options.append("-XX:+UseSerialGC")
    options += shlex.split(environ.get("SPARK_SUBMIT_OPTS", ""))
    return [*options, f"-Xmx{memory}", *(word for text in users for word in shlex.split(text))]


def _mib(memory: str) -> float:
    """The size in MiB; what Java does not read is of no size."""
    size, unit = memory[:-1], memory[-1:].lower()
    return int(size) * _MIB[unit] if size.isdecimal() and unit in _MIB else float("inf")


def _spark_home() -> str:
    from pyspark.find_spark_home import _find_spark_home

    return str(_find_spark_home())  # type: ignore[no-untyped-call]


@contextmanager
def _bounded_start() -> Iterator[Event]:
    """Kills the JVM that starts in the block after `START_SECONDS`, and at any error: PySpark waits without end for the answer
    of a JVM that lives, and a JVM that could not write its answer would outlive this process. Sets the event if it was late."""
    before, is_late = frozenset(_jvms()), Event()

    def kill() -> None:
        for pid in frozenset(_jvms()) - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end() -> None:
        is_late.set()
        kill()

    timer = threading.Timer(START_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield is_late
    except BaseException:
        kill()
        raise
    finally:
        timer.cancel()


def _jvms() -> Sequence[int]:
    return child_pids(_ARGUMENT.encode())


def kill_jvm() -> None:
    """Kills the JVM of this process, if there is one."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def drop_ended_jvm() -> None:
    """Forgets the JVM of this process and its session if it has ended, so that the next start makes another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    try:
        process.wait(END_SECONDS)
    except TimeoutExpired:
        return
    with suppress(*JVM_ERRORS, OSError):
        gateway.close()
        process.stdin.close()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def exit_jvm() -> int | None:
    """Stops the Spark of this process, lets its JVM exit with all that it does at its exit, and waits for its end. Kills
    the JVM after `EXIT_SECONDS`. Returns its exit code, a negative one if a signal killed it, None if there is no JVM."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return None
    with suppress(*JVM_ERRORS, OSError):
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        # It ends without an answer.
        gateway.jvm.java.lang.System.exit(0)
    try:
        gateway.proc.wait(EXIT_SECONDS)
    except TimeoutExpired:
        kill_jvm()
    code: int = gateway.proc.wait()
    return code


def not_started(why: str, fix: str) -> IcebergMaintError:
    """The error of a Spark that does not start."""
    return IcebergMaintError("ICM-175", f"Spark does not start: {why}.", fix)
