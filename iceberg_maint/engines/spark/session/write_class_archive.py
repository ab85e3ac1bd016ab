"""Writes the archive of Java's classes: starts a JVM that loads them, and writes them when it exits."""

from __future__ import annotations

import fcntl
import gzip
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import NoReturn

from iceberg_maint.engines.spark.jvm.bridge import Bridge, PlainJvm
from iceberg_maint.engines.spark.jvm.functions import OBJECT, STRING, JavaFunctions
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS
from iceberg_maint.engines.spark.session import class_archive
from iceberg_maint.engines.spark.session.class_archive import (
    QUIET,
    Archive,
    archive_of,
    check_writers,
    file_name,
)
from iceberg_maint.engines.spark.session.driver_jvm import java_options, start_gateway
from iceberg_maint.engines.spark.session.settings import DEFAULTS
from iceberg_maint.errors import RefusedError

_KEPT = 4
"""Archives that are kept: those of other versions may be in use."""
_LOWEST_PRIORITY = 19
_EXIT_SECONDS = 120.0


def write(archive: Archive) -> str:
    """Writes the archive, and removes old ones. Returns why it is not written, "" if it is. Raises OSError, BlockingIOError
    if another process writes one, RefusedError ICM-105 if other users could replace it."""
    check_writers(archive.folder / archive.key, is_replaced=True)
    with _locked(archive.folder), tempfile.TemporaryDirectory(dir=archive.folder) as folder:
        made, log = Path(folder) / "classes.jsa", Path(folder) / "java.log"
        code = _load_and_exit(archive, made, log)
        if code != 0 or not made.exists():
            archive.failed.touch(0o600)
            lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
            return lines[-1].strip() if lines else f"Java ended with code {code}"
        made.chmod(0o400)
        made.replace(archive.folder / file_name(archive.key, made.stat().st_size))
        archive.failed.unlink(missing_ok=True)
    archives = sorted(archive.folder.glob("*.jsa"), key=lambda a: -a.stat().st_mtime)
    for old in archives[_KEPT:]:
        old.unlink(missing_ok=True)
    return ""


def _load_and_exit(archive: Archive, made: Path, log: Path) -> int:
    """Loads the classes in a JVM that writes them to `made` when it exits. Returns its exit code."""
    from pyspark.errors import PySparkRuntimeError

    writing = (
        f"-XX:ArchiveClassesAtExit={made}",
        *QUIET,
        f"-Xlog:cds*=error:file={log}:none",
    )
    try:
        gateway = start_gateway(archive.java, [*writing, *java_options(DEFAULTS, {})], archive.class_path)
    except PySparkRuntimeError:
        return 1
    try:
        with suppress(*JVM_ERRORS):
            _load(Bridge(PlainJvm(gateway, {}, _no_session)))
        gateway.proc.stdin.close()  # it then exits
        return int(gateway.proc.wait(_EXIT_SECONDS))
    except TimeoutExpired:
        gateway.proc.kill()
        return int(gateway.proc.wait())


def _load(bridge: Bridge) -> None:
    """Loads the classes by one call. Those of other versions of Spark are not there."""
    functions = bridge.once(JavaFunctions)
    loader = bridge.jvm.java.lang.ClassLoader.getSystemClassLoader()
    method_handles = functions.invoke.MethodHandles
    # Java: name -> { try { return loader.loadClass(name); } catch (Throwable e) { return null; } }
    class_name = "java.lang.Class"
    find = functions.bound(loader, "java.lang.ClassLoader", "loadClass", class_name, STRING)
    none = method_handles.empty(functions.type_of(class_name, "java.lang.Throwable", STRING))
    find = method_handles.catchException(find, functions.class_of("java.lang.Throwable"), none)
    find = functions.as_interface(
        "java.util.function.Function", find.asType(functions.type_of(OBJECT, OBJECT))
    )
    names = gzip.decompress(class_archive.CLASSES.read_bytes()).decode().split()
    functions.to_list(functions.stream_of_texts(names).map(find)).size()


def _no_session() -> NoReturn:
    raise AssertionError("the classes are loaded without a session")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError if another process has locked the folder. The lock ends with its process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def main() -> None:
    """Writes the archive that the arguments name, unless another process writes one."""
    os.nice(_LOWEST_PRIORITY)
    folder, java, class_path = sys.argv[1:]
    with suppress(OSError, RefusedError):
        write(archive_of(Path(folder), Path(java), class_path))


if __name__ == "__main__":
    main()
