"""ClickHouse reads NULL in place of a column's initial default

Versions: ClickHouse 26.9 (chdb-core 26.9.0), PyIceberg 0.12.0. Format v3.

Expected: rows of files that were written before the column was added have its initial default.

Spec: "The `initial-default` is used to populate the field's value for all records that were written before the field was
added to the schema" (Table Spec, Default values)

Actual: these rows have NULL, and a filter on the default finds none of them.
"""

import json
import os
import tempfile
from pathlib import Path

import chdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import IntegerType


def reproduce(folder):
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2, 3]}))
    with table.update_schema() as update:
        update.add_column("seven", IntegerType())
    path = Path(table.metadata_location.removeprefix("file://"))
    catalog.close()
    # PyIceberg writes no v3. The files of this table are the same in v3.
    document = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 3}
    for schema in document["schemas"]:
        for field in schema["fields"]:
            if field["name"] == "seven":
                field |= {"initial-default": 7, "write-default": 7}
    path.with_name("v3.metadata.json").write_text(json.dumps(document))
    os.chdir("/")  # ClickHouse reads files below the working directory
    settings = "SETTINGS iceberg_metadata_file_path = 'metadata/v3.metadata.json'"
    query = f"SELECT count(), countIf(seven = 7), countIf(seven IS NULL) FROM icebergLocal('{path.parent.parent}', {settings})"
    rows, sevens, nulls = map(int, chdb.query(query, "TSV").data().split())
    if (rows, sevens) == (3, 3):
        return None
    return f"of {rows} rows {sevens} have the default 7, {nulls} have NULL"


with tempfile.TemporaryDirectory() as place:
    fault = reproduce(Path(place))
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
