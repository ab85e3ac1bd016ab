"""Converts data and delete files to Iceberg's content-file JSON and back (`ContentFileParser`)."""

from __future__ import annotations

import json
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge


def content_json(bridge: Bridge, java_table: Any, file: Any) -> str:
    """A data or delete file as Iceberg's content-file JSON."""
    spec = java_table.specs()[file.specId()]
    if file.partition().size():
        spec = json_spec(bridge, spec)
    return str(bridge.iceberg.ContentFileParser.toJson(file, spec))


def content_file_from_json(bridge: Bridge, java_table: Any, content: str) -> Any:
    """The Java file for a text of `content_json`. It can be committed."""
    node = bridge.iceberg.util.JsonUtil.mapper().readTree(content)
    values = json.loads(content)
    spec = java_table.specs()[int(values["spec-id"])]
    if values.get("partition"):
        spec = json_spec(bridge, spec)
    return bridge.iceberg.ContentFileParser.fromJson(node, spec)


def json_spec(bridge: Bridge, spec: Any) -> Any:
    """A spec with which the JSON parser accepts files of this spec.

    Format v1 leaves a void field behind a removed partition field. A spec with void fields only counts as
    unpartitioned, and the parser refuses the NULLs that manifests hold for its fields. For such a spec the result
    is a partitioned one of the same id and types.
    """
    if spec.isPartitioned() or spec.fields().isEmpty():
        return spec
    parser = bridge.iceberg.PartitionSpecParser
    values = json.loads(str(parser.toJson(spec)))
    fields = [{**field, "transform": "identity"} for field in values["fields"]]
    return parser.fromJson(spec.schema(), json.dumps({**values, "fields": fields}))
