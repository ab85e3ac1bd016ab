"""What is left of marks when the JVM that wrote them has died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from iceberg_maint.engines.spark.scan.scan import discard_files


class _Dead:
    """A Java table, or its FileIO, whose JVM is gone."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def call(*_arguments: object) -> None:
            raise self._error

        return call


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("gone"), ConnectionRefusedError(111, "refused"), EOFError()]
)
@pytest.mark.parametrize("at_once", [True, False])
def test_interrupt_is_not_replaced_by_marks_that_cannot_be_deleted(
    error: Exception, *, at_once: bool
) -> None:
    """A signal to all of a process's group ends its JVM as well."""
    java: Any = _Dead(error) if at_once else SimpleNamespace(io=lambda: _Dead(error))
    with pytest.raises(KeyboardInterrupt):
        _interrupted(java)


def _interrupted(java: Any) -> None:
    try:
        raise KeyboardInterrupt
    finally:
        discard_files(java, ["a.puffin", "b.puffin"])
