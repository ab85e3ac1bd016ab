"""Errors of calls into the JVM, and what they say of their causes."""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors.exceptions.captured import CapturedException

from iceberg_maint.core.outcomes.failures import ENVIRONMENT_CODES, JVM_DIED, is_environment, python_causes
from iceberg_maint.errors import IcebergMaintError

JVM_ERRORS = (Py4JError, CapturedException)
"""What a call into the JVM may raise: a Java exception, or a broken connection."""
DEAD_JVM_ERRORS = (*JVM_ERRORS, OSError, EOFError)
"""What a call may raise too if the JVM has died. It must not replace the exception that ended the work."""


class CancelledError(Py4JError):  # type: ignore[misc]
    """Work of a session in this process was cancelled with its jobs: handled as Spark's error of a cancelled job."""


class WorkerFailedError(Py4JError):  # type: ignore[misc]
    """A task failed in a worker process of this machine, by its cause: handled as Spark's error of a failed task."""


def java_exception(error: BaseException) -> Any | None:
    """The Java `Throwable` that a Python exception wraps; None if it wraps none."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    if isinstance(error, CapturedException):
        return error._origin
    return None


def causes(error: BaseException) -> tuple[tuple[str, str], ...]:
    """(class name, message) of the Java exception and its causes, outermost first; () if the exception came neither from
    Java nor from a worker process. The message says if the JVM has died, also between its exception and this call."""
    if isinstance(error, WorkerFailedError) and error.__cause__ is not None:
        return python_causes(error.__cause__)
    # A connection error without a number is no socket's, but that of a catalog's client, with its own message.
    if connection_lost(error) and not (isinstance(error, ConnectionError) and error.errno is None):
        return ((type(error).__name__, JVM_DIED),)
    chain: list[tuple[str, str]] = []
    throwable = java_exception(error)
    if isinstance(throwable, Py4JJavaError):
        throwable = throwable.java_exception
    try:
        while throwable is not None and len(chain) < 32:
            chain.append((str(throwable.getClass().getName()), str(throwable.getMessage() or "")))
            throwable = throwable.getCause()
    except DEAD_JVM_ERRORS as why:
        chain.append((type(why).__name__, JVM_DIED))
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
    if isinstance(error, (Py4JNetworkError, ConnectionError, EOFError)):
        return True
    return type(error) is Py4JError and _LOST_ANSWER.fullmatch(str(error)) is not None


_LOST_ANSWER = re.compile(r"An error occurred while calling \S+")
"""What py4j says of a connection that breaks while it waits for the answer. An error of Java has a trace or an exception."""


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
