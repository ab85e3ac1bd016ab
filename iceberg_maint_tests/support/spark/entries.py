"""Manifest entries whose values are not those of their files."""

from __future__ import annotations

import json
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import content_file_from_json, content_json


def stating(bridge: Bridge, java_table: Any, file: Any, **values: Any) -> Any:
    """The Java file with these values in its manifest entry, by the keys of content-file JSON with underscores."""
    content = json.loads(content_json(bridge, java_table, file))
    changed = {key.replace("_", "-"): value for key, value in values.items()}
    return content_file_from_json(bridge, java_table, json.dumps({**content, **changed}))


def path_bounds(path: str) -> dict[str, Any]:
    """Bounds of `file_path` as those of a delete file that marks this data file only."""
    values = {"keys": [2147483546], "values": [path.encode().hex().upper()]}
    return {"lower_bounds": values, "upper_bounds": values}
