"""Table metadata files to state."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from iceberg_maint.catalog.table_metadata import parse_metadata
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Ref
from iceberg_maint.errors import RefusedError, UnreadableTableError

TABLE = TableId.parse("lake.db.t")


def document(**changes: Any) -> dict[str, Any]:
    return {
        "format-version": 2,
        "table-uuid": "u",
        "location": "file:///t",
        "last-updated-ms": 9,
        "last-sequence-number": 4,
        "current-schema-id": 1,
        "schemas": [
            {
                "schema-id": 0,
                "type": "struct",
                "fields": [
                    {"id": 1, "name": "day", "required": False, "type": "date"},
                    {"id": 2, "name": "n", "required": False, "type": "int"},
                ],
            },
            {
                "schema-id": 1,
                "type": "struct",
                "fields": [
                    {"id": 2, "name": "n", "required": False, "type": "long"},
                    {
                        "id": 3,
                        "name": "s",
                        "required": False,
                        "type": {
                            "type": "struct",
                            "fields": [
                                {"id": 4, "name": "amount", "required": False, "type": "decimal(9, 2)"}
                            ],
                        },
                    },
                ],
            },
        ],
        "default-spec-id": 1,
        "partition-specs": [
            {
                "spec-id": 0,
                "fields": [{"source-id": 1, "field-id": 1000, "transform": "identity", "name": "day"}],
            },
            {
                "spec-id": 1,
                "fields": [
                    {"source-id": 2, "field-id": 1001, "transform": "bucket[4]", "name": "b"},
                    {"source-id": 2, "field-id": 1002, "transform": "identity", "name": "n"},
                    {"source-id": 4, "field-id": 1003, "transform": "truncate[10]", "name": "a"},
                    {"source-ids": [1], "field-id": 1004, "transform": "month", "name": "m"},
                    {"source-id": 9, "field-id": 1005, "transform": "void", "name": "v"},
                ],
            },
        ],
        "properties": {"a": "b"},
        "current-snapshot-id": 2,
        "snapshots": [
            {
                "snapshot-id": 2,
                "parent-snapshot-id": 1,
                "sequence-number": 4,
                "timestamp-ms": 8,
                "manifest-list": "l2",
                "summary": {"operation": "overwrite", "k": "v"},
                "schema-id": 1,
            },
            {
                "snapshot-id": 1,
                "sequence-number": 3,
                "timestamp-ms": 7,
                "manifest-list": "l1",
                "summary": {"operation": "append"},
            },
        ],
        "refs": {"main": {"snapshot-id": 2, "type": "branch"}, "v": {"snapshot-id": 1, "type": "tag"}},
        **changes,
    }


def parse(node: dict[str, Any]) -> Any:
    return parse_metadata(TABLE, "file:///t/v1.metadata.json", json.dumps(node).encode())


def test_parse_metadata_takes_what_the_file_says() -> None:
    state = parse(document())
    assert (state.uuid, state.location, state.format_version, state.last_sequence_number) == (
        "u",
        "file:///t",
        2,
        4,
    )
    assert (state.schema_id, state.current_spec_id, state.properties) == (1, 1, {"a": "b"})
    assert [s.snapshot_id for s in state.snapshots] == [1, 2]
    assert state.snapshot.summary == {"operation": "overwrite", "k": "v"}
    assert (state.snapshot.operation, state.snapshot.parent_id, state.snapshot.manifest_list) == (
        "overwrite",
        1,
        "l2",
    )
    assert state.refs == (Ref("main", "branch", 2), Ref("v", "tag", 1))
    assert state.metadata_bytes == len(json.dumps(document()))


def test_parse_metadata_result_types_are_those_of_transform_and_column() -> None:
    specs = parse(document()).specs
    # Column 1 is gone from the current schema, column 2 was promoted, column 4 is nested, 9 unknown.
    assert [f.result_type for f in specs[0].fields] == ["date"]
    assert [f.result_type for f in specs[1].fields] == ["int", "long", "decimal(9, 2)", "int", "unknown"]
    assert specs[1].fields[4].is_void
    assert [f.loses_values for spec in (specs[0], specs[1]) for f in spec.fields] == [True] + [False] * 5
    assert (specs[0].loses_values, specs[1].loses_values) == (True, False)


def test_parse_metadata_key_types_are_those_of_the_current_schema_outside_lists_and_maps() -> None:
    # Column 1 was dropped, column 2 promoted, column 4 is nested.
    assert parse(document()).key_types == {2: "long", 4: "decimal(9, 2)"}
    node = document()
    node["schemas"][1]["fields"] += [
        {"id": 5, "name": "l", "type": {"type": "list", "element-id": 6, "element": "int"}},
        {
            "id": 7,
            "name": "m",
            "type": {"type": "map", "key-id": 8, "key": "int", "value-id": 9, "value": "int"},
        },
        {"id": 10, "name": "f", "type": "float"},
    ]
    assert parse(node).key_types == {2: "long", 4: "decimal(9, 2)", 10: "float"}


def test_parse_metadata_of_format_v1_fills_in_what_it_leaves_out() -> None:
    node = document(**{"format-version": 1})
    node["schema"] = node.pop("schemas")[0]
    node["partition-spec"] = [{"source-id": 1, "transform": "identity", "name": "day"}]
    for key in (
        "table-uuid",
        "last-sequence-number",
        "partition-specs",
        "refs",
        "current-schema-id",
        "default-spec-id",
    ):
        del node[key]
    for snapshot in node["snapshots"]:
        del snapshot["sequence-number"], snapshot["summary"]
    state = parse(node)
    assert (state.uuid, state.last_sequence_number, state.current_spec_id) == ("file:///t", 0, 0)
    assert state.specs[0].fields[0].field_id == 1000
    assert state.specs[0].fields[0].result_type == "date"
    assert state.refs == (Ref("main", "branch", 2),)
    assert (state.snapshot.sequence_number, state.snapshot.operation) == (0, "")
    assert [s.snapshot_id for s in state.snapshots] == [2, 1]


@pytest.mark.parametrize("current", [None, -1])
def test_parse_metadata_of_an_empty_table_has_no_snapshot(current: int | None) -> None:
    state = parse(document(**{"current-snapshot-id": current, "snapshots": [], "refs": {}}))
    assert (state.snapshot, state.snapshots, state.refs) == (None, (), ())


def test_parse_metadata_compressed_file_is_read_and_measured_as_stored() -> None:
    data = gzip.compress(json.dumps(document()).encode())
    state = parse_metadata(TABLE, "x.gz.metadata.json", data)
    assert (state.uuid, state.metadata_bytes) == ("u", len(data))


def test_parse_metadata_newer_format_version_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"lake\.db\.t has format version 4; 3 is the newest") as refused:
        parse(document(**{"format-version": 4}))
    assert refused.value.code == "ICM-108"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\x1f\x8bxx",
        b'{"format-version": 2}',
        json.dumps(document(**{"current-snapshot-id": 5})).encode(),
        gzip.compress(b"")[:10] + b"\xff" * 30,
        b"[" * 100_000,
        json.dumps(document(refs=["main"])).encode(),
        json.dumps(document(**{"last-updated-ms": float("inf")})).encode(),
    ],
    ids=[
        *("empty", "cut off", "list", "no version", "bad gzip", "no fields", "snapshot that is not there"),
        *("damaged gzip", "too deep", "refs in a list", "infinite time"),
    ],
)
def test_parse_metadata_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(
        UnreadableTableError, match=r"cannot load lake\.db\.t: file:///x is not table metadata"
    ) as refused:
        parse_metadata(TABLE, "file:///x", data)
    assert refused.value.code == "ICM-101"


@pytest.mark.parametrize("parents", [{1: 1}, {1: 2, 2: 1}, {1: None, 2: 3, 3: 2}])
def test_parse_metadata_snapshot_that_is_its_own_ancestor_is_refused(parents: dict[int, int | None]) -> None:
    snapshots = [
        {"snapshot-id": number, "parent-snapshot-id": parent, "timestamp-ms": 1, "manifest-list": "m"}
        for number, parent in parents.items()
    ]
    with pytest.raises(UnreadableTableError, match=r"snapshot \d is its own ancestor"):
        parse(document(**{"current-snapshot-id": 1, "snapshots": snapshots}))


def test_parse_metadata_columns_that_not_every_engine_reads_are_those_of_the_current_schema() -> None:
    at = {"id": 5, "name": "at", "required": False, "type": "time"}
    changed = document()
    changed["schemas"][0]["fields"].append({**at, "name": "dropped"})
    assert parse(changed).uncommon_types == {}
    changed["schemas"][1]["fields"][1]["type"]["fields"].append(at)
    changed["schemas"][1]["fields"].append({"id": 6, "name": "v", "required": False, "type": "variant"})
    assert parse(changed).uncommon_types == {"s.at": "time", "v": "variant"}


def test_parse_metadata_columns_have_their_types_as_text() -> None:
    changed = document()
    points = {"type": "list", "element-id": 9, "element-required": True, "element": "double"}
    field = {
        "type": "map",
        "key-id": 7,
        "key": "string",
        "value-id": 8,
        "value-required": True,
        "value": points,
    }
    changed["schemas"][1]["fields"].append({"id": 6, "name": "m", "required": False, "type": field})
    columns = parse(changed).columns
    assert columns["m"] == "map<string, list<double>>"
    assert list(columns) == [f["name"] for f in changed["schemas"][1]["fields"]]
    assert columns["s"].startswith("struct<")


@pytest.mark.parametrize("levels", [300, 5000])
@pytest.mark.parametrize(
    ("start", "end"), [('{"schemas": ' + "[" * 9, ""), ('{"schemas": ', "}"), ('{"properties": {"a": ', "}}")]
)
def test_metadata_nested_without_end_is_refused_by_name(start: str, end: str, levels: int) -> None:
    text = start + "[" * levels + "]" * levels + end
    with pytest.raises(UnreadableTableError, match="is not table metadata") as refused:
        parse_metadata(TABLE, "loc", text.encode())
    assert refused.value.code == "ICM-101"
