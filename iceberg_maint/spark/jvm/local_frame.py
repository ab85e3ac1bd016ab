"""Makes data frames of the driver's values without a Spark job.

PySpark makes such a frame with a job on Python workers, which must be installed and of the driver's version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.texts import texts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def local_frame(bridge: Bridge, schema: str, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """A frame of these rows. `schema` is a text like `name type, name type`. No job makes or collects it."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    names = [column.split()[0] for column in schema.split(", ")]
    lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    texts = texts_of(bridge, lines).collect(bridge.jvm.java.util.stream.Collectors.toList())
    strings = bridge.jvm.org.apache.spark.sql.Encoders.STRING()
    frame = DataFrame(bridge.session.createDataset(texts, strings).toDF(), bridge.spark)
    return frame.select(F.from_json("value", schema).alias("row")).select("row.*")
