"""inspect.partitions() adds up partitions of different specs that have equal field names and values

Versions: PyIceberg 0.12.0.

Expected: a row for each partition of each spec, as the column `spec_id` says.

Spec: "partition (both spec id and partition values) is equal" (Table Spec, Scan Planning, what partitions are equal)

Actual: the map of partitions has the names and values as its key, without the spec. One row with the second file's spec_id
counts the files of both.
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import TruncateTransform


def reproduce(folder):
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", pa.schema([("id", pa.int32())]))
    for width in (10, 100):
        if width == 100:
            table.update_spec().remove_field("p").commit()
        table.update_spec().add_field("id", TruncateTransform(width), "p").commit()
        table.append(pa.table({"id": pa.array([1], pa.int32())}))
    shown = table.inspect.partitions()
    rows = list(zip(shown["spec_id"].to_pylist(), shown["file_count"].to_pylist(), strict=True))
    catalog.close()
    return (
        f"two files of two specs are shown as one partition: (spec_id, files) = {rows}"
        if len(rows) != 2
        else None
    )


print("PyIceberg", pyiceberg.__version__)
with tempfile.TemporaryDirectory() as name:
    fault = reproduce(Path(name))
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
