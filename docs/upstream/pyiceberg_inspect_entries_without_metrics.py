"""inspect.entries() fails on files without column sizes, such as deletion vectors

Versions: PyIceberg 0.12.0.

Expected: `inspect.entries()` shows the entry, with NULL for metrics that it does not have.

Spec: "_optional_ 108 column_sizes", "_optional_ 109 value_counts" (Table Spec, Data File Fields)

Actual: TypeError: 'NoneType' object is not iterable. A table that ever had a deletion vector of Iceberg's Java library is
such a table.
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record


def reproduce(folder):
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", pa.schema([("id", pa.int32())]))
    facts = {"file_path": f"{folder}/x.parquet", "file_format": FileFormat.PARQUET, "partition": Record()}
    file = DataFile.from_args(content=DataFileContent.DATA, record_count=1, file_size_in_bytes=1, **facts)
    file.spec_id = 0
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    try:
        print(table.inspect.entries().num_rows, "entries")
    except TypeError as error:
        return f"inspect.entries() raises TypeError: {error}"
    finally:
        catalog.destroy_tables()
        catalog.close()
    return None


print("PyIceberg", pyiceberg.__version__)
with tempfile.TemporaryDirectory() as name:
    fault = reproduce(Path(name))
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
