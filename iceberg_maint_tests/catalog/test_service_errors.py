"""Errors of a catalog's service that no server of these tests gives."""

from __future__ import annotations

import pytest

from iceberg_maint.catalog.service_calls import catalog_error


class TApplicationException(Exception):
    """Thrift's answer of a server: `type` 1 is an unknown method."""

    def __init__(self, kind: int, message: str) -> None:
        super().__init__(message)
        self.type = kind


def test_metastore_that_lacks_a_call_is_refused_by_its_name() -> None:
    error = TApplicationException(1, "Invalid method name: 'get_table_objects_by_name'")
    assert str(catalog_error("lake", "thrift://h:9083", error)) == (
        "ICM-163 catalog 'lake' at thrift://h:9083 is a Hive Metastore that lacks a call of PyIceberg: Invalid method name: "
        "'get_table_objects_by_name'. Hive Metastore 4 has removed it, and calls that Spark's client makes. Fix: use Hive "
        "Metastore 3.1, or a REST catalog."
    )


@pytest.mark.parametrize("kind", [0, 6])
def test_other_error_of_a_metastore_is_not_one_of_its_version(kind: int) -> None:
    error = TApplicationException(kind, "Internal error processing get_all_databases")
    assert catalog_error("lake", "thrift://h:9083", error).code == "ICM-104"
