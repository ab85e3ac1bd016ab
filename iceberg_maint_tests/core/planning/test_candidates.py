"""Which deletes apply to which data file (spec: Scan Planning)."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.file_groups import Candidate, candidates
from iceberg_maint_tests.support.core.values import BY_P, data, delete

EQ, POS, DV = FileKind.EQUALITY_DELETES, FileKind.POSITION_DELETES, FileKind.DELETION_VECTOR
SPECS = {0: BY_P, 1: PartitionSpec(1, ()), 2: PartitionSpec(2, BY_P.fields)}
FILE = data("f", 10, seq=5)


def found(*files: LiveFile, of: LiveFile = FILE) -> Candidate:
    return next(c for c in candidates(SPECS, [of, *files])[of.partition] if c.file is of)


@pytest.mark.parametrize(("seq", "applies"), [(4, False), (5, True), (6, True)])
def test_position_delete_applies_up_to_its_own_number(seq: int, applies: bool) -> None:
    assert bool(found(delete("d", POS, seq=seq)).position_deletes) is applies
    assert bool(found(delete("d", POS, of="f", seq=seq)).position_deletes) is applies


@pytest.mark.parametrize(("seq", "applies"), [(5, False), (6, True)])
def test_equality_delete_applies_strictly_below_its_number(seq: int, applies: bool) -> None:
    assert bool(found(delete("d", EQ, seq=seq)).equality_deletes) is applies


@pytest.mark.parametrize("kind", [EQ, POS])
@pytest.mark.parametrize("elsewhere", [{"partition": "p=b"}, {"spec_id": 2}])
def test_delete_of_another_scope_does_not_apply(kind: FileKind, elsewhere: dict[str, object]) -> None:
    one = found(delete("d", kind, seq=9, **elsewhere))  # type: ignore[arg-type]
    assert (one.position_deletes, one.equality_deletes) == ((), ())


def test_global_equality_delete_applies_to_every_spec() -> None:
    everywhere = delete("d", EQ, seq=6, partition="__all__", spec_id=1)
    assert found(everywhere).equality_deletes == (everywhere,)
    old = data("g", 10, seq=5, spec_id=2)
    assert found(everywhere, of=old).equality_deletes == (everywhere,)


def test_global_position_delete_stays_in_its_spec() -> None:
    assert found(delete("d", POS, seq=6, partition="__all__", spec_id=1)).position_deletes == ()


def test_delete_that_names_another_file_does_not_apply() -> None:
    assert found(delete("d", POS, of="g", seq=9), delete("v", DV, of="g", seq=9)).position_deletes == ()


def test_vector_replaces_position_deletes() -> None:
    vector = delete("v", DV, of="f", seq=7, records=3)
    older = [delete("d", POS, of="f", seq=6), delete("e", POS, seq=6)]
    assert found(vector, *older).position_deletes == (vector,)


def test_delete_ratio_counts_file_scoped_deletes_only_and_never_above_one() -> None:
    assert found(delete("d", POS, of="f", records=3), of=data("f", 10)).file_scoped_delete_ratio == 0.3
    assert found(delete("d", POS, of="f", records=30), of=data("f", 10)).file_scoped_delete_ratio == 1.0
    partly = found(delete("d", POS, records=9), of=data("f", 10))
    assert partly.file_scoped_delete_ratio == 0.0
    assert partly.has_partition_scoped_deletes


def test_empty_file_has_no_delete_ratio() -> None:
    assert found(delete("d", POS, of="f"), of=data("f", 10, records=0)).file_scoped_delete_ratio == 0.0


def test_candidates_keep_the_order_of_files_per_partition() -> None:
    files = [data("2", 1), data("1", 1, partition="p=b"), data("0", 1)]
    assert {k: [c.file.path for c in v] for k, v in candidates(SPECS, files).items()} == {
        "p=a": ["2", "0"],
        "p=b": ["1"],
    }
