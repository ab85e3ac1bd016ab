"""What an exception of a try says of its swap."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from iceberg_maint.core.outcomes.outcome import Rejection
from iceberg_maint.engines.spark.commit.retry import _error_before_swap

ICEBERG = "org.apache.iceberg.exceptions."
HADOOP = "org.apache.hadoop.fs.FSError"


@dataclass
class Throwable:
    """As much of a Java `Throwable` as its chain of causes asks for."""

    name: str
    message: str
    cause: Throwable | None
    _target_id: str = "o1"

    def getClass(self) -> Any:
        return SimpleNamespace(getName=lambda: self.name)

    def getMessage(self) -> str:
        return self.message

    def getCause(self) -> Throwable | None:
        return self.cause


def raised(*chain: tuple[str, str]) -> Py4JJavaError:
    """The exception of Java with these causes (class name, message), outermost first."""
    throwable = None
    for name, message in reversed(chain):
        throwable = Throwable(name, message, throwable)
    return Py4JJavaError("", throwable)


FULL = ("java.io.IOException", "No space left on device")


@pytest.mark.parametrize(
    ("error", "rejection"),
    [
        (
            raised((f"{ICEBERG}RuntimeIOException", "Failed to write json to file: f.json"), FULL),
            Rejection.ENVIRONMENT,
        ),
        (
            raised((f"{ICEBERG}RuntimeIOException", "Failed to write json to file: f.json")),
            Rejection.ERROR,
        ),
        (raised((f"{ICEBERG}RuntimeIOException", "Failed to read file: f.json"), FULL), None),
        (raised((HADOOP, "java.io.IOException: No space left on device"), FULL), Rejection.ENVIRONMENT),
        (raised((HADOOP, "java.io.IOException: Input/output error")), None),
        (raised((f"{ICEBERG}ForbiddenException", "no")), Rejection.ENVIRONMENT),
        (
            raised((f"{ICEBERG}CommitStateUnknownException", "?"), (f"{ICEBERG}ForbiddenException", "no")),
            None,
        ),
        (ValueError("Failed to write json to file: f.json"), None),
    ],
)
def test_error_denies_the_swap_only_if_no_metadata_file_was_written_or_the_catalog_says_so(
    error: Exception, rejection: Rejection | None
) -> None:
    assert _error_before_swap(error) is rejection
