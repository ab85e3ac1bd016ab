"""Properties of a table for Parquet's writer: numbers and codecs that it does not take."""

from __future__ import annotations

from collections.abc import Mapping

_LEVEL = "write.parquet.compression-level"
_COUNTS = tuple(
    f"write.parquet.{name}"
    for name in ("row-group-size-bytes", "page-size-bytes", "page-row-limit", "dict-size-bytes")
)
_LARGEST_INT = 2**31 - 1
_CODEC = "write.parquet.compression-codec"
CODECS = frozenset({"zstd", "gzip", "snappy", "lz4", "lz4_raw", "uncompressed"})
"""The codecs of which Spark needs no jar."""
CLASSES_OF_CODECS: Mapping[str, str] = {
    "brotli": "org.apache.hadoop.io.compress.BrotliCodec",
    "lzo": "com.hadoop.compression.lzo.LzoCodec",
}
"""The other codecs of Iceberg, and the class that Parquet's Java reader and writer need (`CompressionCodecName`)."""


def wrong_number(properties: Mapping[str, str]) -> str:
    """Returns the first property that is no number which Iceberg's writer takes (`Parquet.WriteBuilder`), with its value and the
    rule, "" if there is none or the table writes another format. Arrow's writer would write pages of 0 rows without end."""
    if not _writes_parquet(properties):
        return ""
    for name in (*_COUNTS, _LEVEL):
        least = -_LARGEST_INT if name == _LEVEL else 1
        if name in properties and not _is_number(properties[name], least):
            rule = "a whole number" if name == _LEVEL else f"a whole number from 1 to {_LARGEST_INT}"
            return f"{name} = {properties[name]}; it must be {rule}"
    return ""


def wrong_property(properties: Mapping[str, str]) -> str:
    """Returns the sentence of the first number or codec that no writer takes, whatever jars Spark has; "" if there is none."""
    return wrong_number(properties) or wrong_codec(codec_of(properties), has_class=True)


def codec_of(properties: Mapping[str, str]) -> str:
    """Returns the codec that the table names, in lower case, "" if it names none or writes another format."""
    return properties.get(_CODEC, "").lower() if _writes_parquet(properties) else ""


def wrong_codec(codec: str, *, has_class: bool) -> str:
    """Returns the sentence of a codec that Spark does not write, "" if it does. `has_class`: Spark has the class of
    CLASSES_OF_CODECS."""
    needed = CLASSES_OF_CODECS.get(codec)
    if not codec or codec in CODECS or (needed and has_class):
        return ""
    lacks = f"; Spark's jars have no class {needed}" if needed else ""
    return f"{_CODEC} = {codec}{lacks}; without a jar of its own Spark writes {', '.join(sorted(CODECS))}"


def _writes_parquet(properties: Mapping[str, str]) -> bool:
    return properties.get("write.format.default", "parquet").lower() == "parquet"


def _is_number(value: str, least: int) -> bool:
    try:
        return least <= int(value) <= _LARGEST_INT
    except ValueError:
        return False
