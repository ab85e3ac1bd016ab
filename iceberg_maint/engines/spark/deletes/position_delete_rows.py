"""The rows of position delete files, and whether they name the data file that metadata states.

Readers apply a position delete file to one data file if its bounds of `file_path` are equal, or if `referenced_data_file`
names it. If its rows name another data file too, readers that trust metadata show those rows, and others do not. A commit
that drops the delete file with the stated data file would bring them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.planning.work import PositionDeleteFile
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import local_frame
from iceberg_maint.engines.spark.scan.scan import Table
from iceberg_maint.engines.spark.scan.staging import staged
from iceberg_maint.errors import RefusedError, names_another_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TASK = "org.apache.iceberg.BasePositionDeletesScanTask"


@contextmanager
def position_delete_rows(bridge: Bridge, java_table: Any, deletes: Sequence[Any]) -> Iterator[DataFrame]:
    """The rows of these Java DeleteFiles, as `delete_file_path`, `file_path` and `pos`. The frame is valid inside the
    block. Spark reads position delete files as data only through the metadata table `position_deletes`."""
    table_type = bridge.iceberg.MetadataTableType.POSITION_DELETES
    metadata_table = bridge.iceberg.MetadataTableUtils.createMetadataTableInstance(java_table, table_type)
    tasks = bridge.list(_scan_task(bridge, metadata_table, d) for d in deletes)
    with staged(bridge, metadata_table, tasks) as group_id:
        # Spark 3.5 reads the id from an option, Spark 4.1 from the table's name.
        reader = bridge.spark.read.format("iceberg").option("scan-task-set-id", group_id)
        yield reader.load(group_id).select("delete_file_path", "file_path", "pos")


def check_named_files(
    bridge: Bridge, table: Table, deletes: Iterable[Any], planned: Iterable[PositionDeleteFile]
) -> int:
    """Reads the position delete files among these Java DeleteFiles that name one data file in the plan. A dangling one
    (`void`) may be lost. Returns how many it reads. Raises RefusedError ICM-101 for one that deletes rows of another data file."""
    from pyspark.sql import functions as F

    of_one = {d.path: d for d in planned if d.content_offset is None and d.referenced_data_file is not None}
    files = [
        delete
        for delete in deletes
        if (known := of_one.get(str(delete.location()))) is not None
        and not (known.void and not table.java.io().newInputFile(delete.location()).exists())
    ]
    if not files:
        return 0
    paths = {str(d.location()) for d in files}
    stated_files = ((path, of_one[path].referenced_data_file) for path in sorted(paths))
    stated = local_frame(bridge, "delete_file_path string, stated string", stated_files)
    with position_delete_rows(bridge, table.java, files) as rows:
        other = rows.join(F.broadcast(stated), "delete_file_path").where("file_path <> stated")
        [first] = other.agg(F.min(F.struct("delete_file_path", "file_path", "stated")).alias("row")).collect()
    if first["row"] is not None:
        path, found, of_metadata = first["row"]
        raise RefusedError("ICM-101", f"{table.name}: {names_another_file(path, found, of_metadata)}")
    return len(files)


def _scan_task(bridge: Bridge, metadata_table: Any, delete: Any) -> Any:
    """A scan task that reads one whole delete file. The constructor is not public. A scan that
    makes such tasks would read every delete manifest of the table."""
    iceberg = bridge.iceberg
    [constructor] = bridge.java_class(_TASK).getDeclaredConstructors()
    constructor.setAccessible(True)
    arguments = (
        delete,
        iceberg.SchemaParser.toJson(metadata_table.schema()),
        iceberg.PartitionSpecParser.toJson(metadata_table.specs()[delete.specId()]),
        bridge.all_rows(),
    )
    return constructor.newInstance(bridge.array(bridge.jvm.java.lang.Object, arguments))
