"""Tables of metadata only: metadata file, manifest lists and manifests, with no data file behind.

Written to Iceberg's spec with PyIceberg's Avro writer, so that a test states exactly which
entries a table has; named Avro types are defined once and then referenced, as Java writes them.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, ListType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

ADDED, EXISTING, DELETED = 1, 0, 2
_BLOCK_BYTES = 64_000  # Avro's default sync interval


@dataclass(frozen=True, slots=True)
class File:
    """One entry. Fields left None are absent, to be inherited or unknown."""

    path: str
    partition: tuple[Any, ...] = ()
    records: int = 10
    size_bytes: int = 1000
    status: int = ADDED
    content: int = 0
    file_format: str = "PARQUET"
    snapshot_id: int | None = None
    sequence_number: int | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_bytes: int | None = None
    lower_bounds: dict[int, bytes] | None = None
    upper_bounds: dict[int, bytes] | None = None
    split_offsets: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One manifest; `wrong` replaces fields of its manifest list entry."""

    files: tuple[File, ...]
    spec: PartitionSpec
    sequence_number: int
    snapshot_id: int
    is_deletes: bool = False
    version: int = 2
    wrong: dict[str, Any] = field(default_factory=dict)


@dataclass
class TableFiles:
    """A table under construction below `folder`; `commit` adds a snapshot, `publish` the metadata."""

    folder: Path
    schema: Schema
    specs: Sequence[PartitionSpec]
    format_version: int = 2
    properties: dict[str, str] = field(default_factory=dict)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    table_uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    _count: int = 0

    def commit(
        self,
        manifests: Iterable[ManifestFile | dict[str, Any]],
        *,
        snapshot_id: int,
        sequence_number: int,
        timestamp_ms: int,
        summary: dict[str, str] | None = None,
    ) -> None:
        """Adds a snapshot whose manifest list has these manifests: new ones, and entries of `write_manifest`."""
        listed = [m if isinstance(m, dict) else self._write_manifest(m) for m in manifests]
        version = self.format_version
        path = self._path(f"snap-{snapshot_id}.avro")
        schema = MANIFEST_LIST_FILE_SCHEMAS[version]
        rows = [Record(*(entry.get(f.name) for f in schema.fields)) for entry in listed]
        write_avro(path, schema, "manifest_file", rows, {"format-version": str(version)})
        node: dict[str, Any] = {
            "snapshot-id": snapshot_id,
            "timestamp-ms": timestamp_ms,
            "summary": {"operation": "append", **(summary or {})},
            "manifest-list": path.as_uri(),
            "schema-id": 0,
        }
        if self.snapshots:
            node["parent-snapshot-id"] = self.snapshots[-1]["snapshot-id"]
        if version > 1:
            node["sequence-number"] = sequence_number
        self.snapshots.append(node)

    def document(self) -> dict[str, Any]:
        """The table metadata."""
        current = self.snapshots[-1] if self.snapshots else None
        document: dict[str, Any] = {
            "format-version": self.format_version,
            "table-uuid": self.table_uuid,
            "location": self.folder.as_uri(),
            "last-updated-ms": current["timestamp-ms"] if current else 1,
            "last-column-id": self.schema.highest_field_id,
            "current-schema-id": 0,
            "schemas": [json.loads(self.schema.model_dump_json())],
            "default-spec-id": self.specs[-1].spec_id,
            "partition-specs": [json.loads(s.model_dump_json()) for s in self.specs],
            "last-partition-id": max([999, *(f.field_id for s in self.specs for f in s.fields)]),
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": self.properties,
            "current-snapshot-id": current["snapshot-id"] if current else None,
            "snapshots": self.snapshots,
            "snapshot-log": [],
            "metadata-log": [],
        }
        if self.format_version > 1:
            document["last-sequence-number"] = current["sequence-number"] if current else 0
            document["refs"] = (
                {"main": {"snapshot-id": current["snapshot-id"], "type": "branch"}} if current else {}
            )
        else:
            document["schema"] = document["schemas"][0]
            document["partition-spec"] = document["partition-specs"][-1]["fields"]
        if self.format_version > 2:
            document["next-row-id"] = 0
        return document

    def publish(self) -> str:
        """Writes the metadata file and returns its location."""
        self._count += 1
        path = self._path(f"{self._count:05d}.metadata.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.document()))
        return path.as_uri()

    def register(self, database: Path, name: str) -> str:
        """Publishes and points the SQL catalog's entry `namespace.table` to it."""
        location = self.publish()
        register(database, name, location)
        return location

    def _write_manifest(self, manifest: ManifestFile) -> dict[str, Any]:
        return self.write_manifest(manifest, f"{uuid.uuid4()}-m0.avro")

    def write_manifest(self, manifest: ManifestFile, name: str) -> dict[str, Any]:
        """Writes a manifest of this name in the metadata folder; returns its entry of a manifest list."""
        version = manifest.version
        partition = manifest.spec.partition_type(self.schema)
        data_file = _with_int_equality_ids(data_file_with_partition(partition, version))
        schema = manifest_entry_schema_with_data_file(version, data_file)
        path = self._path(name)
        meta = {
            "schema": self.schema.model_dump_json(),
            "partition-spec": json.dumps(json.loads(manifest.spec.model_dump_json())["fields"]),
            "partition-spec-id": str(manifest.spec.spec_id),
            "format-version": str(version),
            "content": "deletes" if manifest.is_deletes else "data",
        }
        rows = (_entry(f, schema, data_file) for f in manifest.files)
        write_avro(path, schema, "manifest_entry", rows, meta)
        by_status = {
            s: [f.records for f in manifest.files if f.status == s] for s in (ADDED, EXISTING, DELETED)
        }
        live = [
            f.sequence_number if f.sequence_number is not None else manifest.sequence_number
            for f in manifest.files
            if f.status != DELETED
        ]
        return {
            "manifest_path": path.as_uri(),
            "manifest_length": path.stat().st_size,
            "partition_spec_id": manifest.spec.spec_id,
            "content": int(manifest.is_deletes),
            "sequence_number": manifest.sequence_number,
            "min_sequence_number": min(live, default=manifest.sequence_number),
            "added_snapshot_id": manifest.snapshot_id,
            "added_files_count": len(by_status[ADDED]),
            "existing_files_count": len(by_status[EXISTING]),
            "deleted_files_count": len(by_status[DELETED]),
            "added_rows_count": sum(by_status[ADDED]),
            "existing_rows_count": sum(by_status[EXISTING]),
            "deleted_rows_count": sum(by_status[DELETED]),
            **manifest.wrong,
        }

    def _path(self, name: str) -> Path:
        return self.folder / "metadata" / name


def _entry(file: File, schema: Schema, data_file: StructType) -> Record:
    counts = None if file.lower_bounds is None else dict.fromkeys(file.lower_bounds, file.records)
    values: dict[int, Any] = {
        134: file.content,
        100: file.path,
        101: file.file_format,
        102: Record(*file.partition),
        103: file.records,
        104: file.size_bytes,
        105: 64 * 1024 * 1024,
        **dict.fromkeys((108, 109, 110, 137), counts),
        125: file.lower_bounds,
        128: file.upper_bounds,
        132: None if file.split_offsets is None else list(file.split_offsets),
        135: None if file.equality_ids is None else list(file.equality_ids),
        140: file.sort_order_id,
        143: file.referenced_data_file,
        144: file.content_offset,
        145: file.content_bytes,
    }
    top: dict[int, Any] = {
        0: file.status,
        1: file.snapshot_id,
        3: file.sequence_number,
        4: file.sequence_number,
        2: Record(*(values.get(f.field_id) for f in data_file.fields)),
    }
    return Record(*(top[f.field_id] for f in schema.fields))


def _with_int_equality_ids(data_file: StructType) -> StructType:
    """The spec's `list<int>`: PyIceberg declares longs, which Java's reader refuses."""
    ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
    return StructType(
        *(f.model_copy(update={"field_type": ids}) if f.field_id == 135 else f for f in data_file.fields)
    )


def write_avro(
    path: Path,
    schema: Schema,
    name: str,
    rows: Iterable[Record],
    meta: dict[str, str],
    codec: str = "deflate",
) -> None:
    """An Avro object container file with blocks as Avro's Java writer makes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sync, seen = os.urandom(16), set[str]()
    avro = _referenced(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name), seen)
    header = {**meta, "avro.schema": json.dumps(avro), "avro.codec": codec}
    writer, compress = construct_writer(schema), KNOWN_CODECS[codec]
    with path.open("wb") as out:
        encoder = BinaryEncoder(out)
        construct_writer(META_SCHEMA).write(encoder, AvroFileHeader(MAGIC, header, sync))
        block, count = io.BytesIO(), 0

        def flush() -> None:
            content = block.getvalue()
            if compress is not None:
                content, _ = compress.compress(content)
            encoder.write_int(count)
            encoder.write_int(len(content))
            encoder.write(content + sync)

        for row in rows:
            writer.write(BinaryEncoder(block), row)
            count += 1
            if block.tell() >= _BLOCK_BYTES:
                flush()
                block, count = io.BytesIO(), 0
        if count:
            flush()


def _referenced(node: Any, seen: set[str]) -> Any:
    """Repeated definitions of a named type become references to the first."""
    if isinstance(node, list):
        return [_referenced(n, seen) for n in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "fixed":
        if node["name"] in seen:
            return node["name"]
        seen.add(node["name"])
        return node
    return {
        k: _referenced(v, seen) if k in ("type", "items", "values", "fields") else v for k, v in node.items()
    }


def register(database: Path, name: str, location: str, catalog: str = "lake") -> None:
    """Points the SQL catalog's entry `namespace.table` to a metadata file, as a commit does."""
    namespace, _, table = name.rpartition(".")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS iceberg_tables (catalog_name TEXT, table_namespace TEXT,"
            " table_name TEXT, metadata_location TEXT, previous_metadata_location TEXT,"
            " iceberg_type TEXT, PRIMARY KEY (catalog_name, table_namespace, table_name))"
        )
        connection.execute(
            "INSERT OR REPLACE INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE')",
            (catalog, namespace, table, location),
        )


def spec(spec_id: int, *fields: tuple[int, int, Any, str]) -> PartitionSpec:
    """A spec of (source id, field id, transform, name)."""
    return PartitionSpec(*(PartitionField(*f) for f in fields), spec_id=spec_id)
