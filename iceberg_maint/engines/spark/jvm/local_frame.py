"""Column names for Spark, and the columns of row lineage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import SEPARATOR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LINEAGE: Mapping[str, int] = {"_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
"""Metadata columns of format v3 with their reserved field ids (spec: Reserved Field IDs)."""


def quoted(name: str) -> str:
    """A column name in backquotes, which Spark takes literally."""
    return f"`{name.replace('`', '``')}`"


def texts_of(bridge: Bridge, texts: Iterable[str]) -> Any:
    """A Java stream of these strings. They cross as one text."""
    pattern = bridge.jvm.java.util.regex.Pattern.compile(SEPARATOR)
    return pattern.splitAsStream(SEPARATOR.join(texts))


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
