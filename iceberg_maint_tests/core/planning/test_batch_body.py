"""Batches of each operation as the ledger stores them, letter by letter."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from iceberg_maint.core.health.layout import Overlap
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.table_state import LayoutOrder, SortColumn
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.plan import batch_at, batch_of_text, batch_text
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    EqualityDeleteFile,
    ExpireSnapshots,
    FileGroup,
    InputFile,
    PlannedLayout,
    PositionDeleteFile,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
    Work,
    file_work,
    table_work,
)
from iceberg_maint_tests.support.core.values import small, table_of

STORED = {
    "native": '{"applied_deletes":[{"content_offset":null,"data_sequence_number":3,"partition":"p=a","path":"pos","record_count":1,"referenced_data_file":"f1","size_bytes":40,"spec_id":1,"void":false}],"batch_id":"b1","equality_deletes":[],"format_version":2,"groups":[{"expected_output_files":1,"files":[{"data_sequence_number":3,"delete_files":["pos"],"first_row_id":null,"path":"f1","record_count":10,"size_bytes":100}],"output_spec_id":1,"partition":"p=a","spec_id":1}],"layout":null,"manifests":[],"memory":null,"operation":"rewrite_data_files","position_deletes":[],"reasons":["small_files"],"refs":[],"schema_id":0,"snapshot_id":7,"snapshot_sequence_number":5,"snapshots":[],"strategy":"native","table":"lake.db.t","table_uuid":"u1","target_file_size_bytes":1000,"writer":null}',
    "anti-join": '{"applied_deletes":[{"content_offset":null,"data_sequence_number":3,"partition":"p=a","path":"pos","record_count":1,"referenced_data_file":"f1","size_bytes":40,"spec_id":1,"void":false}],"batch_id":"b1","equality_deletes":[{"data_sequence_number":4,"drop":true,"equality_ids":[1],"everywhere":false,"partition":"p=a","path":"e1","record_count":2,"size_bytes":50,"spec_id":1}],"format_version":2,"groups":[{"expected_output_files":1,"files":[{"data_sequence_number":3,"delete_files":["pos"],"first_row_id":null,"path":"f1","record_count":10,"size_bytes":100}],"output_spec_id":1,"partition":"p=a","spec_id":1}],"layout":null,"manifests":[],"memory":{"correction":1,"key_bytes":8,"keys":2,"rows":10},"operation":"rewrite_data_files","position_deletes":[],"reasons":["equality_deletes"],"refs":[],"schema_id":0,"snapshot_id":7,"snapshot_sequence_number":5,"snapshots":[],"strategy":"anti-join","table":"lake.db.t","table_uuid":"u1","target_file_size_bytes":1000,"writer":null}',
    "sorted": '{"applied_deletes":[{"content_offset":null,"data_sequence_number":3,"partition":"p=a","path":"pos","record_count":1,"referenced_data_file":"f1","size_bytes":40,"spec_id":1,"void":false}],"batch_id":"b1","equality_deletes":[],"format_version":2,"groups":[{"expected_output_files":1,"files":[{"data_sequence_number":3,"delete_files":["pos"],"first_row_id":null,"path":"f1","record_count":10,"size_bytes":100}],"output_spec_id":1,"partition":"p=a","spec_id":1}],"layout":{"before":{"depth_sum":36,"max_depth":6,"ranges":6},"order":{"columns":[{"descending":false,"field_id":1,"name":"id","nulls_last":false,"type":"long"}],"measured":[{"descending":false,"field_id":1,"name":"id","nulls_last":false,"type":"long"}],"sort_order_id":0,"z_order":false},"predicted":{"depth_sum":6,"max_depth":1,"ranges":6}},"manifests":[],"memory":null,"operation":"rewrite_data_files","position_deletes":[],"reasons":["layout"],"refs":[],"schema_id":0,"snapshot_id":7,"snapshot_sequence_number":5,"snapshots":[],"strategy":"sorted","table":"lake.db.t","table_uuid":"u1","target_file_size_bytes":1000,"writer":null}',
    "convert": '{"applied_deletes":[{"content_offset":null,"data_sequence_number":3,"partition":"p=a","path":"pos","record_count":1,"referenced_data_file":"f1","size_bytes":40,"spec_id":1,"void":false}],"batch_id":"b1","equality_deletes":[{"data_sequence_number":4,"drop":true,"equality_ids":[1],"everywhere":false,"partition":"p=a","path":"e1","record_count":2,"size_bytes":50,"spec_id":1}],"format_version":2,"groups":[{"expected_output_files":1,"files":[{"data_sequence_number":3,"delete_files":["pos"],"first_row_id":null,"path":"f1","record_count":10,"size_bytes":100}],"output_spec_id":1,"partition":"p=a","spec_id":1}],"layout":null,"manifests":[],"memory":{"correction":1,"key_bytes":8,"keys":2,"rows":10},"operation":"convert_equality_deletes","position_deletes":[],"reasons":["equality_deletes"],"refs":[],"schema_id":0,"snapshot_id":7,"snapshot_sequence_number":5,"snapshots":[],"strategy":"convert","table":"lake.db.t","table_uuid":"u1","target_file_size_bytes":1000,"writer":null}',
    "merge": '{"applied_deletes":[{"content_offset":4,"data_sequence_number":5,"partition":"p=a","path":"dv","record_count":1,"referenced_data_file":"f1","size_bytes":40,"spec_id":1,"void":false}],"batch_id":"b1","equality_deletes":[],"format_version":2,"groups":[{"expected_output_files":1,"files":[{"data_sequence_number":3,"delete_files":["pos"],"first_row_id":null,"path":"f1","record_count":10,"size_bytes":100}],"output_spec_id":1,"partition":"p=a","spec_id":1}],"layout":null,"manifests":[],"memory":null,"operation":"rewrite_position_delete_files","position_deletes":[{"content_offset":null,"data_sequence_number":3,"partition":"p=a","path":"pos","record_count":1,"referenced_data_file":"f1","size_bytes":40,"spec_id":1,"void":false}],"reasons":["position_deletes"],"refs":[],"schema_id":0,"snapshot_id":7,"snapshot_sequence_number":5,"snapshots":[],"strategy":"merge","table":"lake.db.t","table_uuid":"u1","target_file_size_bytes":1000,"writer":null}',
    "regroup": '{"applied_deletes":[],"batch_id":"b1","equality_deletes":[],"format_version":2,"groups":[],"layout":null,"manifests":["m1","m2"],"memory":null,"operation":"rewrite_manifests","position_deletes":[],"reasons":["manifests"],"refs":[],"schema_id":0,"snapshot_id":7,"snapshot_sequence_number":5,"snapshots":[],"strategy":"regroup","table":"lake.db.t","table_uuid":"u1","target_file_size_bytes":0,"writer":null}',
    "expire": '{"applied_deletes":[],"batch_id":"b1","equality_deletes":[],"format_version":2,"groups":[],"layout":null,"manifests":[],"memory":null,"operation":"expire_snapshots","position_deletes":[],"reasons":["snapshots"],"refs":["old"],"schema_id":0,"snapshot_id":7,"snapshot_sequence_number":5,"snapshots":[1,2],"strategy":"expire","table":"lake.db.t","table_uuid":"u1","target_file_size_bytes":0,"writer":null}',
    "mark": '{"applied_deletes":[],"batch_id":"b1","equality_deletes":[],"format_version":2,"groups":[],"layout":null,"manifests":[],"memory":null,"operation":"remove_orphan_files","position_deletes":[],"reasons":["orphan_files"],"refs":[],"schema_id":0,"snapshot_id":7,"snapshot_sequence_number":5,"snapshots":[],"strategy":"mark","table":"lake.db.t","table_uuid":"u1","target_file_size_bytes":0,"writer":null}',
    "sweep-and-mark": '{"applied_deletes":[],"batch_id":"b1","equality_deletes":[],"format_version":2,"groups":[],"layout":null,"manifests":[],"memory":null,"operation":"remove_orphan_files","position_deletes":[],"reasons":["orphan_files"],"refs":[],"schema_id":0,"snapshot_id":7,"snapshot_sequence_number":5,"snapshots":[],"strategy":"sweep-and-mark","table":"lake.db.t","table_uuid":"u1","target_file_size_bytes":0,"writer":null}',
}

GROUPS = (FileGroup("p=a", 1, 1, (InputFile("f1", 100, 10, 3, ("pos",)),), 1),)
EQUALITY = (EqualityDeleteFile("e1", 1, "p=a", False, (1,), 4, 2, 50, True),)
POSITIONS = (PositionDeleteFile("pos", 1, "p=a", 3, 1, 40, "f1"),)
VECTOR = (PositionDeleteFile("dv", 1, "p=a", 5, 1, 40, "f1", 4),)
NEED = MemoryNeed(2, 8, 10)
COLUMN = SortColumn("id", 1, "long")
LAYOUT = PlannedLayout(LayoutOrder((COLUMN,), (COLUMN,)), Overlap(6, 36, 6), Overlap(6, 6, 1))
WORKS: dict[str, Work] = {
    "native": RewriteDataFiles(GROUPS, applied_deletes=POSITIONS),
    "anti-join": RewriteDataFiles(GROUPS, None, EQUALITY, NEED, POSITIONS),
    "sorted": RewriteDataFiles(GROUPS, LAYOUT, applied_deletes=POSITIONS),
    "convert": ConvertEqualityDeletes(EQUALITY, GROUPS, NEED, POSITIONS),
    "merge": RewritePositionDeleteFiles(GROUPS, POSITIONS, VECTOR),
    "regroup": RewriteManifests(("m1", "m2")),
    "expire": ExpireSnapshots((1, 2), ("old",)),
    "mark": RemoveOrphanFiles(sweep=False),
    "sweep-and-mark": RemoveOrphanFiles(sweep=True),
}


@pytest.mark.parametrize("name", STORED)
def test_stored_batch_is_read_as_the_work_of_its_operation(name: str) -> None:
    batch = batch_of_text(STORED[name])
    assert batch.work == WORKS[name]
    assert (batch.batch_id, batch.table, batch.table_uuid) == ("b1", "lake.db.t", "u1")
    assert (batch.snapshot_id, batch.snapshot_sequence_number, batch.schema_id) == (7, 5, 0)
    assert (batch.format_version, batch.target_file_size_bytes) == (
        2,
        json.loads(STORED[name])["target_file_size_bytes"],
    )
    assert [r.value for r in batch.reasons] == json.loads(STORED[name])["reasons"]


@pytest.mark.parametrize("name", STORED)
def test_batch_is_stored_in_these_letters(name: str) -> None:
    assert batch_text(batch_of_text(STORED[name])) == STORED[name]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("expire", "groups", "native"),
        ("native", "snapshots", "expire"),
        ("convert", "layout", "sorted"),
        ("mark", "manifests", "regroup"),
    ],
)
def test_stored_batch_with_a_field_of_another_operation_is_refused(name: str, field: str, value: str) -> None:
    """Read as if the field were not there it would do less than was planned."""
    body = {**json.loads(STORED[name]), field: json.loads(STORED[value])[field]}
    with pytest.raises(ValueError, match=rf"has a value in \['{field}'\]"):
        batch_of_text(json.dumps(body))


def test_stored_batch_without_a_field_is_refused() -> None:
    body = json.loads(STORED["anti-join"])
    del body["layout"]
    with pytest.raises(ValueError, match=r"BatchBody has other fields: \['layout'\]"):
        batch_of_text(json.dumps(body))


def test_stored_batch_of_an_unknown_operation_is_refused() -> None:
    body = {**json.loads(STORED["native"]), "operation": "vacuum"}
    with pytest.raises(ValueError, match="'vacuum' is not a valid Operation"):
        batch_of_text(json.dumps(body))


def test_every_operation_is_the_work_of_one_class() -> None:
    classes: tuple[Any, ...] = get_args(Work)
    assert sorted(c.operation for c in classes) == sorted(Operation)
    assert {type(w) for w in WORKS.values()} == set(classes)


@pytest.mark.parametrize("name", WORKS)
def test_work_is_either_on_files_or_on_the_table(name: str) -> None:
    work = WORKS[name]
    on_files = name in {"native", "anti-join", "sorted", "convert", "merge"}
    narrow, other = (file_work, table_work) if on_files else (table_work, file_work)
    assert narrow(work) is work
    with pytest.raises(ValueError, match=f"{work.operation} w"):
        other(work)


def test_batch_that_writes_no_data_files_has_no_target_size() -> None:
    work = batch_of_text(STORED["regroup"]).work
    assert batch_at(table_of(small(1)).state, work, frozenset()).target_file_size_bytes == 0
