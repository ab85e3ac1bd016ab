"""Reads the positions in delete files by Iceberg's reader, many files in one call: a call for each costs more than a small file."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.functions import JavaFunctions

_FILES_OF_A_CALL = 16
"""The positions of so many files cross as one text. Those of a file of 10 M rows take 1.7 MB."""


def read_serialized(bridge: Bridge, table: Any, delete_files: Sequence[Any]) -> list[tuple[str, bytes]]:
    """Returns, for each Java DeleteFile, the path of the data file that it references and its positions in that file, as
    the blob of a deletion vector. Positions of other data files are left out."""
    if not delete_files:
        return []
    functions = bridge.once(_ReadingFunctions)
    positions = functions.positions(table.io())
    threads = min(8, int(bridge.spark.sparkContext.defaultParallelism))
    size = max(1, min(_FILES_OF_A_CALL, -(-len(delete_files) // threads)))

    def read(start: int) -> list[tuple[str, bytes]]:
        files = bridge.list(delete_files[start : start + size])
        paths = functions.texts(files.stream().map(functions.data_file))
        blobs = functions.texts(files.stream().map(positions))
        return [(path, b64decode(blob)) for path, blob in zip(paths, blobs, strict=True)]

    with ThreadPoolExecutor(threads, "iceberg-maint-positions") as pool:
        return [entry for part in pool.map(read, range(0, len(delete_files), size)) for entry in part]


class _ReadingFunctions(JavaFunctions):
    """Iceberg's reader of positions as a Java function."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        # Java: file -> ContentFileUtil.referencedDataFileLocation(file)
        self._data_file = self.lookup.findStatic(
            self.class_of("org.apache.iceberg.util.ContentFileUtil"),
            "referencedDataFileLocation",
            self.type_of("java.lang.String", "org.apache.iceberg.DeleteFile"),
        )
        self.data_file = self.as_interface("java.util.function.Function", self._data_file)

    def positions(self, io: Any) -> Any:
        """A function: the positions of a delete file in the data file that it references, as the Base64 of a blob."""
        # Java: file -> Base64.getEncoder().encodeToString(
        #           loader.loadPositionDeletes(List.of(file), data_file(file)).serialize().array())
        index, buffer = "org.apache.iceberg.deletes.PositionDeleteIndex", "java.nio.ByteBuffer"
        delete_file, anything = "org.apache.iceberg.DeleteFile", "java.lang.Object"
        of = self.lookup.findStatic(
            self.class_of("java.util.List"), "of", self.type_of("java.util.List", anything)
        )
        load = self.bound(
            self.bridge.iceberg.data.BaseDeleteLoader(self.opening_deletes(io)),
            "org.apache.iceberg.data.BaseDeleteLoader",
            "loadPositionDeletes",
            index,
            "java.lang.Iterable",
            "java.lang.CharSequence",
        )
        parts = (
            of.asType(self.type_of("java.lang.Iterable", delete_file)),
            self._data_file.asType(self.type_of("java.lang.CharSequence", delete_file)),
        )
        handles = self.invoke.MethodHandles
        # Java: (file1, file2) -> load(List.of(file1), data_file(file2)), then called with one file twice
        of_two = handles.filterArguments(load, 0, self.bridge.array(self.invoke.MethodHandle, parts))
        handle = self.permute(of_two, index, (delete_file,), (0, 0))
        handle = self.compose(handle, self.getter(index, "serialize", buffer))
        array = self.getter(buffer, "array", anything).asType(self.type_of("[B", buffer))
        handle = self.compose(handle, array)
        encoder = self.bridge.jvm.java.util.Base64.getEncoder()
        encode = self.bound(encoder, "java.util.Base64$Encoder", "encodeToString", "java.lang.String", "[B")
        return self.as_interface("java.util.function.Function", self.compose(handle, encode))
