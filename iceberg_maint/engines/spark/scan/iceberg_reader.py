"""Reads the positions in delete files by Iceberg's reader, many files in one call: a call for each costs more than a small file."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.commits.change import Identity
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import LINEAGE
from iceberg_maint.engines.spark.jvm.functions import (
    DELETE_FILE,
    LIST,
    MANIFEST,
    OBJECT,
    STRING,
    JavaFunctions,
)

_FILES_OF_A_CALL = 16
"""The positions of so many files cross as one text. Those of a file of 10 M rows take 1.7 MB."""


def read_serialized(bridge: Bridge, table: Any, delete_files: Sequence[Any]) -> list[tuple[str, bytes]]:
    """Returns, for each Java DeleteFile, the path of the data file that it references and its positions in that file, as
    the blob of a deletion vector. Positions of other data files are left out."""
    if not delete_files:
        return []
    functions = bridge.once(_ReadingFunctions)
    positions = functions.positions(table.io())
    threads = min(8, bridge.parallelism)
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
        util = "org.apache.iceberg.util.ContentFileUtil"
        self._data_file = self.static_method(util, "referencedDataFileLocation", STRING, DELETE_FILE)
        self.data_file = self.function(self._data_file)

    def positions(self, io: Any) -> Any:
        """A function: the positions of a delete file in the data file that it references, as the Base64 of a blob."""
        # Java: file -> Base64.getEncoder().encodeToString(
        #           loader.loadPositionDeletes(List.of(file), data_file(file)).serialize().array())
        index, buffer = "org.apache.iceberg.deletes.PositionDeleteIndex", "java.nio.ByteBuffer"
        iterable, characters = "java.lang.Iterable", "java.lang.CharSequence"
        loader = self.bridge.iceberg.data.BaseDeleteLoader(self.opening_deletes(io))
        owner = "org.apache.iceberg.data.BaseDeleteLoader"
        load = self.bound(loader, owner, "loadPositionDeletes", index, iterable, characters)
        files = self.static_method(LIST, "of", LIST, OBJECT).asType(self.type_of(iterable, DELETE_FILE))
        path = self._data_file.asType(self.type_of(characters, DELETE_FILE))
        handle = self.of_one(load, index, DELETE_FILE, files, path)
        handle = self.compose(handle, self.method(index, "serialize", buffer))
        array = self.method(buffer, "array", OBJECT).asType(self.type_of("[B", buffer))
        encoder = self.bridge.jvm.java.util.Base64.getEncoder()
        encode = self.bound(encoder, "java.util.Base64$Encoder", "encodeToString", STRING, "[B")
        return self.function(self.compose(self.compose(handle, array), encode))


class DeleteFiles(Mapping[Identity, Any]):
    """Java DeleteFiles by identity, in a Java list. A value crosses in a call of its own when it is asked for."""

    def __init__(self, bridge: Bridge, files: Any) -> None:
        self._functions = bridge.once(JavaFunctions)
        self.java = files
        paths = self._functions.texts(files.stream().map(self._functions.location))
        offsets = self._functions.texts(files.stream().map(self._functions.content_offset))
        identities = ((p, None if o == "null" else int(o)) for p, o in zip(paths, offsets, strict=True))
        self._places = {identity: place for place, identity in enumerate(identities)}

    def __getitem__(self, identity: Identity) -> Any:
        return self.java.get(self._places[identity])

    def __contains__(self, identity: object) -> bool:
        return identity in self._places  # `Mapping` would get the value

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def picked(self, identities: Collection[Identity]) -> Any:
        """The files of these identities as a Java list."""
        [files] = self._functions.picked(self.java, [[self._places[i] for i in identities]])
        return files

    def only(self, bridge: Bridge, identities: Collection[Identity]) -> DeleteFiles:
        """The files of these identities."""
        return DeleteFiles(bridge, self.picked(identities))

    def with_others(self, bridge: Bridge, others: DeleteFiles) -> DeleteFiles:
        """These files and those of `others` that are not among them."""
        if not (new := [i for i in others if i not in self]):
            return self
        files = bridge.list(self.java)
        files.addAll(others.picked(new))
        return DeleteFiles(bridge, files)


@contextmanager
def live_delete_files(bridge: Bridge, table: Any, manifests: Any) -> Iterator[Any]:
    """A Java stream of the live delete files of delete manifests (a Java list), which is open inside the block."""
    functions = bridge.once(_ManifestFunctions)
    readers = functions.to_list(manifests.stream().map(functions.reading(table)))
    with closing(bridge.iceberg.io.CloseableIterable.concat(readers)) as files:
        yield functions.stream(files)


def delete_manifests(
    bridge: Bridge, table: Any, snapshot_id: int, spec_ids: Collection[int], first: int, last: int
) -> Any:
    """The delete manifests of a snapshot, as a Java list, that may have files of these specs and of data sequence numbers
    from `first` to `last`."""
    functions = bridge.once(_ManifestFunctions)
    manifests = bridge.list(table.snapshot(snapshot_id).deleteManifests(table.io()))
    columns: Sequence[list[str]] = [
        functions.texts(manifests.stream().map(number)) for number in functions.numbers
    ]
    places = [
        place
        for place, (spec_id, newest, oldest) in enumerate(zip(*columns, strict=True))
        if int(spec_id) in spec_ids and int(newest) >= first and int(oldest) <= last
    ]
    [chosen] = functions.picked(manifests, [places])
    return chosen


class _ManifestFunctions(JavaFunctions):
    """Functions of manifests."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        # Java: manifest -> String.valueOf(manifest.partitionSpecId()), and so for both sequence numbers
        numbers = (("partitionSpecId", "int"), ("sequenceNumber", "long"), ("minSequenceNumber", "long"))
        self.numbers = []
        for method, kind in numbers:
            text = self.static_method(STRING, "valueOf", STRING, kind)
            self.numbers.append(self.function(self.compose(self.method(MANIFEST, method, kind), text)))

    def reading(self, table: Any) -> Any:
        """A function: the reader of a delete manifest."""
        # Java: manifest -> ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
        names = (
            "org.apache.iceberg.ManifestReader",
            MANIFEST,
            "org.apache.iceberg.io.FileIO",
            "java.util.Map",
        )
        read = self.static_method("org.apache.iceberg.ManifestFiles", "readDeleteManifest", *names)
        return self.function(self.bind_arguments(read, 1, table.io(), table.specs()))


