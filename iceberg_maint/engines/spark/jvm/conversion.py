"""Converts between Python and the JVM: files as Iceberg's content-file JSON (`ContentFileParser`), rows and names for Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import (
    CONTENT_FILE,
    OBJECT,
    PARTITION_SPEC,
    STRING,
    JavaFunctions,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_FLOATS = frozenset({"FLOAT", "DOUBLE"})
_PARSER = "org.apache.iceberg.ContentFileParser"


def content_json(bridge: Bridge, java_table: Any, file: Any) -> str:
    """A data or delete file as Iceberg's content-file JSON."""
    spec = java_table.specs()[file.specId()]
    if file.partition().size():
        spec = json_spec(bridge, spec)
    return str(bridge.iceberg.ContentFileParser.toJson(file, spec))


def content_jsons(bridge: Bridge, java_table: Any, files: Sequence[Any]) -> list[str]:
    """As `content_json` for many files. All texts cross in one call."""
    if not files:
        return []
    specs = {int(i): java_table.specs()[i] for i in bridge.iterate(java_table.specs().keySet())}
    if any(spec.isUnpartitioned() and not spec.fields().isEmpty() for spec in specs.values()):
        # Of a spec with void fields only, a file may have their NULLs or no values: `json_spec` is for the first.
        return [content_json(bridge, java_table, f) for f in files]
    functions = bridge.once(_ContentFileFunctions)
    writer = functions.writer(bridge.map(specs.items()))
    return functions.texts(bridge.list(files).stream().map(writer))


def content_file_from_json(bridge: Bridge, java_table: Any, content: str) -> Any:
    """The Java file for a text of `content_json`. It can be committed."""
    values = json.loads(content)
    spec = java_table.specs()[int(values["spec-id"])]
    if values.get("partition"):
        spec = json_spec(bridge, spec)
    node = bridge.once(_ContentFileFunctions).mapper.readTree(_with_numbers(bridge, content, values, spec))
    return bridge.iceberg.ContentFileParser.fromJson(node, spec)


def _with_numbers(bridge: Bridge, content: str, values: Mapping[str, Any], spec: Any) -> str:
    """The text with numbers for partition values that are not finite. `values` is the text parsed. Iceberg writes these
    values as texts, and its parser reads numbers only."""
    partition = values.get("partition") or ()
    if not any(isinstance(v, str) and v in _NOT_FINITE for v in partition):
        return content
    kinds = [str(f.type().typeId().toString()) for f in bridge.iterate(spec.partitionType().fields())]
    # A partition of texts may have these values too.
    numbers = [
        float(v) if kind in _FLOATS and isinstance(v, str) else v
        for v, kind in zip(partition, kinds, strict=True)
    ]
    return json.dumps({**values, "partition": numbers})


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


def content_files_from_json(bridge: Bridge, java_table: Any, contents: Sequence[str]) -> Any:
    """As `content_file_from_json` for many files, as a `java.util.List` in their order. All texts cross in one call,
    which a call per file would not match: it takes half a millisecond."""
    if not contents:
        return bridge.list(())
    functions = bridge.once(_ContentFileFunctions)
    parsed = [json.loads(c) for c in contents]
    spec_ids = {int(values["spec-id"]) for values in parsed}
    specs = {i: json_spec(bridge, java_table.specs()[i]) for i in spec_ids}
    readable = [
        _with_numbers(bridge, content, values, specs[int(values["spec-id"])])
        for content, values in zip(contents, parsed, strict=True)
    ]
    texts = functions.stream_of_texts(readable)
    return functions.to_list(texts.map(functions.parser(bridge.map(specs.items()))))


class _ContentFileFunctions(JavaFunctions):
    """The parser and the writer of content-file JSON as Java functions."""

    def writer(self, specs: Any) -> Any:
        """A function: the text of a file. `specs` are partition specs by id."""
        # Java: file -> ContentFileParser.toJson(file, specs.get(file.specId()))
        to_json = self.static_method(_PARSER, "toJson", STRING, CONTENT_FILE, PARTITION_SPEC)
        by_id = self.bound(specs, "java.util.Map", "get", OBJECT, OBJECT)
        by_id = by_id.asType(self.type_of(PARTITION_SPEC, "int"))
        spec_of = self.compose(self.method(CONTENT_FILE, "specId", "int"), by_id)
        file = self.invoke.MethodHandles.identity(self.class_of(CONTENT_FILE))
        return self.function(self.of_one(to_json, STRING, CONTENT_FILE, file, spec_of))

    @cached_property
    def mapper(self) -> Any:
        """Iceberg's reader of JSON, which also reads the numbers that JSON does not have."""
        mapper = self.bridge.iceberg.util.JsonUtil.mapper().copy()
        package = self.bridge.jvm
        for name in str(mapper.getClass().getName()).removesuffix(".databind.ObjectMapper").split("."):
            package = getattr(package, name)
        feature = getattr(package.core, "JsonParser$Feature").ALLOW_NON_NUMERIC_NUMBERS
        return mapper.configure(feature, True)

    def parser(self, specs: Any) -> Any:
        """A function: the file of a text. `specs` are partition specs by id."""
        # Java: text -> ContentFileParser.fromJson(JsonUtil.mapper().readTree(text), specs)
        mapper = self.mapper
        mapper_class = str(mapper.getClass().getName())
        node = mapper_class.replace("ObjectMapper", "JsonNode")
        read = self.bound(mapper, mapper_class, "readTree", node, STRING)
        parse = self.static_method(_PARSER, "fromJson", CONTENT_FILE, node, "java.util.Map")
        return self.function(self.compose(read, self.bind_arguments(parse, 1, specs)))


LINEAGE: Mapping[str, int] = {"_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
"""Metadata columns of format v3 with their reserved field ids (spec: Reserved Field IDs)."""


def quoted(name: str) -> str:
    """A column name in backquotes, which Spark takes literally."""
    return f"`{name.replace('`', '``')}`"


def local_frame(bridge: Bridge, schema: str, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """A frame of these rows. `schema` is a text like `name type, name type`. No job makes or collects it."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    names = [column.split()[0] for column in schema.split(", ")]
    lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    functions = bridge.once(JavaFunctions)
    texts = functions.to_list(functions.stream_of_texts(lines))
    strings = bridge.jvm.org.apache.spark.sql.Encoders.STRING()
    frame = DataFrame(bridge.session.createDataset(texts, strings).toDF(), bridge.spark)
    return frame.select(F.from_json("value", schema).alias("row")).select("row.*")
