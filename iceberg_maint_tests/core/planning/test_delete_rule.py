"""The rule of which delete applies to which data file: planning's implementation held against the gate's."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest

from iceberg_maint.core.commits import delete_scope
from iceberg_maint.core.commits.change import Entry
from iceberg_maint.core.commits.delete_scope import DeleteIndex
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import (
    FileKind,
    LiveFile,
    equality_delete_reaches,
    position_delete_reaches,
)
from iceberg_maint.core.planning.file_groups import candidates
from iceberg_maint_tests.support.core.values import BY_P, data, delete

EQUALITY, POSITION, VECTOR = (
    FileKind.EQUALITY_DELETES,
    FileKind.POSITION_DELETES,
    FileKind.DELETION_VECTOR,
)
SPECS = {0: BY_P, 1: PartitionSpec(1, ())}
PLACES = ((0, "p=a"), (0, "p=b"), (1, "__all__"))


def entry(file: LiveFile) -> Entry:
    scope = (file.spec_id, () if file.spec_id == 1 else (file.partition,))
    return Entry(
        file.path,
        file.kind,
        scope,
        file.data_sequence_number,
        file.record_count,
        referenced_data_file=file.referenced_data_file,
    )


@pytest.mark.parametrize(
    ("kind", "named"), [(EQUALITY, None), (POSITION, None), (POSITION, "f"), (VECTOR, "f")]
)
def test_planning_and_gate_agree_on_every_scope_and_order_of_one_delete(
    kind: FileKind, named: str | None
) -> None:
    applied = 0
    for (spec, key), (of_spec, of_key), seq, of_seq, path in product(
        PLACES, PLACES, (1, 2, 3), (1, 2, 3), ("f", "g")
    ):
        if named == path and ((spec, key) != (of_spec, of_key) or (kind is VECTOR and of_seq < seq)):
            continue  # No writer names a file of another partition, nor gives a file a vector older than it.
        file = data(path, 10, partition=key, spec_id=spec, seq=seq)
        marks = delete("d", kind, of=named, partition=of_key, spec_id=of_spec, seq=of_seq)
        [[candidate]] = candidates(SPECS, (file, marks)).values()
        planned = marks in (*candidate.position_deletes, *candidate.equality_deletes)
        gate = DeleteIndex([entry(marks)], frozenset({1})).find(entry(file)) is not None
        assert planned is gate, (file, marks)
        applied += planned
    assert applied > 0


def test_reach_of_equality_delete_is_strict_and_of_position_delete_is_not() -> None:
    assert [equality_delete_reaches(2, n) for n in (1, 2, 3)] == [True, False, False]
    assert [position_delete_reaches(2, n) for n in (1, 2, 3)] == [True, True, False]


def test_gate_imports_nothing_of_the_rule_it_is_to_find_mistakes_in() -> None:
    tree = ast.parse(Path(delete_scope.__file__).read_text("utf-8"))
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {m for m in modules if m and ("delete_rule" in m or "planning" in m)} == set()