_RECORD = "org.apache.iceberg.data.Record"
NAME_MAPPING = "schema.name-mapping.default"


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file, or the bytes of it from `start` on in which whole row groups lie."""

    location: str
    size_bytes: int
    start: int = 0
    length: int | None = None


class IcebergReader:
    """Reads columns of a table's files. A row is a Java `Record`: its position in the file, then the columns."""

    def __init__(self, bridge: Bridge, java_table: Any, field_ids: Sequence[int]) -> None:
        """`field_ids` are those of top-level columns and of lineage columns."""
        self._bridge, self._io = bridge, java_table.io()
        self._functions = bridge.once(_ReaderFunctions)
        metadata, schema = bridge.iceberg.MetadataColumns, java_table.schema()
        lineage = dict(zip(LINEAGE.values(), ("ROW_ID", "LAST_UPDATED_SEQUENCE_NUMBER"), strict=True))
        columns = (getattr(metadata, lineage[i]) if i in lineage else schema.findField(i) for i in field_ids)
        self._projection = bridge.iceberg.Schema(bridge.list((metadata.ROW_POSITION, *columns)))
        mapping = java_table.properties().get(NAME_MAPPING)
        self._mapping = mapping and bridge.iceberg.mapping.NameMappingParser.fromJson(mapping)

    def rows(
        self,
        part: FilePart,
        constants: Any,
        most: int,
        *,
        deleted: Any = None,
        skipped: int = 0,
    ) -> Any:
        """Returns up to `most` live rows as a `java.util.List`. `constants` is a Java map of values by field id
        that Iceberg takes from metadata. `deleted` is a Java `PositionDeleteIndex`. The first `skipped` live rows are
        left out. Raises what Java raises if the file cannot be read."""
        file = self._io.newInputFile(part.location, part.size_bytes)
        builder = self._bridge.iceberg.parquet.Parquet.read(file).project(self._projection)
        builder = builder.createReaderFunc(self._functions.making_reader(constants))
        if self._mapping is not None:
            builder = builder.withNameMapping(self._mapping)
        if part.length is not None:
            builder = builder.split(part.start, part.length)
        with closing(builder.build()) as records:
            stream = self._functions.stream(records)
            if deleted is not None:
                stream = stream.filter(self._functions.is_deleted(deleted).negate())
            return self._functions.to_list(stream.skip(skipped).limit(most))

    def forget_positions(self, rows: Any) -> None:
        """Removes the positions from rows, which are then equal if their columns are."""
        rows.forEach(self._functions.forget_position)

    def deleted_positions(self, delete_files: Any, location: str) -> Any:
        """The positions of a data file that Java `DeleteFile`s delete, as a `PositionDeleteIndex`."""
        opening = self._functions.opening_deletes(self._io)
        return self._bridge.iceberg.data.BaseDeleteLoader(opening).loadPositionDeletes(delete_files, location)


class _ReaderFunctions(JavaFunctions):
    """Functions over records."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        # Java: record -> record.set(0, null)
        clear = self.method("org.apache.iceberg.StructLike", "set", "void", "int", OBJECT)
        clear = self.bind_arguments(clear, 1, 0, None)
        self.forget_position = self.as_interface("java.util.function.Consumer", clear)

    def making_reader(self, constants: Any) -> Any:
        """A function of the projection and a file's schema: the reader of values in Iceberg's internal form."""
        # Java: (schema, fileSchema) -> InternalReader.create(schema, fileSchema, constants)
        create = self.static_method(
            "org.apache.iceberg.data.parquet.InternalReader",
            "create",
            "org.apache.iceberg.parquet.ParquetValueReader",
            "org.apache.iceberg.Schema",
            "org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType",
            "java.util.Map",
        )
        return self.as_interface("java.util.function.BiFunction", self.bind_arguments(create, 2, constants))

    def is_deleted(self, index: Any) -> Any:
        """A predicate: whether the position of a record is in the index."""
        # Java: record -> index.isDeleted((long) record.get(0))
        position = self.bind_arguments(self.method(_RECORD, "get", OBJECT, "int"), 1, 0)
        owner = "org.apache.iceberg.deletes.PositionDeleteIndex"
        found = self.bound(index, owner, "isDeleted", "boolean", "long")
        return self.predicate(self.compose(position, found.asType(self.type_of("boolean", OBJECT))))
