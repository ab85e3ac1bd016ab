"""A fault of this process while a file is read is no verdict about the file's table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_maint.catalog import table_metadata
from iceberg_maint.catalog.local_store import LocalFileIO
from iceberg_maint.catalog.manifests.avro import read_columns
from iceberg_maint.catalog.manifests.metadata_file import read_bytes
from iceberg_maint.catalog.service_calls import reaching
from iceberg_maint.catalog.table_metadata import parse_metadata
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.failures import is_of_process
from iceberg_maint.errors import UnreadableTableError

TABLE = TableId.parse("lake.db.t")


def fault_of(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - it is the result
        return error
    raise AssertionError("no error")


FAULTS = (
    ImportError("cannot import name 'fs' from partially initialized module 'pyarrow'", name="pyarrow"),
    fault_of(lambda: json.no_such_function),  # type: ignore[attr-defined]
    RecursionError("maximum recursion depth exceeded"),
    MemoryError(),
    NameError("name 'x' is not defined"),
    AssertionError(),
    RuntimeError("can't start new thread"),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
class TestFault:
    """A fault passes each reader as it is."""

    def check(self, fault: Exception, call: Callable[[], object]) -> None:
        assert fault_of(call) is fault

    def test_of_a_read_is_raised(self, fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        io = PyArrowFileIO()
        monkeypatch.setattr(io, "new_input", raising(fault))
        self.check(fault, lambda: read_bytes(io, "file:///x", "manifest"))

    def test_of_a_codec_is_raised(self, fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        class Codec:
            decompress = staticmethod(raising(fault))

        monkeypatch.setitem(KNOWN_CODECS, "deflate", Codec)
        schema = b'{"type":"record","name":"r","fields":[]}'
        head = b"Obj\x01" + avro_map({b"avro.schema": schema, b"avro.codec": b"deflate"})
        self.check(fault, lambda: read_columns(head + b"s" * 16 + b"\x02\x02x" + b"s" * 16, (1,)))

    def test_of_the_metadata_is_raised(self, fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table_metadata, "_state", raising(fault))
        self.check(fault, lambda: parse_metadata(TABLE, "file:///x", b'{"format-version": 2}'))

    def test_of_a_catalog_is_raised(self, fault: Exception) -> None:
        def call() -> None:
            with reaching("lake", "here"):
                raise fault

        self.check(fault, call)


def raising(fault: Exception) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise fault

    return call


def avro_map(entries: dict[bytes, bytes]) -> bytes:
    texts = [bytes([2 * len(text)]) + text for both in entries.items() for text in both]
    return bytes([2 * len(entries)]) + b"".join(texts) + b"\0"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"format-version": 2, "snapshots": ["x"]}', "AttributeError: 'str' object has no attribute 'get'"),
        (b'{"format-version": 2}', "KeyError: 'schema'"),
        (b"[" * 100_000, "ValueError: its JSON nests too deeply"),
    ],
)
def test_metadata_of_another_form_are_the_fault_of_the_file(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableTableError) as raised:
        parse_metadata(TABLE, "file:///x", data)
    assert raised.value.code == "ICM-101"
    assert why in raised.value.message


def test_package_that_is_missing_is_no_fault_of_the_program() -> None:
    assert not is_of_process(ImportError("Snappy support not installed"))
    assert not is_of_process(NotImplementedError("transform of the file"))
    assert not is_of_process(ModuleNotFoundError("No module named 'zstandard'", name="zstandard"))


def test_file_is_read_while_another_thread_imports_arrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m"
    file.write_bytes(b"all")
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
    assert read_bytes(LocalFileIO(), file.as_uri(), "manifest") == b"all"
