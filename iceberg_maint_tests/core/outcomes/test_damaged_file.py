"""Which errors of readers say that a file of the table is missing or damaged."""

from __future__ import annotations

import pytest

from iceberg_maint.core.outcomes.failures import is_damaged_file

PARQUET = "org.apache.iceberg.shaded.org.apache.parquet"


@pytest.mark.parametrize(
    ("cause", "is_damaged"),
    [
        (("org.apache.iceberg.exceptions.NotFoundException", "File does not exist: file:/a.parquet"), True),
        (("java.lang.RuntimeException", "file:/a.parquet is not a Parquet file. Expected magic"), True),
        (("java.lang.IllegalStateException", "Number of values read, 10, does not equal expected, 8"), True),
        (("java.io.IOException", "Expected 8 values in column chunk at x offset 4 but got 10 values"), True),
        ((f"{PARQUET}.shaded.org.apache.thrift.transport.TTransportException", "Socket is closed"), True),
        (("org.apache.thrift.transport.TTransportException", "Socket is closed by peer."), False),
        (("java.io.FileNotFoundException", "/tmp/blockmgr-1/0c/temp_shuffle"), False),
        (("java.io.EOFException", ""), False),
        (("java.lang.OutOfMemoryError", "Java heap space"), False),
    ],
)
def test_cause_of_a_reader_is_a_damaged_file(cause: tuple[str, str], is_damaged: bool) -> None:
    assert is_damaged_file([("org.apache.spark.SparkException", "Job aborted"), cause]) is is_damaged
