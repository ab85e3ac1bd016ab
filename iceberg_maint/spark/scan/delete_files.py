"""Delete files of manifests as Java objects: loops over them run in the JVM, because a call for each costs more than the
file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.functions import JavaFunctions

Identity = tuple[str, int | None]
"""The path of a delete file and, for a deletion vector, its offset: several vectors share a path."""

_FUNCTION, _MANIFEST = "java.util.function.Function", "org.apache.iceberg.ManifestFile"


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
        self.numbers = [
            self.as_interface(
                _FUNCTION,
                self.compose(
                    self.getter(_MANIFEST, method, kind),
                    self.static_method("java.lang.String", "valueOf", "java.lang.String", kind),
                ),
            )
            for method, kind in (
                ("partitionSpecId", "int"),
                ("sequenceNumber", "long"),
                ("minSequenceNumber", "long"),
            )
        ]

    def reading(self, table: Any) -> Any:
        """A function: the reader of a delete manifest."""
        # Java: manifest -> ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
        names = ("org.apache.iceberg.ManifestReader", _MANIFEST, "org.apache.iceberg.io.FileIO")
        read = self.static_method(
            "org.apache.iceberg.ManifestFiles", "readDeleteManifest", *names, "java.util.Map"
        )
        return self.as_interface(_FUNCTION, self.bind_arguments(read, 1, table.io(), table.specs()))
